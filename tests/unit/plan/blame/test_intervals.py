"""What readings show: which GPUs are those of a rank, and whether the run is over."""

from __future__ import annotations

from typing import Any

import pytest

from kit.model.run import Place
from kit.model.watch import Gpu, Other, RankReading, Suspect, SuspectReading, Suspects
from kit.plan.blame.intervals import gpus_of, over, watched


@pytest.mark.parametrize(
    ("slots", "gpus", "ranks", "expected"),
    [
        (2, 2, 2, [(0,), (1,)]),
        (None, 2, 2, [(0,), (1,)]),
        (2, 1, 2, [(0,), (0,)]),
        (4, 2, 4, [(0,), (0,), (1,), (1,)]),
        (2, 4, 2, [(0, 1), (2, 3)]),
        (4, 4, 2, [(0, 1), (2, 3)]),
        (2, 0, 2, [(), ()]),
        (2, 2, 4, [(0, 1)] * 4),
    ],
    ids=["alike", "by default", "shared", "several share", "several each", "two slots each", "none", "more ranks"],
)
def test_slots_divide_the_gpus_of_their_host(
    slots: int | None, gpus: int, ranks: int, expected: list[tuple[int, ...]]
) -> None:
    held = tuple(range(slots or gpus))
    places = [Place(node=name, address="10.0.0.1", ranks=ranks, slots=held) for name in ("gpu1", "gpu2")]
    numbers = gpus_of(places, dict.fromkeys(("gpu1", "gpu2"), gpus), dict.fromkeys(("gpu1", "gpu2"), slots), {})
    assert numbers == dict(enumerate([*expected, *expected]))


@pytest.mark.parametrize("slots", [None, 1, 8])
@pytest.mark.parametrize(
    ("of", "gpus", "expected"),
    [(2, 8, [(0, 1, 2, 3), (4, 5, 6, 7)]), (4, 2, [(0,), (0,), (1,), (1,)])],
    ids=["several each", "shared"],
)
def test_the_run_knows_how_many_slots_its_host_had(
    slots: int | None, of: int, gpus: int, expected: list[tuple[int, ...]]
) -> None:
    """kit.yaml sets them, or the hosts file has changed since."""
    place = Place(node="gpu1", address="10.0.0.1", ranks=of, slots=tuple(range(of)), of=of)
    assert gpus_of([place], {"gpu1": gpus}, {"gpu1": slots}, {}) == dict(enumerate(expected))


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ({"gpu9": [0, 1], "gpu10": [2, 3, 4]}, [(0,), (1,), (0,), (1,), (2,)]),
        ({"gpu9": [4, 3], "gpu10": [0, 2, 1]}, [(0,), (1,), (2,), (0,), (1,)]),
        ({"gpu9": [3, 4], "gpu10": [0, 2]}, [(), (), (0,), (0,), (1,)]),
    ],
    ids=["mpirun", "torchrun", "one is gone"],
)
def test_torchrun_numbers_hosts_in_another_order(seen: dict[str, list[int]], expected: list[tuple[int, ...]]) -> None:
    """By their addresses, as text: 10.0.0.10 comes before 10.0.0.9."""
    places = [
        Place(node=f"gpu{n}", address=f"10.0.0.{n}", ranks=ranks, slots=tuple(range(ranks)), of=8)
        for n, ranks in ((9, 2), (10, 3))
    ]
    numbers = gpus_of(places, {"gpu9": 8, "gpu10": 8}, {}, seen)
    assert [numbers.get(rank, ()) for rank in range(5)] == expected


def rows(*counts: int) -> list[SuspectReading]:
    """Return readings with these numbers of ranks."""
    return [
        SuspectReading(at=float(at), suspects=Suspects(ranks=tuple(Suspect(rank=rank) for rank in range(count))))
        for at, count in enumerate(counts)
    ]


def test_a_run_is_over_if_it_had_ranks_and_has_none() -> None:
    assert over({"gpu1": rows(0, 1, 0), "gpu2": rows(0, 0), "gpu3": []})
    assert not over({"gpu1": rows(0, 1, 0), "gpu2": rows(0, 1)})
    # It has not begun.
    assert not over({"gpu1": rows(0, 0)})
    assert not over({})


def reading(second: int, **values: Any) -> SuspectReading:
    """Return one of several readings of a host: two ranks of the run, and one of another run."""
    fields = {
        "at": 100.0 + second,
        "heard": float(second),
        "seconds": 2.0,
        "cores": 8,
        "cpu": 60.0,
        "steal": 10.0,
        "iowait": 5.0,
        "ranks": (
            RankReading(run="other", rank=0, pid=8, allowed="0", throttled_s=99.0 * second),
            RankReading(run="r", rank=1, pid=6, allowed="7", throttled_s=77.0 * second),
            RankReading(run="r", rank=0, pid=7, allowed="0-3", throttled_s=0.5 * second),
        ),
        "others": (Other(pid=9, comm="cc1", cpu=150.0, core=3), Other(pid=10, comm="ld", cpu=7.0, core=None)),
        "suspects": Suspects(ranks=(Suspect(rank=0, cpu=1.5, delay=0.25, disk=1.2, asleep=1.1, workers=0.5),)),
        "gpus": (Gpu(index=0, name="H200", use=80.0, sm_clock=1980.0), Gpu(index=1, throttle=("gpu_idle",))),
    }
    return SuspectReading(**{**fields, **values})


