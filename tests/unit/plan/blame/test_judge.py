"""Who is named, and with which words: a late rank, a slow link, or a host alone."""

from __future__ import annotations

import random

import pytest

from kit.model.blame import HostInterval, RankShares, Readiness, Watched
from kit.model.values import replace
from kit.plan.blame import judge as decision
from kit.plan.blame.judge import judge
from kit.plan.blame.lateness import Late
from kit.plan.blame.links import SlowLink
from kit.plan.blame.samples import Sample
from tests.unit.plan.blame.world import SETUP, Fault, World
from tests.unit.plan.blame.world import watched as played

LATE = Late(host="gpu2", ranks=(1,), share=0.2, wins=9, samples=10)
LINK = SlowLink(host="gpu3", direction="sends", rate=50e6, usual=500e6, share=0.3, wins=8, samples=10)


def run(fault: Fault | None = None, *, looks: int = 10) -> Watched:
    return played(World(random.Random(1), SETUP, fault, looks + 4), looks=looks)  # noqa: S311  (the same run again)


@pytest.mark.parametrize(
    ("late", "link", "host"),
    [
        (0.2, 0.3, "gpu3"),
        (0.3, 0.2, "gpu2"),
        (0.2, None, "gpu2"),
        (None, 0.3, "gpu3"),
        (None, None, None),
        # A rank is nearer than a link to what a person can mend.
        (0.2, 0.2, "gpu2"),
    ],
)
def test_of_a_late_rank_and_a_slow_link_the_one_that_costs_more_is_named(
    monkeypatch: pytest.MonkeyPatch, late: float | None, link: float | None, host: str | None
) -> None:
    monkeypatch.setattr(decision, "late", lambda *_: late and replace(LATE, share=late))
    monkeypatch.setattr(decision, "slow_link", lambda *_: link and replace(LINK, share=link))
    culprit = judge(run()).culprit
    assert (culprit.host if culprit else None) == host


@pytest.mark.parametrize(
    ("hosts", "rates", "words"),
    [
        (3, (50e6, 500e6), "it sends 400 Mbit/s, and the other links 4.00 Gbit/s"),
        (2, (50e6, 500e6), "it sends 400 Mbit/s, and the other direction 4.00 Gbit/s"),
        (3, (124e6, 125e6), "it sends 992 Mbit/s, and the other links 1.00 Gbit/s"),
    ],
)
def test_a_slow_link_has_its_rates_in_its_evidence(
    monkeypatch: pytest.MonkeyPatch, hosts: int, rates: tuple[float, float], words: str
) -> None:
    link = replace(LINK, host="gpu2", rate=rates[0], usual=rates[1])
    monkeypatch.setattr(decision, "late", lambda *_: None)
    monkeypatch.setattr(decision, "slow_link", lambda *_: link)
    whole = run()
    some = {name: row for name, row in whole.hosts.items() if name <= f"gpu{hosts}"}
    culprit = judge(replace(whole, hosts=some)).culprit
    assert culprit is not None
    assert culprit.evidence == (f"slowest in 8 of 10 samples: while bytes are under way, {words}",)
    assert (culprit.host, culprit.ranks, culprit.reason, culprit.share) == ("gpu2", (1,), "link", 0.3)


def test_a_late_rank_has_its_waits_in_its_evidence() -> None:
    result = judge(run(Fault(kind="busy-core", host=1, rank=1, strength=2)))
    assert result.culprit is not None
    lost, waits = result.culprit.evidence[:2]
    assert lost == f"last in 10 of 10 samples: the other ranks lose {result.culprit.share:.0%} of their time"
    own, others = (row.wait for row in sorted(result.ranks, key=lambda row: row.wait or 0.0)[:2])
    assert own is not None
    assert others is not None
    assert own < others
    assert waits.startswith(f"a tensor waits {own * 1e3:.1f} ms there, and ")
    # The mean of the other ranks, without its own.
    means = [row.wait for row in result.ranks if row.rank != 1 and row.wait is not None]
    assert waits.endswith(f"and {sum(means) / len(means) * 1e3:.0f} ms on the other ranks")


