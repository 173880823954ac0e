"""Data sets as text: what was staged, what is where, what is wrong."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from kit.cli.text.table import fitted
from kit.model.datasets import (
    DataListing,
    DataRow,
    MountResult,
    RemoveDataResult,
    RemovedData,
    StagePreview,
    StageResult,
    StopResult,
    VerifyResult,
)
from kit.model.text import files, fold, printable, size

# A rate of less would only be that of the first moments.
MEASURED = 10_000_000
# Wrong files that are named for each host.
MOST_WRONG = 10
_WHY = {
    "missing": "is missing",
    "size": "has another size",
    "bytes": "has other bytes",
    "extra": "is not in the data set",
}


def staged(value: StageResult) -> str:
    """Return how a staging ended, in a line."""
    where = f"{len(value.hosts)} host{'' if len(value.hosts) == 1 else 's'}: {fold(value.hosts)}"
    whole = f"{files(value.files)}, {size(value.bytes)}"
    if value.detached:
        return (
            f"{value.name} is being staged on {where} ({whole}, {size(value.read)} to read).\n"
            f"See it: kit data ls; watch it: kit data stage {value.name}; end it: kit data stop {value.name}"
        )
    if value.nothing_to_do:
        have = "has" if len(value.hosts) == 1 else "have"
        return f"{value.name}: nothing to do: {fold(value.hosts)} {have} all {whole}."
    parts = [f"{value.new} new or changed" if value.new else "", f"{value.removed} removed" if value.removed else ""]
    changes = f" ({', '.join(part for part in parts if part)})" if any(parts) else ""
    rate = (
        f", {value.read / value.seconds / 1e6:.1f} MB/s from the source"
        if value.read >= MEASURED and value.seconds
        else ""
    )
    return f"Staged {value.name} on {where}: {whole}{changes} in {value.seconds:.1f} s{rate}."


def mounted(value: MountResult) -> str:
    """Return where a data set is mounted, in a line or two."""
    new = [host for host in value.hosts if host not in value.before]
    if value.hosts and not new and not value.restarted:
        return f"{value.name}: nothing to do: it is mounted on {fold(value.hosts)}."
    lines = [f"Mounted {value.name} on {fold(value.hosts)}: {value.source}, in {value.seconds:.1f} s."]
    if value.restarted:
        lines.append(f"Restarted the nodes of {fold(value.restarted)}, which had an earlier mount.")
    return "\n".join(lines)


def previews(sets: Sequence[StagePreview]) -> str:
    """Return what a staging would do."""
    lines = []
    for one in sets:
        limit = f", at most {size(one.size)}" if one.size is not None else ""
        lines.append(f"{one.name}: {one.source} → {one.folder} on {fold(one.hosts)} ({_where(one.stage)}{limit})")
        lacking = [host for host in one.hosts if host not in one.has]
        if one.state == "changed":
            lines.append("  kit.yaml has changed since it was staged")
        if one.has:
            lines.append(f"  {fold(one.has)}: staged; would get what is new or has changed in the source")
        if lacking:
            lines.append(f"  {fold(lacking)}: would get what is missing")
    return "\n".join([*lines, "kit read no source, and changed nothing."])


def _where(stage: str) -> str:
    return "in memory" if stage == "ram" else "on the disk"


def listing(value: DataListing, *, width: int | None = None) -> str:
    """Return a table of data sets. Ages are by the head's clock if it is known."""
    if not value.sets:
        return f"Cluster {value.cluster} has no data sets. To have some, add data: to kit.yaml."
    now = time.time() if value.now is None else value.now
    rows = [
        (
            row.name,
            row.source,
            row.stage,
            _hosts(row),
            "" if row.files is None else str(row.files),
            "" if row.bytes is None else size(row.bytes),
            "" if row.at is None else age(now - row.at),
            state(row),
        )
        for row in value.sets
    ]
    header = ("NAME", "SOURCE", "STAGE", "HOSTS", "FILES", "SIZE", "AGE", "STATE")
    drop = ("SOURCE", "AGE", "FILES", "STAGE", "SIZE")
    table = fitted(rows, header, width, flexible=("SOURCE", "NAME"), drop=drop)
    return "\n".join([table, *(line for row in value.sets for line in _below(row))])


