"""The rules of kit tune: tables of facts and measurements, and the settings and reasons that come of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kit.cli.verbs.values import minutes
from kit.model.tune import Machine, Timing, Tried
from kit.plan.tune import candidates as tune
from kit.plan.tune.candidates import MIB

THREADS = ("env.OMP_NUM_THREADS", "env.TF_NUM_INTRAOP_THREADS", "env.TF_NUM_INTEROP_THREADS")


def machines(count: int = 4, **facts: Any) -> list[Machine]:
    return [Machine(**{"name": f"gpu{n + 1}", "slots": 2, "threads": 16, "cores": 8, **facts}) for n in range(count)]


def timing(*seconds: float, size: int = 64 * MIB, ranks: int = 8) -> Timing:
    return Timing(bytes=size, ranks=ranks, seconds=seconds)


def tried(name: str, *seconds: float) -> Tried:
    parameters = next(candidate.parameters for candidate in tune.CANDIDATES if candidate.name == name)
    return Tried(name=name, parameters=parameters, timing=timing(*seconds))


@pytest.mark.parametrize(
    ("facts", "bind"),
    [
        ({"slots": 2, "sockets": 2, "numa": 2}, "socket"),
        ({"slots": 8, "sockets": 2, "numa": 2}, "socket"),
        ({"slots": 8, "sockets": 2, "numa": 8}, "numa"),
        ({"slots": 2, "sockets": 2, "numa": 8}, "socket"),
        ({"slots": 1, "sockets": 2, "numa": 2}, None),
        ({"slots": 3, "sockets": 2, "numa": 2}, None),
        ({"slots": 2, "sockets": 1}, None),
        ({"slots": 16, "sockets": 2, "numa": 2}, None),
        # By default, QEMU shows each vCPU as a socket, and one NUMA node.
        ({"slots": 8, "sockets": 8}, None),
        # mpirun would choose the socket by the rank, and kit-rank would no longer choose it by the GPU.
        ({"slots": 8, "sockets": 2, "numa": 2, "gpus": ("A100",) * 8}, None),
    ],
    ids=str,
)
def test_binding_where_every_socket_gets_the_same_number_of_ranks(facts: dict[str, Any], bind: str | None) -> None:
    result = tune.by_facts(machines(**facts))
    settings = {s.path: s for s in result.settings}
    assert (settings["mpi.bind_to"].value if "mpi.bind_to" in settings else None) == bind
    # What an earlier tune wrote goes back to kit's default.
    defaults = {s.path: s.value for s in result.defaults}
    assert defaults.get("mpi.bind_to") == (None if bind else "auto")
    if bind:
        assert "each host has" in settings["mpi.bind_to"].reason
        assert settings["mpi.bind_to"].acts == "run"


def test_one_host_that_differs_ends_the_binding() -> None:
    hosts = [*machines(3, slots=2, sockets=2, numa=2), *machines(1, slots=2, sockets=1)]
    assert "mpi.bind_to" not in {s.path for s in tune.by_facts(hosts).settings}


@pytest.mark.parametrize(
    ("facts", "threads"),
    [
        ({"slots": 2, "cores": 8}, "4"),
        ({"slots": 4, "cores": 32, "sockets": 2}, "8"),
        ({"slots": 8, "cores": 4}, "1"),
        ({"slots": 2, "cores": 0, "threads": 6}, "3"),
    ],
    ids=str,
)
def test_threads_are_the_cores_that_a_rank_has(facts: dict[str, int], threads: str) -> None:
    """With fewer threads for TensorFlow's operations, a tf.data pipeline would ignore num_parallel_calls."""
    values = {s.path: s.value for s in tune.by_facts(machines(**facts)).settings if s.path.startswith("env.")}
    assert values == dict.fromkeys(THREADS, threads)


