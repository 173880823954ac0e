"""The cost of an all-reduce, and a step played through: cases worked out by hand, limits, and what must always hold."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.model.allreduce import ALGORITHMS, Algorithm
from kit.model.scaling import Gradients, Layer, Links, Training
from kit.model.values import replace
from kit.plan.predict import scaling
from kit.plan.predict.collectives import Ranks, allreduce

MB = 10**6
FAST = 1e30
# 10 MB/s between hosts; all else costs nothing.
WIRE = Links(inter=10 * MB, inter_latency=0.0, intra=FAST, intra_latency=0.0, memory=FAST)
NAMED: tuple[Algorithm, ...] = tuple(name for name in ALGORITHMS if name != "auto")


def cost(algorithm: Algorithm, size: float, count: int, per_host: int, links: Links = WIRE) -> tuple[float, float]:
    seconds = allreduce(size, Ranks(count=count, per_host=per_host), links, algorithm=algorithm, library="mpi")
    return round(seconds.seconds, 6), round(seconds.host_bytes)


@pytest.mark.parametrize(
    ("algorithm", "count", "per_host", "seconds", "host_bytes"),
    [
        # 2 x 7 parts of 10 MB leave each host, whether it has one rank or two.
        ("ring", 8, 1, 14.0, 140 * MB),
        ("ring", 8, 2, 14.0, 140 * MB),
        # 2 x 3 parts of 20 MB: a ring of 4 hosts.
        ("hierarchical", 8, 2, 12.0, 120 * MB),
        ("hierarchical", 8, 1, 14.0, 140 * MB),
        # Up once and down once.
        ("tree", 8, 2, 16.0, 160 * MB),
        # Three rounds of all of it; of two ranks on a host the first round stays there, then they share its link.
        ("recursive-doubling", 8, 1, 24.0, 240 * MB),
        ("recursive-doubling", 8, 2, 32.0, 320 * MB),
        # There and back a half, a quarter and an eighth; with two ranks on a host two quarters and two eighths.
        ("rabenseifner", 8, 1, 14.0, 140 * MB),
        ("rabenseifner", 8, 2, 12.0, 120 * MB),
    ],
)
def test_80_mb_over_10_mb_a_second(
    algorithm: Algorithm, count: int, per_host: int, seconds: float, host_bytes: int
) -> None:
    assert cost(algorithm, 80 * MB, count, per_host) == (seconds, host_bytes)


@pytest.mark.parametrize(
    ("count", "per_host", "there"),
    [
        # Of 0 1 2 | 3, the pair 2-3 is on two hosts, then 1-3: half of it and a quarter leave a host.
        (4, 3, 60),
        # Of 0 ... 5 | 6 7, the pairs 4-6 and 5-7, then 2-6 and 3-7.
        (8, 6, 60),
        # Of 0 ... 4 | 5 6 7, the pairs 4-5, 4-6 and then three.
        (8, 5, 90),
    ],
)
def test_pairs_on_two_hosts_whose_ranks_are_no_power_of_two(count: int, per_host: int, there: int) -> None:
    assert cost("rabenseifner", 80 * MB, count, per_host) == (2 * there / 10, 2 * there * MB)


@given(st.integers(0, 5), st.integers(1, 40))
def test_a_host_sends_for_each_rank_whose_partner_is_elsewhere(rounds: int, per_host: int) -> None:
    count = 2**rounds
    hosts = [range(first, min(first + per_host, count)) for first in range(0, count, per_host)]
    elsewhere = [
        max(sum((rank ^ 2**number) not in host for rank in host) for host in hosts) for number in range(rounds)
    ]
    assert cost("recursive-doubling", MB, count, per_host)[1] == sum(elsewhere) * MB


@pytest.mark.parametrize(
    ("algorithm", "size", "count", "times"),
    [
        # Each round is between two that send each other the same: it takes twice as long.
        ("recursive-doubling", 80 * MB, 8, 2),
        ("rabenseifner", 80 * MB, 8, 2),
        # 80 KB a rank, 40 KB in the first round: small enough to be at once on its way.
        ("rabenseifner", 80_000, 8, 1),
        # One rank's successor is not its predecessor, unless there are but two.
        ("ring", 80 * MB, 8, 1),
        ("ring", 80 * MB, 2, 2),
    ],
)
def test_two_that_take_turns_need_twice_as_long(algorithm: Algorithm, size: int, count: int, times: int) -> None:
    at_once, turns = (cost(algorithm, size, count, 1, replace(WIRE, turns_from=at)) for at in (math.inf, 64 * 1024))
    assert turns[0] == pytest.approx(times * at_once[0])
    assert turns[1] == at_once[1]


def test_every_message_of_a_ring_has_its_latency() -> None:
    links = replace(WIRE, inter=FAST, inter_latency=0.001)
    assert cost("ring", 80 * MB, 8, 1, links)[0] == 0.014


def test_numbers_that_arrive_are_added_up() -> None:
    # 7 parts of 10 MB at 100 MB/s.
    assert cost("ring", 80 * MB, 8, 1, replace(WIRE, inter=FAST, memory=100 * MB))[0] == 0.7


@pytest.mark.parametrize("algorithm", NAMED)
def test_within_one_host_nothing_leaves_it(algorithm: Algorithm) -> None:
    assert cost(algorithm, 80 * MB, 4, 4) == (0.0, 0)
    assert cost(algorithm, 80 * MB, 4, 4, replace(WIRE, intra=100 * MB))[0] > 0


def test_mpi_takes_rabenseifner_for_much_and_recursive_doubling_for_little() -> None:
    ranks = Ranks(count=8, per_host=1)
    much = allreduce(MB, ranks, WIRE, algorithm="auto", library="mpi")
    little = allreduce(8191, ranks, WIRE, algorithm="auto", library="mpi")
    assert (much.algorithm, little.algorithm) == ("rabenseifner", "recursive-doubling")


def test_nccl_takes_a_tree_where_latency_counts_and_a_ring_where_bytes_do() -> None:
    ranks, links = Ranks(count=64, per_host=1), replace(WIRE, inter_latency=0.001)
    little = allreduce(1000, ranks, links, algorithm="auto", library="nccl")
    much = allreduce(1000 * MB, ranks, links, algorithm="auto", library="nccl")
    assert (little.algorithm, much.algorithm) == ("tree", "ring")


# Two layers of 10 MB each: the last of them is ready in the middle of backward, which takes 2 of 3 seconds.
TWO = Gradients(
    model="two", source="test", layers=(Layer(work=1, elements=(2_500_000,)), Layer(work=1, elements=(2_500_000,)))
)
STEP = Training(step=3.0, forward_share=1 / 3, library="mpi", algorithm="ring", cycle=0.0)


def test_what_is_summed_while_backward_goes_on_is_hidden() -> None:
    # Ready at 2 s and 3 s. Over two hosts each 10 MB take 1 s: the first is hidden, the second is not.
    prediction = scaling.predict(TWO, STEP, WIRE, ranks=2, per_host=1)
    assert prediction.step == pytest.approx(4.0, abs=1e-4)
    assert prediction.exposed == pytest.approx(1.0, abs=1e-4)
    assert prediction.hidden == pytest.approx(1.0, abs=1e-4)
    assert prediction.efficiency == pytest.approx(0.75, abs=1e-4)
    assert (prediction.batches, prediction.hosts, prediction.host_bytes) == (2, 2, 20 * MB)


def test_the_second_waits_until_the_first_is_through() -> None:
    # 2 s each: the first from 2 to 4, the second from 4 to 6.
    slow = replace(WIRE, inter=5 * MB)
    assert scaling.predict(TWO, STEP, slow, ranks=2, per_host=1).step == pytest.approx(6.0, abs=1e-4)


def test_half_precision_halves_what_travels() -> None:
    prediction = scaling.predict(TWO, replace(STEP, element_bytes=2), WIRE, ranks=2, per_host=1)
    assert prediction.host_bytes == 10 * MB
    assert prediction.step == pytest.approx(3.5, abs=1e-4)


def test_a_long_cycle_joins_what_became_ready_in_it() -> None:
    # Cycles begin at 0 and 3.5 s: both wait for the second, and travel together for 2 s.
    prediction = scaling.predict(TWO, replace(STEP, cycle=3.5), WIRE, ranks=2, per_host=1)
    assert (prediction.batches, prediction.step) == (1, pytest.approx(5.5, abs=1e-4))


def test_tensors_are_joined_as_far_as_the_fusion_buffer_goes() -> None:
    together = replace(STEP, cycle=3.5)
    assert scaling.predict(TWO, replace(together, fusion=20 * MB), WIRE, ranks=2, per_host=1).batches == 1
    assert scaling.predict(TWO, replace(together, fusion=20 * MB - 1), WIRE, ranks=2, per_host=1).batches == 2
    assert scaling.predict(TWO, replace(together, fusion=0), WIRE, ranks=2, per_host=1).batches == 2


def test_only_what_is_joined_is_copied() -> None:
    links = replace(WIRE, inter=FAST, memory=100 * MB)
    apart = scaling.predict(TWO, STEP, links, ranks=2, per_host=1)
    joined = scaling.predict(TWO, replace(STEP, cycle=3.5), links, ranks=2, per_host=1)
    assert (apart.copy, joined.copy) == (0.0, pytest.approx(0.4))


def test_nccl_goes_on_agreeing_while_the_gpu_sums() -> None:
    # 1 MB every 0.2 s, and 1 s for each. With mpi those of the first second travel together after it, then the rest;
    # with nccl each cycle queues its own.
    many = Gradients(model="m", source="t", layers=tuple(Layer(work=1, elements=(250_000,)) for _ in range(10)))
    training = replace(STEP, cycle=0.01)
    mpi = scaling.predict(many, training, replace(WIRE, inter=MB), ranks=2, per_host=1)
    nccl = scaling.predict(many, replace(training, library="nccl"), replace(WIRE, inter=MB), ranks=2, per_host=1)
    assert (mpi.batches, nccl.batches) == (3, 10)
    assert mpi.host_bytes == nccl.host_bytes == 10 * MB


def test_backward_goes_at_the_pace_of_the_layers_work() -> None:
    layers = (Layer(work=1, elements=(8, 2)), Layer(work=3, elements=()), Layer(work=0, elements=(1,)))
    times = scaling.ready(Gradients(model="m", source="t", layers=layers), STEP)
    assert [(round(tensor.ready, 9), tensor.size) for tensor in times] == [(1.5, 32), (1.5, 8), (3.0, 4)]


gradients = st.lists(
    st.tuples(st.integers(0, 100), st.lists(st.integers(1, 10**7), max_size=3)), min_size=1, max_size=12
).map(
    lambda rows: Gradients(
        model="any", source="test", layers=tuple(Layer(work=w, elements=tuple(sizes)) for w, sizes in rows)
    )
)
trainings = st.builds(
    Training,
    step=st.floats(0.001, 10),
    forward_share=st.floats(0, 0.9),
    library=st.sampled_from(["mpi", "nccl"]),
    algorithm=st.sampled_from(NAMED),
    element_bytes=st.sampled_from([2, 4]),
    fusion=st.sampled_from([0, 10**6, 128 * 2**20]),
    cycle=st.sampled_from([0.0, 0.001, 0.05]),
)
ranks = st.integers(1, 64)
per_hosts = st.integers(1, 8)


@given(gradients, trainings, per_hosts)
def test_one_rank_waits_for_nobody(model: Gradients, training: Training, per_host: int) -> None:
    prediction = scaling.predict(model, training, WIRE, ranks=1, per_host=per_host)
    assert (prediction.efficiency, prediction.host_bytes, prediction.exposed) == (1.0, 0.0, 0.0)


@given(gradients, trainings, ranks, per_hosts)
def test_over_endless_links_nothing_is_lost_but_a_cycle(
    model: Gradients, training: Training, count: int, per_host: int
) -> None:
    prediction = scaling.predict(model, training, replace(WIRE, inter=FAST), ranks=count, per_host=per_host)
    assert prediction.step - training.step <= training.cycle + 1e-6


@given(gradients, trainings, ranks, per_hosts)
def test_the_parts_add_up(model: Gradients, training: Training, count: int, per_host: int) -> None:
    links = Links(inter=MB, inter_latency=1e-4, intra=100 * MB, intra_latency=1e-5, memory=1000 * MB)
    prediction = scaling.predict(model, training, links, ranks=count, per_host=per_host)
    assert prediction.step == pytest.approx(prediction.alone + prediction.exposed)
    assert 0 < prediction.efficiency <= 1
    assert prediction.hidden >= 0
    # Whatever travels has to be through at the end of the step.
    assert prediction.host_bytes / links.inter <= prediction.step + 1e-6
    if training.algorithm == "ring" and prediction.hosts > 1:
        assert prediction.host_bytes == pytest.approx(2 * (count - 1) / count * model.elements * training.element_bytes)


@given(gradients, trainings, ranks, per_hosts, st.tuples(st.floats(1e4, 1e9), st.floats(1.0, 100)))
def test_with_one_batch_a_faster_link_is_never_slower(
    model: Gradients, training: Training, count: int, per_host: int, rates: tuple[float, float]
) -> None:
    """In one batch: with several a faster link may change what Horovod joins, and cost another latency."""
    whole = Gradients(model="one", source="test", layers=(Layer(work=1, elements=(max(model.elements, 1),)),))
    slow, fast = (
        scaling.predict(whole, training, replace(WIRE, inter=inter), ranks=count, per_host=per_host).step
        for inter in (rates[0], rates[0] * rates[1])
    )
    assert fast <= slow * (1 + 1e-9)
