"""The CPUs of a run, as kit gives them to kit-rank."""

from __future__ import annotations

from typing import Any

import pytest

from kit.errors import InputError
from kit.model.launch import Node, Placement
from kit.model.run import Place
from kit.model.spec import ClusterSpec, MpiSpec
from kit.model.values import replace
from kit.plan.run import cores
from kit.plan.run.mpi import launch_plan, yields

NODES = tuple(Node(name=f"gpu{n}", address=f"10.0.0.{n}", slots=4, cores=16) for n in (1, 2))
BOTH = Placement(nodes=NODES, counts=(2, 4))
PLACES = tuple(
    Place(node=node.name, address=node.address, ranks=len(slots), slots=slots)
    for node, slots in zip(NODES, ((1, 3), (0, 1, 2, 3)), strict=True)
)


def variables(*, exclusive: bool = True, count: int | None = None, bind_to: Any = "auto") -> dict[str, str]:
    return cores.variables(ClusterSpec(mpi=MpiSpec(bind_to=bind_to)), BOTH, PLACES, exclusive=exclusive, count=count)


def test_a_run_gets_the_cpus_of_its_slots() -> None:
    assert variables() == {"KIT_CPU_SLOTS": "gpu1=1,3/4 exclusive"}


def test_a_run_that_holds_all_slots_gets_all_cpus() -> None:
    whole = tuple(replace(place, slots=(0, 1, 2, 3)) for place in PLACES)
    assert cores.variables(ClusterSpec(mpi=MpiSpec(bind_to="core")), BOTH, whole, exclusive=True, count=None) == {}


def test_without_limits_nothing_is_bound() -> None:
    assert variables(exclusive=False) == {}


def test_a_number_of_cpus() -> None:
    assert variables(exclusive=False, count=16) == {"KIT_CPU_SLOTS": "gpu1=1,3/4", "KIT_CPUS": "16"}
    assert variables(count=8) == {"KIT_CPU_SLOTS": "gpu1=1,3/4 exclusive", "KIT_CPUS": "8"}


@pytest.mark.parametrize(
    ("more", "message", "hint"),
    [
        ({"count": 9}, "--cpus 9 is more than the 8 of 16 CPUs of gpu1 that go with 2 of its 4 slots", "--cpus 8"),
        ({"count": 17, "exclusive": False}, "--cpus 17 is more than the 16 CPUs of gpu1", "--cpus 16"),
    ],
)
def test_more_cpus_than_there_are(more: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        variables(**more)
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")


def test_an_unknown_number_of_cpus_is_for_the_node_to_judge() -> None:
    offline = Placement(nodes=tuple(replace(node, cores=0) for node in NODES), counts=(2, 4))
    assert cores.variables(ClusterSpec(), offline, PLACES, exclusive=True, count=99)["KIT_CPUS"] == "99"


@pytest.mark.parametrize("bind_to", ["core", "numa", "socket", "hwthread"])
def test_kit_rank_binds_in_place_of_mpirun(bind_to: str) -> None:
    """mpirun would bind the ranks of two runs to the same first cores."""
    devices = variables(bind_to=bind_to)
    assert devices["KIT_BIND_TO"] == bind_to
    plan = launch_plan(
        run_id="20261123-100000-abcd",
        spec=ClusterSpec(mpi=MpiSpec(bind_to=bind_to)),  # type: ignore[arg-type]
        placement=BOTH,
        network="10.0.0.0/24",
        command=("true",),
        env={},
        places=PLACES,
        devices=devices,
    )
    assert plan.argv[plan.argv.index("--bind-to") + 1] == "none"
    assert plan.env["KIT_BIND_TO"] == bind_to


def test_more_ranks_than_cpus_give_up_their_cpu_while_they_wait() -> None:
    assert [yields(ClusterSpec(), BOTH, cpus) for cpus in (0, 4, 3)] == [False, False, True]