@pytest.mark.parametrize(
    ("slots", "cpus", "threads", "reason"),
    [
        (2, 4.0, "2", "4 cores (cpus: 4 in kit.yaml) shared by 2 ranks"),
        (2, 1.5, "1", "1 cores (cpus: 1.5 in kit.yaml) shared by 2 ranks"),
        (2, 12.0, "4", "8 physical cores shared by 2 ranks"),
        # Its frameworks would start a thread for each of the host's cores.
        (1, 4.0, "4", "4 cores (cpus: 4 in kit.yaml) for the only rank"),
    ],
)
def test_threads_are_not_more_than_the_limit_of_the_node(slots: int, cpus: float, threads: str, reason: str) -> None:
    result = tune.by_facts(machines(slots=slots, cores=8), cpus=cpus)
    settings = [s for s in result.settings if s.path in THREADS]
    assert {s.path: s.value for s in settings} == dict.fromkeys(THREADS, threads)
    assert all(s.reason.startswith(reason) for s in settings)


def test_input_pipelines_get_no_more_threads_than_the_limit_of_the_node() -> None:
    advice = tune.by_facts(machines(cores=8, gpus=("T4", "T4")), cpus=4.0).advice
    assert any("num_parallel_calls=2 " in line for line in advice)


def test_the_only_rank_of_a_host_gets_all_cores_where_an_earlier_tune_divided_them() -> None:
    result = tune.by_facts(machines(slots=1, cores=8))
    assert not [s for s in result.settings if s.path.startswith("env.")]
    assert {s.path: s.value for s in result.defaults if s.path in THREADS} == dict.fromkeys(THREADS, "8")


def test_the_host_with_the_fewest_cores_decides() -> None:
    hosts = [*machines(1, cores=32), *machines(1, cores=4)]
    settings = {s.path: s for s in tune.by_facts(hosts).settings}
    assert settings["env.OMP_NUM_THREADS"].value == "2"
    assert "4 to 32 physical cores" in settings["env.OMP_NUM_THREADS"].reason


