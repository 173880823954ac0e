"""How an elastic run ended: its exit code, and the event that says why."""

from typing import Any, Dict, Optional, Tuple

from kitelastic.crew import BROKEN

# kit's exit code: a host was lost.
HOST_LOST = 3
# (rank, host, exit code)
First = Tuple[int, str, int]


def of(first: Optional[First], *, why: str, refused: bool, everywhere: str) -> Tuple[int, Dict[str, Any]]:
    """Return the exit code, and an event or {}.

    `first` is the rank that failed first since the last reset. `why` the driver could not build another world.
    `refused`: the script has no elastic state. `everywhere` says how ranks failed on every host, or at the start, if
    that ended the run.
    """
    if refused and first is not None and first[2] != BROKEN:
        return first[2], {"name": "refused", "rank": first[0], "host": first[1], "exit_code": first[2]}
    if why or (first is not None and first[2] == BROKEN):
        # The last hosts failed at once, so any of them is the first.
        host = {"host": first[1]} if first is not None else {}
        return HOST_LOST, dict(host, name="over", why=why or "no host is left that runs its ranks")
    if first is None:
        return 0, {}
    if everywhere:
        return first[2], {"name": "over", "why": everywhere, "failed": True}
    return first[2], {}
