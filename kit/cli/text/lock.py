"""The cluster's lock and its audit as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kit.cli.text.table import table

if TYPE_CHECKING:
    from kit.model.lock import AuditResult, LockStatus


def lock(value: LockStatus) -> str:
    """Return who holds the lock, or that it is free or stale."""
    holder = value.holder
    if value.state == "free":
        return f"Nobody holds the lock of cluster {value.cluster}."
    if value.state == "stale":
        whose = f" It is from {holder.who}, for {holder.what}, since {holder.since_text()}." if holder else ""
        return f"The lock of cluster {value.cluster} is stale.{whose} The next deploy takes it over."
    if holder is None:
        return f"Another kit is taking the lock of cluster {value.cluster} now."
    return f"{holder.who} holds the lock of cluster {value.cluster} since {holder.since_text()}, for {holder.what}."


def lock_released(value: LockStatus) -> str:
    """Return what became of the lock. `value` is its state before."""
    if value.state == "free":
        return f"Nothing to do: nobody holds the lock of cluster {value.cluster}."
    if value.state == "stale" or value.holder is None:
        return f"The lock of cluster {value.cluster} was stale. It is removed."
    holder = value.holder
    before = f"{holder.who} held it since {holder.since_text()}, for {holder.what}, which stops before its next step"
    return f"The lock of cluster {value.cluster} is free: {before}."


def audit(value: AuditResult, *, width: int | None = None) -> str:
    """Return a line for each change, the latest last."""
    if not value.entries:
        return f"The audit of cluster {value.cluster} is empty, and kit setup has changed no host."
    rows = [(e.time, e.who, e.verb, e.outcome, f"{e.seconds:.1f} s", e.what) for e in value.entries]
    header = ("TIME", "WHO", "VERB", "OUTCOME", "TOOK", "WHAT")
    return table(rows, header, width=width, flexible=("WHAT", "WHO"), drop=("TOOK", "WHAT"))