@pytest.mark.parametrize(("looks", "verdict"), [(5, "too-few-steps"), (6, "blamed")])
def test_six_samples_of_three_hosts_are_enough(looks: int, verdict: str) -> None:
    result = judge(run(Fault(kind="busy-core", host=1, rank=1, strength=2), looks=looks))
    assert result.verdict == verdict
    few = "the ranks ended steps together in 5 of the samples of 5 s, and kit needs 6"
    assert result.why == (few if looks == 5 else "")


def test_the_step_and_the_rows_are_those_of_the_watched_time() -> None:
    result = judge(run())
    assert result.steps is not None
    assert result.step == pytest.approx(1 / result.steps)
    assert result.seconds == pytest.approx(10, abs=0.5)
    assert [(row.rank, row.host) for row in result.ranks] == [(0, "gpu1"), (1, "gpu2"), (2, "gpu3")]
    assert all(row.wait is not None and row.operation is not None for row in result.ranks)


def deaf(*ranks: RankShares, np: int) -> Watched:
    """Return a run whose ranks do not count: one on each host."""
    hosts = {
        f"gpu{number}": tuple(HostInterval(seconds=seconds, cores=2, ranks=(rank,)) for seconds in (0.0, 1.0, 1.0, 1.0))
        for number, rank in enumerate(ranks, 1)
    }
    return Watched(run="r", hosts=hosts, addresses={}, gpus={}, np=np)


@pytest.mark.parametrize(
    ("count", "np", "verdict", "why"),
    [
        (1, 8, "too-few-steps", "kit sees one of the run's 8 ranks, and must compare at least two"),
        (1, 2, "too-few-steps", "kit sees one of the run's 2 ranks, and must compare at least two"),
        (1, 1, "nobody", "the run has one rank, which waits for nobody"),
        (1, 0, "nobody", "the run has one rank, which waits for nobody"),
        (0, 8, "nobody", "no rank of the run was seen on its hosts"),
        (2, 2, "hosts-only", "the ranks do not count with kit's Horovod, so kit cannot see which one is late, and "
         "compared hosts alone"),
        (2, 8, "hosts-only", "the ranks do not count with kit's Horovod, so kit cannot see which one is late, and "
         "compared hosts alone"),
    ],
)  # fmt: skip
def test_without_ranks_to_compare_nobody_is_blamed(count: int, np: int, verdict: str, why: str) -> None:
    result = judge(deaf(*(RankShares(rank=rank, pid=1, cpu=1.0) for rank in range(count)), np=np))
    assert (result.verdict, result.culprit, result.why) == (verdict, None, why)
    assert [row.rank for row in result.ranks] == list(range(count))


FINE = RankShares(rank=0, pid=1, cpu=1.0)
UNSEEN = "the ranks do not count with kit's Horovod, so kit cannot see which one is late, and compared hosts alone"


@pytest.mark.parametrize(("delay", "share"), [(0.25, 0.2), (0.12, 0.107), (0.1, None)])
def test_a_host_alone_is_named_only_by_what_the_others_do_not_have(delay: float, share: float | None) -> None:
    late = RankShares(rank=1, pid=1, cpu=1.0, delay=delay)
    result = judge(deaf(FINE, late, replace(FINE, rank=2), np=3))
    assert (result.culprit is not None) is (share is not None)
    if result.culprit is not None:
        assert (result.culprit.host, result.culprit.ranks, result.culprit.reason) == ("gpu2", (1,), "busy-core")
        assert result.culprit.share == pytest.approx(share, abs=0.001)
        assert result.notes == (UNSEEN,)
    # A whole run that is as slow has no host to name.
    assert judge(deaf(*(replace(late, rank=rank) for rank in range(3)), np=3)).culprit is None


@pytest.mark.parametrize("disk", [0.9, 0.0])
def test_a_host_alone_is_not_named_by_what_may_be_waiting_for_others(disk: float) -> None:
    sleeps = RankShares(rank=1, pid=1, cpu=0.1, asleep=0.9, disk=disk)
    assert judge(deaf(FINE, sleeps, np=2)).verdict == "hosts-only"


