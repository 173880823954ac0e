"""Why a rank is late, where the figures of other ranks are odd."""

from __future__ import annotations

import pytest

from kit.model.blame import Gpu, HostInterval, Other, RankShares, Reason, Watched
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


def two_hosts(
    late: RankShares,
    *,
    others: tuple[Other, ...] = (),
    gpus: tuple[Gpu, ...] = (),
    busy: float = 0.0,
    steal: float = 0.0,
) -> Watched:
    """Return rank 0 on gpu1 that computes half of the time and else waits, and this rank 1 on gpu2."""
    fine = RankShares(rank=0, pid=1, cpu=0.5, asleep=0.5, cores="0-3")
    first = HostInterval(seconds=0.0, cores=8, ranks=(late,), others=(Other(pid=1, name="before", cpu=8.0, core=4),))
    own = HostInterval(seconds=10.0, cores=8, ranks=(late,), others=others, gpus=gpus or None, busy=busy, steal=steal)
    other = HostInterval(seconds=10.0, cores=8, ranks=(fine,), busy=0.5, gpus=FULL if gpus else None)
    hosts: dict[str, tuple[HostInterval, ...]] = {
        "gpu1": (replace(first, ranks=(fine,)), other),
        "gpu2": (first, own),
    }
    return Watched(run="r", hosts=hosts, addresses={}, gpus={0: (0,), 1: (0,)} if gpus else {})


FULL = (Gpu(index=0, name=H100, use=0.5, sm_clock=1980.0),)


def cause_of(watched: Watched, share: float = 0.4, waited: float = 0.0) -> Cause:
    late = Late(host="gpu2", ranks=(1,), share=share, wins=10, samples=10)
    return cause(watched, late, {0: 0.5, 1: waited})


WORKS = RankShares(rank=1, pid=1, cpu=1.0, cores="4-7")


@pytest.mark.parametrize(
    ("late", "steal", "reason", "share"),
    [
        (WORKS, 0.0, "more-work", 0.5),
        (replace(WORKS, cpu=0.5, asleep=0.5), 0.0, "loader", 0.5),
        (replace(WORKS, cpu=0.5, asleep=0.5, disk=0.4), 0.0, "disk", 0.4),
        (replace(WORKS, cpu=0.6, delay=0.4), 0.0, "busy-core", 0.4),
        # Ready without a core, because its cgroup takes that: half of it, and nearly all of it.
        (replace(WORKS, cpu=0.6, delay=0.4, throttled=0.2), 0.0, "cgroup-throttle", 0.2),
        (replace(WORKS, cpu=0.6, delay=0.4, throttled=0.39), 0.0, "cgroup-throttle", 0.39),
        (replace(WORKS, cpu=0.7, delay=0.14, throttled=0.05), 0.0, "busy-core", 0.09 / 0.79),
        # Several threads are stopped at once.
        (replace(WORKS, cpu=0.6, throttled=3.0), 0.0, "cgroup-throttle", 1.0),
        # Of the time of the cores that are not idle.
        (WORKS, 0.1, "steal", 0.25),
        # Of several, the one that explains most.
        (replace(WORKS, cpu=0.5, asleep=0.5, disk=0.4), 0.1, "disk", 0.4),
        (replace(WORKS, cpu=0.5, asleep=0.5, disk=0.1), 0.0, "loader", 0.4),
        # What explains less than a quarter of the lateness is not its cause.
        (replace(WORKS, disk=0.11), 0.0, "disk", 0.11),
        (replace(WORKS, disk=0.09), 0.0, "more-work", 0.5),
        # The rank is late without anything that its host shows.
        (replace(WORKS, cpu=0.5, asleep=0.46, disk=0.02), 0.0, "unknown", 0.0),
    ],
)
def test_the_cause_is_what_the_late_rank_has_more_of(
    late: RankShares, steal: float, reason: Reason, share: float
) -> None:
    watched = two_hosts(late, busy=0.3, steal=steal)
    why = cause_of(watched, waited=0.44 if reason == "unknown" else 0.0)
    assert (why.reason, why.share) == (reason, pytest.approx(share))


def test_what_explains_less_than_3_percent_is_no_cause_of_a_small_lateness() -> None:
    for disk, reason in ((0.029, "more-work"), (0.031, "disk")):
        assert cause_of(two_hosts(replace(WORKS, disk=disk)), share=0.06).reason == reason


