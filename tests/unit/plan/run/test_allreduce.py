"""Tests kit's default for all-reduces of large messages, and the file of rules that it names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kit.model.launch import Placement
from kit.model.spec import ClusterSpec, MpiSpec
from kit.plan.run.allreduce import LARGE, OWN_CHOICE, RING, parameters, without_choice
from kit.plan.run.mpi import launch_plan
from tests.fakes.facts import node

FILE = Path(__file__).resolve().parents[4] / "images" / "lib" / Path(LARGE).name
MIB = 1 << 20


def on(hosts: int) -> Placement:
    return Placement(nodes=tuple(node(n + 1) for n in range(hosts)), counts=(2,) * hosts)


@pytest.mark.parametrize("hosts", [1, 2, 3, 4, 256])
def test_a_ring_from_three_hosts_on(hosts: int) -> None:
    assert parameters(ClusterSpec(), on(hosts)) == (RING if hosts >= 3 else ())


@pytest.mark.parametrize(
    ("args", "left"),
    [
        ((), ()),
        (("--mca", "coll_tuned_allreduce_algorithm", "3", "--mca", "coll", "^ml"), ("--mca", "coll", "^ml")),
        (("-x", "A", "-gmca", "coll_han_priority", "100", "--mca", "coll_hcoll_enable", "0"),
         ("-x", "A", "--mca", "coll_hcoll_enable", "0")),
        (("--mca", "coll_tuned_x"), ("--mca", "coll_tuned_x")),
    ],
)  # fmt: skip
def test_arguments_without_a_choice_of_algorithms(args: tuple[str, ...], left: tuple[str, ...]) -> None:
    assert without_choice(args) == left


@pytest.mark.parametrize(
    ("mpi", "env", "variables", "rings"),
    [
        ({"allreduce": "openmpi"}, {}, (), False),
        ({"args": ("--mca", "coll_tuned_allreduce_algorithm", "3")}, {}, (), False),
        ({"args": ("--mca", "coll", "^ml")}, {}, (), False),
        ({"args": ("-mca", *OWN_CHOICE[0])}, {}, (), False),
        ({"args": ("--tune", "my.conf")}, {}, (), False),
        ({"args": ("--mca", "btl_tcp_links", "2")}, {}, (), True),
        ({"args": ("-x", "coll")}, {}, (), True),
        ({}, {"OMPI_MCA_coll_han_priority": "100"}, (), False),
        ({}, {}, ("OMPI_MCA_coll_tuned_use_dynamic_rules",), False),
        ({}, {"OMPI_MCA_btl_tcp_links": "2"}, ("A",), True),
    ],
    ids=str,
)
def test_your_own_choice_is_the_only_one(
    mpi: dict[str, Any], env: dict[str, str], variables: tuple[str, ...], rings: bool
) -> None:
    spec = ClusterSpec(mpi=MpiSpec(**mpi), env=env)
    assert parameters(spec, on(4), variables) == (RING if rings else ())


@pytest.mark.parametrize("forward", [(), ("OMPI_MCA_coll_tuned_use_dynamic_rules",)])
def test_the_words_of_mpirun(forward: tuple[str, ...]) -> None:
    plan = launch_plan(
        run_id="r", spec=ClusterSpec(), placement=on(4), network=None, command=("a",), env={}, forward=forward
    )
    assert (LARGE in plan.argv) is not bool(forward)


def rules() -> dict[int, list[tuple[int, int]]]:
    """Return the file's rules as Open MPI reads them: ranks → (bytes, algorithm)."""
    words = [word for line in FILE.read_text().splitlines() for word in line.partition("#")[0].split()]
    numbers = iter(map(int, words))
    collectives, number, sizes = next(numbers), next(numbers), next(numbers)
    assert (collectives, number) == (1, 2)
    table: dict[int, list[tuple[int, int]]] = {}
    for _ in range(sizes):
        ranks, lines = next(numbers), next(numbers)
        table[ranks] = []
        for _ in range(lines):
            bytes_, algorithm, fan_out, segment = (next(numbers) for _ in range(4))
            assert (fan_out, segment) == (0, 0)
            table[ranks].append((bytes_, algorithm))
    assert not list(numbers)
    return table


def test_the_file_starts_the_ring_at_half_a_megabyte_a_rank() -> None:
    table = rules()
    assert list(table) == sorted(table)
    assert table.pop(2) == [(0, 0)]
    for ranks, lines in table.items():
        assert lines == [(0, 0), (ranks * MIB // 2, 4)]
