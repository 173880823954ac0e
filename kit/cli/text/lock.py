"""The cluster's lock and its audit as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kit.cli.text.table import table

if TYPE_CHECKING:
    from kit.model.lock import AuditResult, LockStatus


def lock(value: LockStatus) -> str:
    holder = value.holder
    if value.state == "free":
        return f"Nobody holds the lock of cluster {value.cluster}."
    if value.state == "stale":
        of = f" of {holder.who}, for {holder.what}, since {holder.told()}" if holder else ""
        return f"A lock of cluster {value.cluster}{of}, is left over. It stops nobody: the next deploy takes it over."
    if holder is None:
        return f"Somebody is just taking the lock of cluster {value.cluster}."
    return f"{holder.who} holds the lock of cluster {value.cluster} since {holder.told()}, for {holder.what}."


def lock_released(value: LockStatus) -> str:
    """`value` is how the lock was before."""
    if value.state == "free":
        return f"Nothing to do: nobody holds the lock of cluster {value.cluster}."
    if value.state == "stale" or value.holder is None:
        return f"The lock of cluster {value.cluster} was left over, and is gone."
    who = f"{value.holder.who} had it since {value.holder.told()}, for {value.holder.what}"
    return f"The lock of cluster {value.cluster} is free: {who}, which stops before its next step."


def audit(value: AuditResult) -> str:
    if not value.entries:
        return f"Nothing is in the audit of cluster {value.cluster}."
    rows = [(e.time, e.who, e.verb, e.outcome, f"{e.seconds:.1f} s", e.what) for e in value.entries]
    return table(rows, ("TIME", "WHO", "VERB", "OUTCOME", "TOOK", "WHAT"))
