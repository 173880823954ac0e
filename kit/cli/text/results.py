"""What runs made, as text: sizes by run, and what was removed."""

from __future__ import annotations

from collections.abc import Sequence

from kit.cli.text.table import fitted
from kit.model.results import RemoveRunsResult, RunSize
from kit.model.text import fold, size

# A table of runs has the latest ones.
MOST_RUNS = 20


def run_sizes(runs: Sequence[RunSize]) -> str:
    """Return a table of runs: what they made where, and how much it is."""
    rows = [
        (
            run.id,
            fold(run.hosts, most=3),
            *(size(count) if count else "" for count in (run.output, run.checkpoints, run.work, run.log)),
        )
        for run in runs[-MOST_RUNS:]
    ]
    more = len(runs) - len(rows)
    header = ("RUN", "HOSTS", "OUTPUT", "CHECKPOINTS", "WORK", "LOG")
    return fitted(rows, header, None, flexible=()) + (f"\n… and {more} older {word(more)}" if more else "")


def counted(runs: Sequence[RunSize]) -> str:
    """Return `2 runs (1.4 GB)`."""
    return f"{len(runs)} {word(len(runs))} ({size(sum(run.size for run in runs))})"


def word(count: int) -> str:
    return "run" if count == 1 else "runs"


def removed(value: RemoveRunsResult) -> str:
    if not value.runs:
        return "Nothing to do: no run is that old."
    if value.dry_run:
        return f"{run_sizes(value.runs)}\nkit runs rm would delete {counted(value.runs)}."
    return f"Deleted {counted(value.runs)}."
