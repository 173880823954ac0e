"""What kit.yaml gives to nodes must be there on every host."""

from __future__ import annotations

from typing import Any

import pytest

from kit.config.validate import spec_from
from kit.errors import InputError, InputErrors, StepError
from kit.flows.cluster.look import paths_of
from kit.model.observed import Container, HostFacts, HugePages
from kit.model.spec import ClusterSpec
from kit.model.values import replace
from kit.plan.cluster import compose
from kit.plan.cluster.nodes import cores_of
from kit.plan.cluster.resources import problems
from kit.plan.swarm import deploy as swarm
from tests.fakes.facts import facts, host


@pytest.mark.parametrize(
    ("settings", "seen", "message", "hint"),
    [
        ({"cpus": 12}, {}, "has 8 CPUs, and cpus: 12 in kit.yaml is more", "write cpus: 8"),
        ({"cpus": 1.5}, {"cores": 1}, "has 1 CPU, and cpus: 1.5", "write cpus: 1,"),
        ({"memory": "64gb"}, {}, "has 64000 MiB of memory, and memory: 64gb", "memory: 64000mb"),
    ],
)
def test_a_host_with_too_little(settings: dict[str, Any], seen: dict[str, Any], message: str, hint: str) -> None:
    (problem,) = problems(facts(2, **seen), spec_from(settings))
    assert isinstance(problem, StepError)
    assert problem.host == "gpu2"
    assert message in problem.message
    assert hint in (problem.hint or "")


@pytest.mark.parametrize("settings", [{}, {"cpus": 8}, {"cpus": "exclusive"}, {"memory": "64000mb"}, {"cpus": 0.5}])
def test_a_host_with_enough(settings: dict[str, Any]) -> None:
    assert problems(facts(1), spec_from(settings)) == []


def test_what_a_host_does_not_report_is_no_problem() -> None:
    assert problems(facts(1, cores=0, memory_mib=0), spec_from({"cpus": 12, "memory": "64gb"})) == []


@pytest.mark.parametrize(("cpus", "cores"), [(None, 8), ("exclusive", 8), (4.0, 4), (2.7, 2), (0.5, 1), (12.0, 8)])
def test_ranks_count_on_the_cpus_of_the_node(cpus: Any, cores: int) -> None:
    assert cores_of(facts(1), ClusterSpec(cpus=cpus)) == cores


@pytest.mark.parametrize(
    ("text", "value"), [(12, 12.0), ("1.5", 1.5), (0.25, 0.25), ("exclusive", "exclusive"), (None, None)]
)
def test_cpus(text: Any, value: Any) -> None:
    assert spec_from({"cpus": text}).cpus == value


@pytest.mark.parametrize("text", ["all", 0, -1, "1.234", 5000, True, "1e3", "nan", [2]])
def test_what_is_no_number_of_cpus(text: Any) -> None:
    with pytest.raises((InputError, InputErrors)):
        spec_from({"cpus": text})


def test_a_limit_of_memory_has_room_for_dev_shm() -> None:
    with pytest.raises((InputError, InputErrors), match="64gb is not more than shm_size"):
        spec_from({"memory": "64gb", "shm_size": "64gb"})
    assert spec_from({"memory": "65gb", "shm_size": "64gb"}).memory == "65gb"


def test_pids_is_another_way_to_write_the_limit_of_processes() -> None:
    assert spec_from({"pids": 100}).processes == 100
    assert spec_from({"pids": 0}).processes == 0
    assert spec_from({"security": {"pids": 200}}).processes == 200
    assert spec_from({"pids": 100, "security": {"pids": 100}}).processes == 100
    assert spec_from({"pids": 0, "security": {"pids": 32768}}).processes == 0
    with pytest.raises((InputError, InputErrors), match="differs from security"):
        spec_from({"pids": 100, "security": {"pids": 200}})


