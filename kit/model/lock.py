"""The lock of a cluster, and what was changed under it: values that the head's VM keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class Holder:
    """Who holds the lock: `who` is user@machine, `what` the verb, `since` in UTC, `pid` the process on the head's VM.

    `age_s` is by the head's own clock, like `since`.
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


@dataclass(frozen=True, kw_only=True, slots=True)
class LockStatus:
    """`state` is free, held, or stale: a holder that is gone left its name behind, and stops nobody."""

    cluster: str
    state: Literal["free", "held", "stale"]
    holder: Holder | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditEntry:
    """A change that somebody made: `time` in UTC when it ended, `outcome` is done, failed or interrupted."""

    time: str
    who: str
    verb: str
    what: str
    outcome: str
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditResult:
    """The oldest entry first."""

    cluster: str
    entries: tuple[AuditEntry, ...]
