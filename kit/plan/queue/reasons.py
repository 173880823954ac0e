"""Says why a run waits, and about when it starts."""

from __future__ import annotations

from kit.model.queue import Reason, WaitingRun
from kit.model.text import one_line

_ENDS = {"ok": "has succeeded", "failed": "has failed", "any": "has ended"}


def why(run: WaitingRun) -> str:
    """Return why the run waits."""
    names = _named(run.reason)
    hosts = f"any of its {len(run.hosts)} hosts" if len(run.hosts) > 1 else "its host"
    texts = {
        "new": "the head has not looked at it yet",
        "held": f"held; release it: kit queue release {run.id}",
        "after": f"until {names} {_end(run)}",
        "never": f"never starts: {names} did not end that way; remove it: kit queue rm {run.id}",
        "hosts": f"does not fit on {hosts} that is up and not cordoned",
        "slots": f"for slots of {names}" if names else "for slots",
        "turn": f"behind {names}" if names else "for its turn",
    }
    return texts[run.reason.kind]


def _end(run: WaitingRun) -> str:
    """Return how those runs must end, if it is the same for all."""
    ends = {after.how for after in run.after if after.run in run.reason.runs}
    return _ENDS[ends.pop() if len(ends) == 1 else "any"]


def _named(reason: Reason) -> str:
    """Return the first runs by their ids. An id comes from the head's disk, which ranks of root can change."""
    shown = ", ".join(one_line(run) for run in reason.runs[:2])
    return f"{shown} and {len(reason.runs) - 2} more" if len(reason.runs) > 2 else shown
