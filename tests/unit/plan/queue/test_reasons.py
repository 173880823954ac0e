"""Why a run waits, in words."""

from __future__ import annotations

import pytest

from kit.model.queue import After, Reason, WaitingRun
from kit.plan.queue.reasons import why

A, B, C = (f"20261121-101500-000{n}" for n in range(3))
AFTER = (After(run=A), After(run=B, how="failed"))


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (Reason(), "the head has not looked at it yet"),
        (Reason(kind="held"), "held; release it: kit queue release me"),
        (Reason(kind="after", runs=(A,)), f"until {A} has succeeded"),
        (Reason(kind="after", runs=(B,)), f"until {B} has failed"),
        (Reason(kind="after", runs=(A, B)), f"until {A}, {B} has ended"),
        (Reason(kind="never", runs=(A,)), f"never starts: {A} did not end that way; remove it: kit queue rm me"),
        (Reason(kind="hosts"), "does not fit on any of its 2 hosts that is up and not cordoned"),
        (Reason(kind="slots", runs=(A, B, C)), f"for slots of {A}, {B} and 1 more"),
        (Reason(kind="slots"), "for slots"),
        (Reason(kind="turn", runs=(A,)), f"behind {A}"),
        (Reason(kind="slots", runs=("\x1b[31m",)), "for slots of \\x1b[31m"),
    ],
)
def test_why(reason: Reason, text: str) -> None:
    run = WaitingRun(id="me", np=1, counts=(1,), hosts=("gpu1", "gpu2"), after=AFTER, reason=reason)
    assert why(run) == text
