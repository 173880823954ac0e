"""A timeline as text: what each rank waited, and how to open the file."""

from __future__ import annotations

from kit.cli.text.table import fitted
from kit.model.text import fold, size
from kit.model.timeline import TimelineResult

# A table of ranks has the first ones.
MOST_RANKS = 64


def timeline(value: TimelineResult, width: int | None = None) -> str:
    rows = [
        (str(rank.rank), rank.host, str(rank.operations), f"{rank.waited:.0%}", f"{rank.operated:.0%}")
        for rank in value.ranks[:MOST_RANKS]
    ]
    header = ("RANK", "HOST", "OPERATIONS", "WAITED FOR RANKS", "IN OPERATIONS")
    more = len(value.ranks) - len(rows)
    shown = fitted(rows, header, width, flexible=("HOST",), drop=("OPERATIONS", "IN OPERATIONS"))
    lines = [shown + (f"\n… and {more} more ranks" if more else "")]
    hosts = len({rank.host for rank in value.ranks})
    clock = f", the clocks of {hosts} hosts within {_micro(value.clock_error_us)} of each other" if hosts > 1 else ""
    lines.append(f"{value.file} ({size(value.size)}): {value.seconds:.1f} s of {_ranks(len(value.ranks))}{clock}.")
    lines.append("Open it in https://ui.perfetto.dev (it stays on your machine) or chrome://tracing.")
    return "\n".join(lines)


def missed(value: TimelineResult) -> str:
    """Return a line for each reason why ranks are missing or shorter, or ''."""
    reasons: dict[str, list[str]] = {}
    for rank, why in value.missed.items():
        reasons.setdefault(why, []).append(rank)
    return "\n".join(
        f"warning: {'rank' if len(ranks) == 1 else 'ranks'} {fold(ranks, most=8)}: {why}"
        for why, ranks in reasons.items()
    )


def _ranks(count: int) -> str:
    return "1 rank" if count == 1 else f"{count} ranks"


def _micro(us: float) -> str:
    return f"{us / 1000:.1f} ms" if us >= 100 else f"{us:.0f} µs"