def _below(row: DataRow) -> list[str]:
    """Return the lines about a data set that the table has no room for."""
    missing = [f"{row.name}: missing on {fold(row.lacking)}"] if row.lacking else []
    if row.gone:
        are = "is" if len(row.gone) == 1 else "are"
        where = f"{printable(fold(row.gone, most=3))}, which {are} no longer in the cluster"
        missing = [f"{row.name}: a part of it is on {where}; share its files again: kit data stage {row.name}"]
    if row.state == "changed" and row.stage == "none":
        again = f"kit data rm {row.name} && kit data mount {row.name}"
        missing.append(f"{row.name}: the mount has another source or write: than kit.yaml; mount it again: {again}")
    rest = f"which kit.yaml does not name; kit data rm {row.name} deletes all copies"
    copies = [f"{row.name}: a copy on {fold(on)} in {printable(at)}, {rest}" for at, on in row.elsewhere.items()]
    return [*missing, *copies]


def _hosts(row: DataRow) -> str:
    return f"{len(row.hosts)} of {row.of}" if row.of else ""


def state(row: DataRow) -> str:
    """Return the state of a data set in words."""
    if row.state == "staging":
        return "staging" if row.fraction is None else f"staging {int(row.fraction * 100)} %"
    if row.state == "changed":
        return "changed in kit.yaml"
    return "not in kit.yaml" if row.state == "unknown" else row.state


def age(seconds: float) -> str:
    """Return an age in one unit: 40 s, 5 min, 3 h, 12 d."""
    for unit, length, most in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172800)):
        if seconds < most:
            return f"{max(0, int(seconds // length))} {unit}"
    return f"{int(seconds // 86400)} d"


def missed(hosts: Mapping[str, str]) -> str:
    """Return a line for each host that could not be asked."""
    return "\n".join(f"kit: error: {host}: {why}" for host, why in hosts.items())


def verified(value: VerifyResult) -> str:
    """Return what is wrong on each host, or that nothing is."""
    lines = []
    for host, outcome in value.wrong.items():
        lines += [
            f"{host}: {printable(one.file)} {_WHY.get(one.why, 'is wrong')}" for one in outcome.wrong[:MOST_WRONG]
        ]
        more = outcome.more + max(0, len(outcome.wrong) - MOST_WRONG)
        lines += [f"{host}: and {files(more)} more"] if more else []
    right = [host for host in value.hosts if host not in value.wrong]
    if right:
        first = value.hosts[right[0]]
        lines.append(f"{value.name}: right on {fold(right)}: {files(first.files)}, {size(first.bytes)}")
    if value.wrong:
        lines.append(f"{value.name}: wrong on {fold(value.wrong)}")
        strange = any(one.why == "extra" for outcome in value.wrong.values() for one in outcome.wrong)
        # A staging removes no file that it did not bring.
        before = f"kit data rm {value.name}, then " if strange else ""
        lines.append(f"  → bring it again: {before}kit data stage {value.name}")
    if value.missed:
        lines.append(f"{value.name}: not known on {fold(value.missed)}")
    return "\n".join(lines)


def removable(sets: Sequence[RemovedData], *, width: int | None = None) -> str:
    """Return a table of what would be removed."""
    rows = [(one.name, fold(one.hosts, most=3), size(one.bytes) if one.bytes is not None else "") for one in sets]
    return fitted(rows, ("NAME", "HOSTS", "EACH"), width, flexible=("NAME", "HOSTS"))


def question(sets: Sequence[RemovedData]) -> str:
    """Return what kit asks before it removes these."""
    copies, mounts = ([one.name for one in sets if one.mounted is mounted] for mounted in (False, True))
    parts = [f"Delete what was staged of {', '.join(copies)} from every host"] if copies else []
    parts += [f"{'unmount' if copies else 'Unmount'} {', '.join(mounts)} on every host"] if mounts else []
    return f"{', and '.join(parts)}?"


def removed(value: RemoveDataResult, *, width: int | None = None) -> str:
    there = [one for one in value.sets if one.hosts]
    if not there:
        return f"Nothing to do: no host has {', '.join(one.name for one in value.sets)}."
    if value.dry_run:
        delete, unmount = (any(one.mounted is mounted for one in there) for mounted in (False, True))
        verbs = " and ".join([*(["delete it from"] if delete else []), *(["unmount it on"] if unmount else [])])
        return f"{removable(there, width=width)}\nkit data rm would {verbs} every host."
    return "\n".join(
        f"{f'Unmounted {one.name} on' if one.mounted else f'Deleted {one.name} from'} {fold(one.hosts)}."
        for one in there
    )


def stopped(value: StopResult) -> str:
    if not value.id:
        return f"Nothing to do: {value.name} is not being staged."
    return f"The staging of {value.name} was stopped. What came is kept; go on: kit data stage {value.name}"