def test_the_processes_on_the_cores_of_the_late_rank_are_named() -> None:
    late = replace(WORKS, cpu=0.6, delay=0.4)
    others = (
        Other(pid=10, name="small", cpu=0.04, core=4),
        Other(pid=11, name="second", cpu=0.5, core=5),
        Other(pid=12, name="first", cpu=0.9, core=4),
        # The cores of no rank, and those of a rank that is not late.
        Other(pid=13, name="elsewhere", cpu=2.0, core=3),
        Other(pid=14, name="third", cpu=0.07, core=7),
        Other(pid=15, name="fourth", cpu=0.06, core=7),
    )
    watched = two_hosts(late, others=others)
    row = watched.hosts["gpu2"]
    beside = replace(row[1], ranks=(*row[1].ranks, RankShares(rank=2, pid=2, cpu=0.5, asleep=0.5, cores="0-3")))
    why = cause_of(replace(watched, hosts={**watched.hosts, "gpu2": (row[0], beside)}))
    assert why.evidence[1:] == (
        "first (pid 12) used 0.90 cores, last core 4",
        "second (pid 11) used 0.50 cores, last core 5",
        "third (pid 14) used 0.07 cores, last core 7",
    )
    assert why.fix == "end or move that process: kit ssh gpu2 -- ps -o pid,user,lstart,args -p 12"
    # Without the cores of the rank, any process may be the one.
    why = cause_of(two_hosts(replace(late, cores=""), others=others))
    assert why.evidence[1].startswith("elsewhere (pid 13) used 2.00 cores")
    # Its cores without another process.
    why = cause_of(two_hosts(late, others=others[:1]))
    assert why.evidence[1:] == ()
    assert why.fix.startswith("see what else runs there: kit ssh gpu2 -- top")


def test_a_process_counts_for_the_whole_time() -> None:
    """It used a core in one of two intervals."""
    watched = two_hosts(replace(WORKS, cpu=0.6, delay=0.4), others=(Other(pid=12, name="cc1", cpu=0.9, core=4),))
    row = watched.hosts["gpu2"]
    longer = replace(watched, hosts={**watched.hosts, "gpu2": (*row, replace(row[-1], others=()))})
    assert cause_of(longer).evidence[1] == "cc1 (pid 12) used 0.45 cores, last core 4"


@pytest.mark.parametrize(
    ("gpu", "throttled"),
    [
        (replace(FULL[0], sm_clock=1800.0), True),
        (replace(FULL[0], sm_clock=1860.0), False),
        # A GPU without work lowers its clock, and some drivers do not report that.
        (replace(FULL[0], sm_clock=345.0, throttle=("gpu_idle",)), False),
        (replace(FULL[0], sm_clock=None), False),
        (replace(FULL[0], throttle=("sync_boost",)), False),
        (replace(FULL[0], throttle=("hw_thermal_slowdown",)), True),
        # The GPU of another rank.
        (replace(FULL[0], index=1, sm_clock=900.0), False),
    ],
)
def test_a_gpu_is_throttled_if_its_clock_is_low_or_the_driver_gives_a_reason(gpu: Gpu, throttled: bool) -> None:
    assert (cause_of(two_hosts(WORKS, gpus=(gpu,))).reason == "gpu-throttle") is throttled


def test_what_throttles_a_gpu_for_a_moment_is_no_cause() -> None:
    watched = two_hosts(WORKS, gpus=(replace(FULL[0], throttle=("hw_thermal_slowdown",)),))
    row = watched.hosts["gpu2"]
    longer = replace(watched, hosts={**watched.hosts, "gpu2": (*row, *[replace(row[-1], gpus=FULL)] * 2)})
    assert cause_of(longer).reason == "more-work"


@pytest.mark.parametrize(
    ("workers", "evidence"), [(0.3, ("its loader's processes used 0.30 cores meanwhile",)), (0.04, ())]
)
def test_a_loader_with_processes_has_their_use_as_evidence(workers: float, evidence: tuple[str, ...]) -> None:
    why = cause_of(two_hosts(replace(WORKS, cpu=0.5, asleep=0.5, workers=workers)))
    assert (why.reason, why.evidence[1:]) == ("loader", evidence)