@pytest.mark.parametrize(
    ("hosts", "advice"),
    [
        (machines(nic_mbit=10_000, mtu=1500), ()),
        (machines(nic_mbit=25_000, mtu=1500), ("jumbo frames",)),
        (machines(nic_mbit=25_000, mtu=9001), ()),
        ([*machines(1, mtu=1500), *machines(1, mtu=9000)], ("differ in MTU (1500, 9000)",)),
        ([*machines(1, nic_mbit=1000), *machines(1, nic_mbit=10_000)], ("gpu1: a NIC of 1000 Mbit/s",)),
        (machines(congestion="bbr"), ("bbr on 4 of 4 hosts",)),
        (machines(congestion="cubic"), ()),
        (machines(1, congestion="bbr"), ()),
        (
            machines(gpus=("A100", "A100"), gpu_links=("NV12",)),
            ("NCCL tunes itself", "num_parallel_calls=4", "clocks: kit doctor", "HOROVOD_HIERARCHICAL_ALLREDUCE=1"),
        ),
        (
            machines(cores=0, gpus=("T4", "T4"), gpu_links=("SYS",)),
            ("NCCL tunes itself", "num_parallel_calls=8", "clocks: kit doctor", "across sockets (SYS)"),
        ),
        ([*machines(1, gpus=("T4",)), *machines(1)], ()),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_a_file_cannot_say_is_advice(hosts: list[Machine], advice: tuple[str, ...]) -> None:
    lines = tune.by_facts(hosts).advice
    assert len(lines) == len(advice)
    assert all(part in text for part, text in zip(advice, lines, strict=True)), lines


@pytest.mark.parametrize(
    ("frameworks", "paths", "left_out"),
    [
        (("pytorch",), THREADS[:1], ("mpi_perf", "HOROVOD", "tf_benchmark", "num_parallel_calls")),
        (("mxnet",), THREADS[:1], ("num_workers",)),
        (("tensorflow",), THREADS, ("num_workers",)),
    ],
)
def test_what_no_framework_of_the_image_reads_is_left_out(
    frameworks: tuple[str, ...], paths: tuple[str, ...], left_out: tuple[str, ...]
) -> None:
    result = tune.by_facts(machines(gpus=("A100", "A100"), gpu_links=("NV12", "SYS")), frameworks)
    assert tuple(s.path for s in result.settings) == paths
    lines = " ".join(result.advice)
    assert all(part in lines for part in ("clocks: kit doctor", "across sockets (SYS)", "4 threads for each GPU"))
    assert not [word for word in left_out if word in lines]


def test_candidates_are_for_a_wire() -> None:
    assert tune.candidates(machines(1)) == ()
    names = [candidate.name for candidate in tune.candidates(machines(3))]
    assert names == [candidate.name for candidate in tune.CANDIDATES]
    # On two hosts, kit adds nothing to Open MPI's own choice, so there is nothing to go back to.
    on_two = [candidate.name for candidate in tune.candidates(machines(2))]
    assert on_two == [name for name in names if name != "openmpi"]
    assert len({candidate.parameters for candidate in tune.CANDIDATES}) == len(names)
    assert tune.CANDIDATES[0].parameters == ()
    assert tune.stalls({"btl_tcp_flags": "send", "btl_tcp_links": "2"})
    assert not any(tune.stalls(dict(candidate.parameters)) for candidate in tune.CANDIDATES)


def test_a_ring_is_for_large_messages_alone() -> None:
    file = Path(__file__).parents[4] / "images/lib" / Path(tune.RULES).name
    assert all(
        dict(candidate.parameters).get("coll_tuned_dynamic_rules_filename", tune.RULES) == tune.RULES
        for candidate in tune.CANDIDATES
    )
    words = [line.partition("#")[0] for line in file.read_text().splitlines()]
    collectives, allreduce, counts, *rest = map(int, " ".join(words).split())
    assert (collectives, allreduce) == (1, 2)
    assert len(rest) == counts * 10
    rules = [rest[at : at + 10] for at in range(0, len(rest), 10)]
    # Open MPI takes the last whose number of ranks, and of bytes, is not above what it has: they have to rise.
    assert [ranks for ranks, *_ in rules] == [2**power for power in range(1, counts + 1)]
    for ranks, sizes, *entries in rules:
        assert (sizes, entries) == (2, [0, 0, 0, 0, ranks << 16, 4, 0, 0])
    theirs = {"coll_tuned_allreduce_algorithm": "3"}
    ring = next(dict(candidate.parameters) for candidate in tune.CANDIDATES if candidate.name == "ring")
    assert tune.takes_over(ring, theirs)
    assert not tune.takes_over({"btl_tcp_links": "2"}, theirs)
    assert not tune.takes_over(ring, {"btl_tcp_links": "2"})
    # With rules turned off, what is measured as a ring would be Open MPI's own choice.
    assert tune.takes_over(ring, {"coll_tuned_use_dynamic_rules": "0"})
    assert not tune.takes_over(ring, {"coll_tuned_use_dynamic_rules": "1"})
    # Else what is measured as a ring would be the rules of that person, switched on.
    assert tune.takes_over(ring, {"coll_tuned_dynamic_rules_filename": "/data/own.conf"})


def test_a_timing_knows_its_middle_and_its_noise() -> None:
    assert timing(3.0, 1.0, 2.0).median == 2.0
    assert timing(1.0, 2.0, 3.0, 4.0).median == 2.5
    assert timing(2.0, 2.0, 2.0).noise == 0
    # One repeat of five that was disturbed is no noise.
    assert timing(1.0, 1.0, 1.0, 1.0, 9.0).noise == 0
    assert timing(1.0, size=8, ranks=4).busbw == 12.0


@pytest.mark.parametrize(
    ("before", "after", "gains"),
    [
        ((2.0, 2.0, 2.0), (1.0, 1.0, 1.0), True),
        ((1.0, 1.0, 1.0), (2.0, 2.0, 2.0), False),
        ((1.0, 1.0, 1.0), (0.98, 0.98, 0.98), False),
        ((1.0, 1.0, 1.0), (0.96, 0.96, 0.96), True),
        # Ten per cent, and both jump about by as much.
        ((0.8, 1.0, 1.2, 1.3), (0.7, 0.9, 1.1, 1.2), False),
    ],
)
def test_a_gain_is_beyond_the_noise(before: tuple[float, ...], after: tuple[float, ...], gains: bool) -> None:
    assert tune.better(timing(*before), timing(*after)) is gains


def test_of_equals_the_simplest_is_taken() -> None:
    current = Tried(name="current", parameters=(), timing=timing(4.0, 4.0, 4.0))
    duplex, ring, links = (
        tried("duplex", 3.0, 3.0),
        tried("duplex-ring", 2.0, 2.0),
        tried("ring-links", 1.99, 1.99),
    )
    assert tune.best(current, [duplex, ring, links]) is ring
    assert tune.best(current, [tried("duplex", 3.95, 3.95)]) is current
    assert tune.best(current, [Tried(name="x", parameters=(), failure="no")]) is current
    broken = Tried(name="current", parameters=(("btl", "none"),), failure="no")
    assert tune.best(broken, [duplex, ring]) is ring


def test_the_setting_says_what_it_gained() -> None:
    current = Tried(name="current", parameters=(), timing=timing(4.0, 4.0, 4.0))
    setting = tune.mpi_setting(current, tried("duplex-ring", 2.0, 2.0))
    assert setting is not None
    assert (setting.path, setting.acts) == ("mpi.args", "run")
    assert tune.parameters_of(setting.value.split()) == dict(tried("duplex-ring", 1.0).parameters)
    assert setting.reason.startswith(
        "an all-reduce of 64 MB on 8 ranks took 4.000 s +-0.000, now 2.000 s +-0.000. A ring"
    )
    assert tune.mpi_setting(current, current) is None


def test_words_of_a_person_stay_and_win() -> None:
    words = ("--mca", "btl_tcp_links", "2", "--report-bindings")
    merged = tune.with_parameters(words, (("btl_tcp_links", "4"), ("btl_tcp_flags", "send")))
    assert merged == (*words, "--mca", "btl_tcp_flags", "send")
    assert tune.parameters_of(merged) == {"btl_tcp_links": "2", "btl_tcp_flags": "send"}
    assert tune.parameters_of(("--mca", "a")) == {}


@pytest.mark.parametrize(
    ("wire", "per_run_s", "mib"), [(25e6, 25.0, 8), (25e6, 5.0, 1), (1.25e9, 25.0, 64), (None, 25.0, 4), (1e3, 1.0, 1)]
)
def test_the_size_fits_the_time(wire: float | None, per_run_s: float, mib: int) -> None:
    assert tune.message_bytes(wire=wire, ranks=8, per_run_s=per_run_s) == mib * MIB


@pytest.mark.parametrize("ranks", [2, 4, 8, 64, 256])
@pytest.mark.parametrize("runs", [10, 12, 14])
@pytest.mark.parametrize("mb", [1, 2, 4, 5, 8, 12, 18, 23.8, 30])
def test_the_minutes_that_are_advised_are_enough(mb: float, runs: int, ranks: int) -> None:
    """The next time, TCP takes its seconds, too, and may be a little slower."""
    current = Tried(name="current", parameters=(), timing=timing(1.0, size=MIB))
    advice = tune.more_time(current, wire=mb * 1e6, ranks=ranks, runs=runs, spent_s=9.0)
    assert advice is not None
    minutes = int(advice.partition("--minutes ")[2].split()[0])
    per_run_s = (minutes * 60 - 9.5) / runs
    assert tune.message_bytes(wire=0.95 * mb * 1e6, ranks=ranks, per_run_s=per_run_s) >= 8 * MIB


def test_minutes_that_kit_tune_would_refuse_are_not_advised() -> None:
    current = Tried(name="current", parameters=(), timing=timing(1.0, size=MIB))
    assert tune.more_time(current, wire=0.4e6, ranks=8, runs=13, spent_s=9.0) is None
    assert minutes(f"{tune.MOST_MINUTES}") == tune.MOST_MINUTES
    with pytest.raises(ValueError, match="from 1 to 120"):
        minutes(f"{tune.MOST_MINUTES + 1}")