def test_of_two_slow_hosts_the_slower_one_is_named() -> None:
    ranks = (replace(FINE, delay=0.3), *(replace(FINE, rank=rank, delay=0.0) for rank in (1, 2)))
    culprit = judge(deaf(*ranks, replace(FINE, rank=3, delay=1.0), replace(FINE, rank=4), np=5)).culprit
    assert culprit is not None
    assert (culprit.host, culprit.ranks) == ("gpu4", (3,))


def test_ranks_of_one_host_have_no_other_host_to_compare_with() -> None:
    ranks = (FINE, replace(FINE, rank=1, delay=1.0))
    row = tuple(HostInterval(seconds=seconds, cores=2, ranks=ranks) for seconds in (0.0, 1.0, 1.0, 1.0))
    assert judge(Watched(run="r", hosts={"gpu1": row}, addresses={}, gpus={}, np=2)).verdict == "hosts-only"


@pytest.mark.parametrize("part", [0, 1, 2])
@pytest.mark.parametrize("other", [False, True], ids=["nobody", "another host"])
def test_a_host_that_was_not_slow_in_each_third_of_the_time_is_not_named(part: int, other: bool) -> None:
    late = RankShares(rank=1, pid=1, cpu=1.0, delay=1.0)
    whole = deaf(FINE, late, replace(FINE, rank=2), np=3)
    rows = {host: [row[0], *row[1:] * 2] for host, row in whole.hosts.items()}
    for number in (1 + 2 * part, 2 + 2 * part):
        rows["gpu2"][number] = replace(rows["gpu2"][number], ranks=(replace(late, delay=0.0),))
        if other:
            rows["gpu3"][number] = replace(rows["gpu3"][number], ranks=(replace(late, rank=2),))
    hosts = {host: tuple(row) for host, row in rows.items()}
    assert judge(replace(whole, hosts=hosts)).verdict == "hosts-only"


def test_each_rank_has_its_own_row_in_their_order() -> None:
    """The first look has no length, and says nothing of what a rank did."""
    first = HostInterval(seconds=0.0, cores=2, ranks=(replace(FINE, rank=3, cpu=9.0), replace(FINE, rank=1, cpu=9.0)))
    one = replace(
        first, seconds=1.0, ranks=(replace(FINE, rank=3, cpu=0.25, delay=0.5), replace(FINE, rank=1, cpu=2.0))
    )
    other = deaf(replace(FINE, rank=2), np=3).hosts["gpu1"]
    watched = Watched(run="r", hosts={"gpu1": (first, one, one), "gpu2": other[:3]}, addresses={}, gpus={}, np=3)
    assert [(row.rank, row.host, row.cpu, row.delay) for row in judge(watched).ranks] == [
        (1, "gpu1", 2.0, 0.0),
        (2, "gpu2", 1.0, 0.0),
        (3, "gpu1", 0.25, 0.5),
    ]


def test_of_many_ranks_that_hang_four_are_named() -> None:
    counted = Readiness(tensors=5, wait_us=0, op_us=0, bytes=0)
    ranks = [replace(FINE, rank=rank, readiness=replace(counted, pending=int(rank == 7))) for rank in range(8)]
    why = judge(deaf(*reversed(ranks), np=8)).why
    names = ", ".join(f"rank {rank} on gpu{8 - rank}" for rank in range(4))
    assert why.endswith(f". The other ranks wait for {names} and 3 more")


@pytest.mark.parametrize(
    ("tail", "wait", "steps", "share"),
    [(0.3, 0.1, 2.0, 0.3), (0.1, 0.1, 2.0, 0.2), (0.1, 9.0, None, 0.1), (0.1, 9.0, 2.0, 1.0)],
)
def test_a_rank_waits_for_others_after_the_last_tensor_or_for_the_mean_one(
    tail: float, wait: float, steps: float | None, share: float
) -> None:
    one = Sample(seconds=1.0, wait={0: wait}, tail={0: tail}, operation={0: 0.0}, steps=steps)
    assert decision._waiting([one]) == {0: pytest.approx(share)}
