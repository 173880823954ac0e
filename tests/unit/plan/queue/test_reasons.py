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
        (
            Reason(kind="never", runs=(A, B, C), more=9),
            f"never starts: {A}, {B} and 10 more did not end that way; remove it: kit queue rm me",
        ),
        (Reason(kind="hosts"), "does not fit on the hosts that take runs now"),
        (
            Reason(kind="hosts", out=(("gpu1", "cordoned"), ("gpu2", "silent"), ("gpu3", "cordoned"))),
            "does not fit on the hosts that take runs now (gpu[1,3] cordoned; gpu2 silent)",
        ),
        (
            Reason(kind="gone", out=tuple((f"gpu{n}", "gone") for n in range(1, 6))),
            "does not fit on the hosts of the cluster (gpu[1-5] no longer in the cluster); remove it: kit queue rm me",
        ),
        (Reason(kind="error", text="No space\nleft"), "it could not start, and kit tries again: No space\\nleft"),
        (
            Reason(kind="broken", text="KeyError: 'env'"),
            "never starts, because KeyError: 'env'; remove it: kit queue rm me",
        ),
        (Reason(kind="slots", runs=(A, B, C)), f"for slots of {A}, {B} and 1 more"),
        (Reason(kind="slots"), "for slots"),
        (
            Reason(kind="unknown"),
            "for a reason that this kit cannot read; if a newer kit deployed the cluster, update kit here",
        ),
        (Reason(kind="turn", runs=(A,)), f"behind {A}"),
        (Reason(kind="slots", runs=("\x1b[31m",)), "for slots of \\x1b[31m"),
    ],
)
def test_why(reason: Reason, text: str) -> None:
    run = WaitingRun(id="me", np=1, counts=(1,), hosts=("gpu1", "gpu2"), after=AFTER, reason=reason)
    assert why(run) == text