PLACES = (Place(node="gpu1", address="10.0.0.1", ranks=1, slots=(0, 1), of=2),)


def test_percents_of_a_host_become_shares() -> None:
    seen = watched("r", PLACES, {"gpu1": [reading(0), reading(2)]}, {}, np=1)
    first, one = seen.hosts["gpu1"]
    assert (seen.run, seen.np, seen.addresses, seen.gpus) == ("r", 1, {"gpu1": "10.0.0.1"}, {0: (0, 1)})
    assert (first.seconds, first.cores, first.ranks[0].throttled) == (0.0, 8, 0.0)
    assert (one.seconds, one.cores, one.steal, one.iowait) == (2.0, 8, 0.1, 0.05)
    # The hypervisor's part is no work of the host.
    assert one.busy == pytest.approx(0.5)
    assert [(other.pid, other.name, other.cpu, other.core) for other in one.others] == [
        (9, "cc1", 1.5, 3),
        (10, "ld", pytest.approx(0.07), 0),
    ]
    assert one.gpus is not None
    assert [(gpu.index, gpu.name, gpu.use, gpu.sm_clock, gpu.throttle) for gpu in one.gpus] == [
        (0, "H200", 0.8, 1980.0, ()),
        (1, "", None, None, ("gpu_idle",)),
    ]
    (rank,) = one.ranks
    # Half a second of the cgroup's in each second, and no share above all of the time.
    assert (rank.rank, rank.pid, rank.throttled, rank.disk, rank.asleep) == (0, 7, 0.5, 1.0, 1.0)
    assert (rank.cpu, rank.delay, rank.workers, rank.cores) == (1.5, 0.25, 0.5, "0-3")


def test_what_a_host_does_not_say_is_nothing() -> None:
    bare = {"cpu": None, "steal": None, "iowait": None, "gpus": None, "ranks": (), "seconds": None, "others": ()}
    (_, one) = watched("r", PLACES, {"gpu1": [reading(0, **bare), reading(3, **bare)]}, {}).hosts["gpu1"]
    # Without the length of the interval, the host's clock counts.
    assert (one.seconds, one.steal, one.iowait, one.busy, one.gpus) == (3.0, 0.0, 0.0, 0.0, None)
    (rank,) = one.ranks
    assert (rank.pid, rank.throttled, rank.cores) == (0, 0.0, "")
    # Nor does the length decide what a cgroup took.
    no_length = watched("r", PLACES, {"gpu1": [reading(0), reading(2, seconds=None)]}, {}).hosts["gpu1"][1]
    assert (no_length.seconds, no_length.ranks[0].throttled) == (2.0, 0.0)
    # A clock that was set meanwhile.
    later = watched("r", PLACES, {"gpu1": [reading(0), reading(2, at=9000.0)]}, {}).hosts["gpu1"][1]
    assert later.seconds == 2.0
    # A rank that begins, or ends, has no earlier or later figures.
    for rows in ([reading(0, ranks=()), reading(2)], [reading(0), reading(2, ranks=())]):
        assert watched("r", PLACES, {"gpu1": rows}, {}).hosts["gpu1"][1].ranks[0].throttled == 0.0
    # A clock that was set back.
    (_, one) = watched("r", PLACES, {"gpu1": [reading(3, **bare), reading(0, **bare)]}, {}).hosts["gpu1"]
    assert one.seconds == pytest.approx(1e-3)


@pytest.mark.parametrize(
    ("before", "after", "throttled"), [(1.0, 2.0, 0.5), (2.0, 1.0, 0.0), (None, 1.0, 0.0), (1.0, None, 0.0)]
)
def test_the_time_that_a_cgroup_took_is_that_of_the_interval(
    before: float | None, after: float | None, throttled: float
) -> None:
    """A new container counts again from zero."""
    rows = [
        reading(at, ranks=(RankReading(run="r", rank=0, pid=7, throttled_s=count),))
        for at, count in ((0, before), (2, after))
    ]
    assert watched("r", PLACES, {"gpu1": rows}, {}).hosts["gpu1"][1].ranks[0].throttled == throttled


@pytest.mark.parametrize(("allowed", "cores"), [("0-3,8", "0-3,8"), ("9-1", ""), ("x", ""), ("", ""), (None, "")])
def test_cores_that_no_kernel_writes_are_left_out(allowed: str | None, cores: str) -> None:
    ranks = (RankReading(run="r", rank=0, pid=7, allowed=allowed),)
    rows = [reading(0, ranks=ranks), reading(2, ranks=ranks)]
    assert watched("r", PLACES, {"gpu1": rows}, {}).hosts["gpu1"][1].ranks[0].cores == cores


def test_a_host_with_one_reading_is_left_out() -> None:
    assert list(watched("r", PLACES, {"gpu1": [reading(0), reading(1)], "gpu2": [reading(0)]}, {}).hosts) == ["gpu1"]
    assert watched("r", PLACES, {}, {}).hosts == {}


def test_a_run_that_has_ended_has_the_gpus_of_its_last_ranks() -> None:
    places = (Place(node="gpu1", address="10.0.0.1", ranks=1, slots=(0,), of=2),)
    one = reading(0, suspects=Suspects(ranks=(Suspect(rank=5),)))
    ended = reading(2, suspects=Suspects(), gpus=None)
    assert watched("r", places, {"gpu1": [one, ended]}, {}).gpus == {5: (0,)}
