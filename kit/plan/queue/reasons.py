"""Says why a run waits, and about when it starts."""

from __future__ import annotations

from kit.model.queue import Out, Reason, WaitingRun
from kit.model.text import fold, one_line

_ENDS = {"ok": "has succeeded", "failed": "has failed", "any": "has ended"}


def why(run: WaitingRun) -> str:
    """Return why the run waits."""
    if text := never(run):
        return f"{text}; remove it: kit queue rm {run.id}"
    names = _named(run.reason)
    texts = {
        "new": "the head has not looked at it yet",
        "held": f"held; release it: kit queue release {run.id}",
        "after": f"until {names} {_end(run)}",
        "hosts": f"does not fit on the hosts that take runs now{_out(run.reason)}",
        "gone": f"does not fit on the hosts of the cluster{_out(run.reason)}; remove it: kit queue rm {run.id}",
        "slots": f"for slots of {names}" if names else "for slots",
        "turn": f"behind {names}" if names else "for its turn",
        "unknown": "for a reason that this kit cannot read; if a newer kit deployed the cluster, update kit here",
        "error": f"it could not start, and kit tries again: {one_line(run.reason.text)}",
    }
    return texts[run.reason.kind]


def never(run: WaitingRun) -> str:
    """Return why the run can never start, or "" if it may start."""
    if run.reason.kind == "never":
        return f"never starts: {_named(run.reason)} did not end that way"
    return f"never starts, because {one_line(run.reason.text)}" if run.reason.kind == "broken" else ""


def _end(run: WaitingRun) -> str:
    """Return how those runs must end, if it is the same for all."""
    ends = {after.how for after in run.after if after.run in run.reason.runs}
    return _ENDS[ends.pop() if len(ends) == 1 else "any"]


def _named(reason: Reason) -> str:
    """Return the first runs by their ids. An id comes from the head's disk, which ranks of root can change."""
    shown = ", ".join(one_line(run) for run in reason.runs[:2])
    more = len(reason.runs[2:]) + reason.more
    return f"{shown} and {more} more" if more else shown


_OUT: dict[Out, str] = {"cordoned": "cordoned", "gone": "no longer in the cluster", "silent": "silent"}


def _out(reason: Reason) -> str:
    """Return which of its hosts take no run, and why."""
    texts = []
    for word, text in _OUT.items():
        names = [one_line(host) for host, why_not in reason.out if why_not == word]
        if names:
            texts.append(f"{fold(names, most=3)} {text}")
    return f" ({'; '.join(texts)})" if texts else ""
