"""What runs made, as text: sizes by run, and what was removed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kit.cli.text.table import fitted
from kit.model.results import LOG, Copied, PullResult, RemoveRunsResult, RunSize
from kit.model.text import files as files_text
from kit.model.text import fold, printable, size

# A table of runs has the latest ones.
MOST_RUNS = 20
# A warning names at most this many files.
MOST_NAMES = 5


def run_sizes(runs: Sequence[RunSize], *, width: int | None = None) -> str:
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
    shown = fitted(rows, header, width, flexible=("HOSTS",), drop=("LOG", "WORK"))
    return shown + (f"\n… and {more} older {word(more)}" if more else "")


def counted(runs: Sequence[RunSize]) -> str:
    """Return `2 runs (1.4 GB)`."""
    return f"{len(runs)} {word(len(runs))} ({size(sum(run.size for run in runs))})"


def word(count: int) -> str:
    return "run" if count == 1 else "runs"


def removed(value: RemoveRunsResult, *, width: int | None = None) -> str:
    if not value.runs:
        return "Nothing to do: no run is that old."
    if value.dry_run:
        return f"{run_sizes(value.runs, width=width)}\nkit runs rm would delete {counted(value.runs)}."
    return f"Deleted {counted(value.runs)}."


def pulled(value: PullResult) -> str:
    """Return what came from where, in a line."""
    came = [host for host in value.hosts if host.files]
    files, unchanged = sum(host.files for host in came), sum(host.unchanged for host in value.hosts)
    more = f"; {unchanged} were there" if unchanged else ""
    # These match, but stayed where they are. What is in the folder of --checkpoint-dir may be of other runs.
    stayed = value.without_work or any(host.skipped for host in value.hosts) or (value.patterns and value.others)
    lacks = value.missed or any(host.failed for host in value.hosts)
    if not files and (lacks or (stayed and not unchanged)):
        return f"No file of run {value.run} came{more}." if value.run else f"No file came{more}."
    if not files and not unchanged and value.patterns:
        return f"No file of run {value.run} matches {', '.join(map(printable, value.patterns))}."
    if not files and not unchanged:
        return f"Run {value.run} has made nothing." if value.run else "Nothing to do: there are no files."
    if not files:
        return f"Nothing to do: {value.folder} has all {files_text(unchanged)}."
    what = f"run {value.run}" if value.run else files_text(files)
    size_text = size(sum(host.size for host in came))
    count = f": {files_text(files)}, {size_text}" if value.run else f": {size_text}"
    verb = "Pulled" if value.run else "Copied"
    return f"{verb} {what} from {fold([host.host for host in came])} into {value.folder}{count}{more}."


def copied(value: Copied) -> str:
    return f"Copied {files_text(value.files)}, {size(value.size)}, to {fold(value.hosts)}:{printable(value.path)}."


def pull_notes(value: PullResult) -> str:
    """Return what you should know: files that changed meanwhile, what kit left out, and which hosts are missing."""
    lines = []
    changed = [path for host in value.hosts for path in host.changed if path != LOG]
    if changed:
        lines.append(f"kit: {_names(changed)} changed while kit read it; run the same again later")
    skipped = _by_reason([(host.host, host.skipped) for host in value.hosts])
    lines += [f"kit: left out {_names(paths)}: {printable(why)}" for why, paths in skipped.items()]
    if value.live:
        lines.append(f"kit: run {value.run} is still running: pull again for what it makes from now on")
    if value.without_work:
        where = fold(value.without_work)
        bring = f"kit pull {value.run} work brings it"
        lines.append(f"kit: left out the working folder on {where}: it still has the code; {bring}")
    folder = printable(value.checkpoints.partition(":")[2])
    for other in value.others:
        count = f"{files_text(other.files)} ({size(other.size)})"
        what = f"left {count} in {folder} on {fold(other.hosts)}, which did not change during the run"
        lines.append(f"kit: {what}; bring all: kit pull {value.run} checkpoints --all-checkpoints")
    failed = _by_reason([(host.host, host.failed) for host in value.hosts])
    lines += [f"kit: error: {_names(paths)} did not come: {printable(why)}" for why, paths in failed.items()]
    if failed:
        lines.append("  → mend that, then run the same again to fetch the rest")
    if value.missed:
        lines.append(f"kit: error: not everything came from {fold(value.missed)}")
    return "\n".join(lines)


def _by_reason(hosts: Sequence[tuple[str, Mapping[str, str]]]) -> Mapping[str, Sequence[str]]:
    """Return HOST:PATH by reason, from the reasons by path of each host."""
    reasons: dict[str, list[str]] = {}
    for host, paths in hosts:
        for path, why in paths.items():
            reasons.setdefault(why, []).append(f"{host}:{path}")
    return reasons


def _names(paths: Sequence[str]) -> str:
    more = len(paths) - MOST_NAMES
    return ", ".join(map(printable, paths[:MOST_NAMES])) + (f" and {more} more" if more > 0 else "")