def pages(total: int, free: int, **more: Any) -> HostFacts:
    return facts(2, huge_pages=HugePages(total_mib=total * 2, free_mib=free * 2), **more)


@pytest.mark.parametrize(
    ("cpus", "cores", "slots", "fault"),
    [
        ("exclusive", 8, 9, True),
        ("exclusive", 8, 8, False),
        ("exclusive", 0, 9, False),
        (None, 8, 9, False),
    ],
    ids=["too many", "one each", "unknown", "shared"],
)
def test_slots_with_cpus_for_themselves_need_one_each(cpus: str | None, cores: int, slots: int, fault: bool) -> None:
    seen = facts(2, cores=cores, host=host(2, slots=slots))
    rows = problems(seen, spec_from({"cpus": cpus}))
    assert [(row.message, row.hint) for row in rows] == [
        (
            "has fewer CPUs (8) than slots (9), and cpus: exclusive gives each slot CPUs for itself",
            "write slots=8 for gpu2 in the hosts file, or remove cpus: exclusive",
        )
    ] * fault


RUNS = Container(
    name="kit-kit-mpinode", service="mpinode", cluster="kit", image="i", spec="s", running=True, status="Up"
)


@pytest.mark.parametrize(
    ("seen", "message"),
    [
        (pages(0, 0), "has 0 MiB of free huge pages, and hugepages: 4gb in kit.yaml is more"),
        (facts(2), "has 0 MiB of free huge pages"),
        (pages(2048, 2047), "has 4094 MiB of free huge pages"),
        (pages(2047, 5000, containers=(RUNS,)), "has 4094 MiB of huge pages"),
        # Only a run of this cluster gives its pages back.
        (pages(2048, 0, containers=(replace(RUNS, running=False),)), "has 0 MiB of free huge pages"),
        (pages(2048, 0, containers=(replace(RUNS, cluster="other"),)), "has 0 MiB of free huge pages"),
        (pages(2048, 2048, absent=frozenset(["/dev/hugepages"])), "no /dev/hugepages through which"),
    ],
)
def test_a_host_with_too_few_huge_pages(seen: HostFacts, message: str) -> None:
    (problem,) = problems(seen, spec_from({"hugepages": "4gb"}))
    assert problem.host == "gpu2"
    assert message in problem.message
    assert "kit setup --only hugepages -H gpu2" in (problem.hint or "")


@pytest.mark.parametrize("seen", [pages(2048, 2048), pages(2048, 0, containers=(RUNS,))])
def test_pages_that_a_running_node_uses_are_no_problem(seen: HostFacts) -> None:
    assert problems(seen, spec_from({"hugepages": "4gb"})) == []


def test_a_device_must_be_on_every_host() -> None:
    spec = spec_from({"devices": ["/dev/gdrdrv", "/dev/fuse:/dev/fuse"]})
    (problem,) = problems(facts(2, absent=frozenset(["/dev/fuse"])), spec)
    assert problem.message == "has no /dev/fuse, which devices: in kit.yaml names"
    for dialect in (compose, swarm):
        assert {"/dev/gdrdrv", "/dev/fuse"} <= set(dialect.paths(spec))
    assert "/dev/hugepages" in compose.paths(spec_from({"hugepages": "4gb"}))


def test_the_plugin_of_nccl_must_be_on_every_host() -> None:
    spec = spec_from({"nccl": {"plugin": "/opt/aws-ofi-nccl/lib/"}})
    path = "/opt/aws-ofi-nccl/lib/libnccl-net*.so*"
    for dialect in (compose, swarm):
        assert path in dialect.paths(spec)
    assert path in paths_of(spec)
    assert problems(facts(1), spec) == []
    (problem,) = problems(facts(2, absent=frozenset([path])), spec)
    assert problem.message.startswith("has no libnccl-net*.so in /opt/aws-ofi-nccl/lib/, which nccl.plugin")
    assert problem.host == "gpu2"
