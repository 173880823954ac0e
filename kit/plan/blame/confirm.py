"""Decides what two looks at a run say together, if the first one names somebody who costs little. Pure.

What costs little may be a disturbance that is over in some seconds: another program on the same machine, for example. A
fault is still there when kit looks again.
"""

from __future__ import annotations

from kit.model.blame import BlameResult
from kit.model.values import replace

# Who costs the others less than this share of their time is named only if a second look names the same host.
DOUBTFUL = 0.15


def doubtful(result: BlameResult) -> bool:
    """Return whether kit must look again before it names anybody."""
    return result.culprit is not None and result.culprit.share < DOUBTFUL


def confirmed(first: BlameResult, second: BlameResult, both: BlameResult) -> BlameResult:
    """Return what holds of two looks, one after the other. `both` is the judgement of their whole time."""
    assert first.culprit is not None  # noqa: S101  (the caller saw it)
    host = first.culprit.host
    if second.culprit is not None and second.culprit.host == host:
        return both if both.culprit is not None and both.culprit.host == host else second
    if second.verdict == "too-few-steps":
        return unconfirmed(first)
    why = (
        f"{host} cost the others {first.culprit.share:.0%} of their time for {first.seconds:.0f} s, and not in the "
        f"{second.seconds:.0f} s after that"
    )
    return replace(both, verdict="nobody", why=why, culprit=None)


def unconfirmed(first: BlameResult) -> BlameResult:
    """Return what holds of a look that is the only one, because the run ended before the next one."""
    assert first.culprit is not None  # noqa: S101  (the caller saw it)
    why = (
        f"{first.culprit.host} cost the others {first.culprit.share:.0%} of their time for {first.seconds:.0f} s, "
        "which may have been a disturbance, and there were too few steps after that to confirm it"
    )
    return replace(first, verdict="too-few-steps", why=why, culprit=None)
