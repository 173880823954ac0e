"""Why a rank is late, where the figures of other ranks are odd."""

from __future__ import annotations

import pytest

from kit.model.blame import Gpu, HostInterval, RankShares, Reason, Watched
from kit.model.values import replace
from kit.plan.blame.lateness import Late
from kit.plan.blame.reasons import Cause, cause, core_numbers


@pytest.mark.parametrize(
    ("late", "reason"),
    [
        (RankShares(rank=1, pid=1, cpu=0.3, delay=0.6, asleep=0.1), "busy-core"),
        (RankShares(rank=1, pid=1, cpu=0.05, asleep=0.95), "loader"),
        (RankShares(rank=1, pid=1, cpu=0.05, disk=0.85, asleep=0.95), "disk"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_gpus_at_work_while_ranks_wait_make_nobody_idle(late: RankShares, reason: Reason) -> None:
    other = RankShares(rank=0, pid=1, cpu=0.05, asleep=0.9)
    hosts: dict[str, tuple[HostInterval, ...]] = {
        "gpu1": (HostInterval(seconds=10.0, cores=2, ranks=(other,), gpus=(Gpu(index=0, use=0.7),)),),
        "gpu2": (HostInterval(seconds=10.0, cores=2, ranks=(late,), gpus=(Gpu(index=0, use=0.1),)),),
    }
    watched = Watched(run="r", hosts=hosts, addresses={}, gpus={0: (0,), 1: (0,)})
    why = cause(watched, Late(host="gpu2", ranks=(1,), share=0.8, wins=10, samples=10), {0: 0.85, 1: 0.0})
    assert why.reason == reason
    assert why.share <= 1.0


A100, H100 = "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3"


def two_models(*late: Gpu) -> Watched:
    """Return two healthy hosts with an H100, and then hosts with these GPUs. The rank of the last one sleeps longer."""
    gpus = (*(Gpu(index=0, name=H100, use=0.5, sm_clock=1980.0, throttle=("sw_power_cap",)) for _ in range(2)), *late)
    last = len(gpus) - 1
    hosts: dict[str, tuple[HostInterval, ...]] = {}
    for rank, gpu in enumerate(gpus):
        shares = RankShares(rank=rank, pid=1, cpu=0.05, asleep=0.95)
        hosts[f"gpu{rank}"] = (HostInterval(seconds=10.0, cores=2, ranks=(shares,), gpus=(gpu,)),)
    return Watched(run="r", hosts=hosts, addresses={}, gpus=dict.fromkeys(range(last + 1), (0,)))


def last_of(watched: Watched) -> Cause:
    last = len(watched.hosts) - 1
    late = Late(host=f"gpu{last}", ranks=(last,), share=0.5, wins=10, samples=10)
    return cause(watched, late, {rank: 0.45 if rank < last else 0.0 for rank in range(last + 1)})


def test_a_clock_is_compared_only_with_gpus_of_the_same_model() -> None:
    # 1410 MHz is the highest clock of an A100.
    full = Gpu(index=0, name=A100, use=0.5, sm_clock=1410.0)
    for late in ((full,), (full, full)):
        assert last_of(two_models(*late)).reason == "loader"
    slow = last_of(two_models(full, replace(full, sm_clock=1005.0)))
    assert slow.reason == "gpu-throttle"
    assert slow.evidence == ("its SM clock is 1005 MHz, and 1410 MHz on the other GPUs of its model",)


def test_a_reason_to_throttle_is_usual_if_other_gpus_of_the_model_give_it() -> None:
    full = Gpu(index=0, name=A100, use=0.5, sm_clock=1410.0)
    capped = replace(full, throttle=("sw_power_cap",))
    assert last_of(two_models(full, full, full, capped)).reason == "gpu-throttle"
    assert last_of(two_models(capped, capped)).reason == "loader"
    # Alone of its model, it is compared with all: most of them give this reason.
    assert last_of(two_models(capped)).reason == "loader"


def test_the_cores_of_a_rank_on_a_large_host_are_read() -> None:
    assert core_numbers("0-3,8") == {0, 1, 2, 3, 8}
    assert core_numbers(",".join(map(str, range(0, 208, 2)))) == set(range(0, 208, 2))


@pytest.mark.parametrize("text", ["x", "-1", "3-1", "5,4", "0-9,0-9", "70000", "0-70000"])
def test_what_is_no_list_of_cores_is_refused(text: str) -> None:
    """A host wrote it, and each entry could be as large as the whole."""
    with pytest.raises(ValueError, match=r"core|literal"):
        core_numbers(text)
