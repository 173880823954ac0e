"""Which failed connections are tried again, and after how long. Pure decisions; the transports do the waiting."""

from __future__ import annotations

from typing import Literal

# dropped: sshd hung up before the login, as it does beyond MaxStartups. absent: nothing listens, or no route.
# settled: another attempt would end the same way.
Failure = Literal["dropped", "absent", "settled"]
# A host that comes back deserves another attempt. One that is busy with others' logins takes longer.
ABSENT_ATTEMPTS = 3
DROPPED_ATTEMPTS = 7
_LONGEST_S = 8.0


def pause_s(failure: Failure, attempt: int, jitter: float) -> float | None:
    """Return the seconds to wait after failed attempt number `attempt` (from 1), or None to give up.

    `jitter` is from 0 to 1: hosts that were dropped together must not come back together.
    """
    if failure == "absent" and attempt < ABSENT_ATTEMPTS:
        return 0.5 * attempt
    if failure == "dropped" and attempt < DROPPED_ATTEMPTS:
        return min(0.4 * 2.0 ** (attempt - 1), _LONGEST_S) * (0.5 + jitter)
    return None


def width(cores: int) -> int:
    """Return how many hosts kit works on at a time: a login costs about 0.1 s of a core here."""
    return max(32, min(32 * cores, 256))
