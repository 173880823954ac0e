"""The lock of a cluster and the audit of its changes, both kept on the head's VM."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class Holder(Struct, frozen=True, kw_only=True):
    """The holder of a lock. `who` is user@machine, `what` the verb, `since` in UTC, `pid` a process on the head's VM.

    `age_s` and `since` use the head's clock.
    """

    who: str
    what: str
    since: str
    age_s: int
    pid: int

    def since_text(self) -> str:
        """Return `2026-03-01T09:30:00Z (2 min ago)`."""
        for size, unit in ((3600, "h"), (60, "min")):
            if self.age_s >= size:
                return f"{self.since} ({self.age_s // size} {unit} ago)"
        return f"{self.since} ({self.age_s} s ago)"


class LockStatus(Struct, frozen=True, kw_only=True):
    """`state` is free, held, or stale. A stale lock has the name of a holder that is gone, and blocks nobody."""

    cluster: str
    state: Literal["free", "held", "stale"]
    holder: Holder | None = None


class AuditEntry(Struct, frozen=True, kw_only=True):
    """A change of the cluster. `time` is when it ended, in UTC. `outcome` is done, failed or interrupted."""

    time: str
    who: str
    verb: str
    what: str
    outcome: str
    seconds: float


class AuditResult(Struct, frozen=True, kw_only=True):
    """The entries of the audit, the oldest first."""

    cluster: str
    entries: tuple[AuditEntry, ...]
