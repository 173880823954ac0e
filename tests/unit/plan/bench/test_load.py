"""What a look at the hosts says: whether a sample was disturbed."""

from __future__ import annotations

from typing import Any

import pytest

from kit.errors import StepError
from kit.plan.bench.load import Look, disturbed, parse

RUN, OLD = "20261121-101500-3fa2", "20261121-101400-3fa2"


def ticks(user: int, idle: int, steal: int = 0) -> str:
    return f"cpu {user} 0 0 {idle} 0 0 0 {steal} 0 0"


def disturbance(before: str, after: str, *runs: str, cores: int = 4) -> str:
    return "\n".join([f"cores {cores}", f"before {before}", f"after {after}", *runs, "end"])


def test_a_look_counts_cores_that_are_busy() -> None:
    look = parse(
        disturbance(ticks(100, 1000, 7), ticks(150, 1150, 7), f"living {RUN}", f"over {OLD}", "living x", "over @@ x")
    )
    assert (look.cores, look.busy, look.stolen, look.ticks) == (4, 1.0, 7, 1307)
    assert (look.living, look.over) == ({RUN}, {OLD})
    # Waiting for a disk is not work, and what the hypervisor took is not this host's.
    waits = parse(disturbance("cpu 0 0 0 0 0 0 0 0", "cpu 0 0 0 50 100 0 0 50"))
    assert waits.busy == 0.0


@pytest.mark.parametrize(
    "text", ["", "cores 4\nbefore cpu 1\nafter cpu 2\nend", disturbance(ticks(0, 1), ticks(1, 1))[:-3]]
)
def test_a_look_that_is_not_whole(text: str) -> None:
    with pytest.raises(StepError, match="cannot be read"):
        parse(text)


def look(busy: float = 0.0, stolen: int = 0, ticks: int = 1000, **runs: Any) -> Look:
    return Look(cores=4, busy=busy, stolen=stolen, ticks=ticks, **{n: frozenset(v) for n, v in runs.items()})


def test_quiet_hosts_disturb_nothing() -> None:
    before = {"gpu1": look(over=["old"]), "gpu2": look(0.5)}
    after = {"gpu1": look(ticks=2000, over=["old", "own"]), "gpu2": look(0.4, stolen=19, ticks=2000)}
    assert disturbed(before, after, hosts=("gpu1", "gpu2"), own=("own",)) is None
    # Of the hosts that had no rank, a load does not matter.
    assert disturbed({"gpu3": look(4.0)}, {}, hosts=("gpu1",), own=()) is None


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ({"gpu1": look(1.5)}, {}, "1.5 of 4 cores of gpu1 were busy with something else before it"),
        ({"gpu1": look(1.5), "gpu2": look(2.5)}, {}, "2.5 of 4 cores of gpu2 (and of 1 more host) were busy"),
        ({}, {"gpu2": look(4.0)}, "4.0 of 4 cores of gpu2 were busy with something else after it"),
        ({"gpu1": look()}, {"gpu1": look(stolen=50, ticks=2000)}, "the hypervisor gave 5% of the CPU time of gpu1"),
        ({"gpu1": look(living=["r9"])}, {}, "another run was on the cluster: r9"),
        ({"gpu1": look()}, {"gpu1": look(living=["r8"])}, "another run was on the cluster: r8"),
        ({"gpu1": look(over=["old"])}, {"gpu1": look(over=["old", "own", "new"])}, "on the cluster: new"),
    ],
)
def test_what_disturbs(before: dict[str, Look], after: dict[str, Look], why: str) -> None:
    assert why in (disturbed(before, after, hosts=("gpu1", "gpu2"), own=("own",)) or "")
