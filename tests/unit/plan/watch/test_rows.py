"""The rows of kit top from readings."""

from __future__ import annotations

import pytest

from kit.errors import StepError
from kit.model.values import replace
from kit.model.watch import Gpu, Nic, Room, Seen
from kit.plan.watch.rows import KEPT, GpuRow, History, busiest, held, host_row, mean_use, tables, trouble
from tests.fakes.readings import LAST, RUN, cluster, gpu, rank, reading


def test_hosts_gpus_and_ranks() -> None:
    seen, history = cluster()
    rows = tables(seen, history, run=RUN, last=LAST)
    assert [row.name for row in rows.hosts] == ["head", "gpu1", "gpu2", "gpu3", "gpu4"]
    assert [row.place for row in rows.gpus] == ["gpu1:0", "gpu1:1", "gpu2:0", "gpu2:1"]
    assert [(row.reading.rank, row.host) for row in rows.ranks] == [(0, "gpu1"), (1, "gpu1"), (2, "gpu2"), (3, "gpu2")]
    assert rows.ranks[0].last == LAST[0]
    first = rows.hosts[1]
    assert (first.nic, first.rx, round(first.link or 0), first.disk, first.busy) == ("eth0", 1.1e9, 38, 45.0, 31.0)
    assert first.cpus == (5.0, 20.0, 50.0, 80.0, 100.0, 64.0, 64.0)
    assert rows.hosts[2].other == "stress-ng 100%"


def test_ranks_of_another_run_are_left_out_only_if_one_is_wanted() -> None:
    one = Seen(host="gpu1", number=1, reading=reading(ranks=(rank(0), replace(rank(1), run="other"))))
    assert len(tables([one], History()).ranks) == 2
    assert [row.reading.run for row in tables([one], History(), run="other").ranks] == ["other"]


def test_a_number_of_two_ranks_has_no_line() -> None:
    """A host left an elastic run and came back: its new rank started with a number that another one had before."""
    seen = [
        Seen(host="gpu1", number=2, reading=reading(ranks=(rank(0), rank(1)))),
        Seen(host="gpu2", number=2, reading=reading(ranks=(rank(1), replace(rank(0), run="other")))),
    ]
    assert [row.last for row in tables(seen, History(), run=RUN, last=LAST).ranks] == [LAST[0], "", ""]
    gone = [seen[0], replace(seen[1], error=StepError("its readings ended"))]
    assert [row.last for row in tables(gone, History(), run=RUN, last=LAST).ranks] == [LAST[0], LAST[1]]


def test_a_host_without_figures_says_why() -> None:
    seen, history = cluster()
    rows = tables(seen, history)
    assert rows.hosts[3].trouble.startswith("no SSH connection")
    assert rows.hosts[4].trouble == "no reading for 21 s"
    assert trouble(Seen(host="gpu1")) == "waiting for its first reading"
    # A second passes between two readings, and five more are no fault.
    late = Seen(host="gpu1", reading=reading(), age=6.0)
    assert (trouble(late), trouble(replace(late, age=6.1))) == ("", "no reading for 6 s")
    assert trouble(replace(late, reading=replace(reading(), seconds=None), age=5.5)) == "no reading for 6 s"
    # A host that is asked seldom is not late.
    assert trouble(Seen(host="gpu1", reading=replace(reading(), seconds=30.0), age=21.0)) == ""


def test_a_host_whose_gpus_cannot_be_read() -> None:
    one = Seen(host="gpu1", number=1, reading=reading(gpus=None, gpu_fault="No driver"))
    row = tables([one], History()).gpus[0]
    assert (row.place, row.trouble) == ("gpu1", "No driver")
    assert host_row(one, History()).gpu is None
    assert host_row(one, History()).gpus == 0
    first = replace(one, reading=reading(gpus=None))
    assert tables([first], History()).gpus[0].trouble == "nvidia-smi has not answered yet"


def test_memory_is_a_part_of_what_the_host_has() -> None:
    row = host_row(Seen(host="gpu1", number=1, reading=reading(mem=Room(total=400, used=100))), History())
    assert (row.mem_used, row.mem_total, row.mem) == (100, 400, 25.0)
    unknown = host_row(Seen(host="gpu1", number=1, reading=reading(mem=Room(total=0, used=0))), History())
    assert (unknown.mem_used, unknown.mem_total, unknown.mem) == (None, None, None)
    half = GpuRow(host="gpu1", place="gpu1:0", gpu=Gpu(index=0, mem_used=75, mem_total=150))
    assert half.mem == 50.0


def test_ranks_of_several_runs_stay_with_their_run() -> None:
    ranks = (replace(rank(1), run="b"), replace(rank(0), run="b"), replace(rank(1), run="a"))
    rows = tables([Seen(host="gpu1", number=1, reading=reading(ranks=ranks))], History()).ranks
    assert [(row.reading.run, row.reading.rank) for row in rows] == [("a", 1), ("b", 0), ("b", 1)]


@pytest.mark.parametrize(
    ("throttle", "words"),
    [
        (None, None),
        ((), ()),
        (("sw_power_cap", "gpu_idle"), ("power cap", "idle")),
        (("hw_slowdown", "hw_thermal_slowdown", "sw_thermal_slowdown"), ("heat",)),
        (("hw_slowdown",), ("hardware slowdown",)),
        (("new_reason",), ("new_reason",)),
    ],
)
def test_what_holds_the_clocks_down(throttle: tuple[str, ...] | None, words: tuple[str, ...] | None) -> None:
    assert held(Gpu(index=0, throttle=throttle)) == words


def test_the_busiest_device() -> None:
    assert busiest({}) == ("", Nic())
    # Without rates, the one that carried the most.
    nics = {"eth0": Nic(rx_bytes=1), "eth1": Nic(rx_bytes=5), "mlx5_0/1": Nic(tx_bytes=4)}
    assert busiest(nics)[0] == "eth1"
    assert busiest({**nics, "eth2": Nic(rx_bytes=3, tx_bytes=3)})[0] == "eth2"
    assert busiest({**nics, "eth0": Nic(rx=1.0, rx_bytes=1)})[0] == "eth0"
    assert busiest({**nics, "mlx5_0/1": Nic(tx=1.0)})[0] == "mlx5_0/1"


def test_history_counts_a_reading_once_and_forgets_old_ones() -> None:
    history = History()
    for number in range(1, KEPT + 10):
        for _ in range(2):
            history.add([Seen(host="gpu1", reading=reading(float(number)), number=number)])
    assert len(history.of("gpu1")) == KEPT
    assert history.of("gpu1")[-1] == KEPT + 9
    assert history.of("gpu1:1")[-1] == 93.0
    assert history.of("gpu1 gpus")[-1] == 95.0
    assert history.of("unknown") == ()


def test_the_mean_leaves_out_gpus_that_do_not_say() -> None:
    assert mean_use(reading(gpus=(gpu(0, None), gpu(1, 50.0)))) == 50.0
    assert mean_use(reading(gpus=(gpu(0, 20.0), gpu(1, None), gpu(2, 60.0)))) == 40.0
    assert mean_use(reading(gpus=())) is None
