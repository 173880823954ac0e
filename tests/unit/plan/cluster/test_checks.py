"""Each fault names the host, the cause and the next step."""

from __future__ import annotations

from typing import Any

import pytest

from kit.errors import KitError, StepError
from kit.model.launch import ClusterRecord
from kit.model.observed import Container
from kit.model.spec import ClusterSpec
from kit.model.values import replace
from kit.plan.cluster.checks import (
    MIB,
    arch_problems,
    cluster_problems,
    container_is_current,
    host_problems,
    missing_sources,
    port_problem,
)
from tests.fakes.facts import GPU_ENGINE, facts, gpus, node

SPEC = ClusterSpec(name="lab")
GIB = 1024 * MIB


def container(**more: Any) -> Container:
    values: dict[str, Any] = {
        "name": "kit-lab-mpinode",
        "service": "mpinode",
        "cluster": "lab",
        "image": "kit:cpu-1",
        "spec": "abc",
        "running": True,
        "status": "Up 2 hours",
    }
    return Container(**{**values, **more})


def whole(problem: KitError, host: str) -> None:
    assert problem.host == host
    assert problem.message
    assert problem.hint
    assert problem.exit_code == StepError.exit_code


@pytest.mark.parametrize(
    ("seen", "image_size", "cause", "hint"),
    [
        ({"engine": ""}, 0, "no Docker Engine answers", "systemctl start docker"),
        ({"engine": "", "slow": True}, 0, "the Docker Engine did not answer in time", "systemctl restart docker"),
        ({"engine": "", "podman": True}, 0, "its docker is Podman", "dnf remove podman-docker"),
        ({"compose": None}, 0, "no Compose v2 plugin", "docker-compose-plugin"),
        ({"gpus": gpus(2)}, 0, "2 × NVIDIA A100-SXM4-40GB, but the engine cannot", "nvidia-container-toolkit"),
        ({"python": "3.5.2"}, 0, "has Python 3.5.2; Python 3.6 or newer is required", "apt-get install python3"),
        ({"python": "2.7"}, 0, "has Python 2.7; Python 3.6 or newer", "dnf install python3"),
        ({"python": "3"}, 0, "has Python 3; Python 3.6 or newer", "apt-get install python3"),
        ({"python": "x.y"}, 0, "has Python x.y; Python 3.6 or newer", "apt-get install python3"),
        ({"python": "3.x"}, 0, "has Python 3.x; Python 3.6 or newer", "apt-get install python3"),
        ({"python": None}, 0, "has no python3; Python 3.6 or newer", "apt-get install python3"),
        (
            {"disk_free_mib": 3071},
            GIB,
            "3071 MiB are free for the engine, and the image needs 3072 while it is loaded",
            "make room",
        ),
        (
            {"disk_free_mib": 1000},
            GIB,
            "1000 MiB are free for the engine, and the image needs 3072 while it is loaded",
            "make room",
        ),
    ],
)
def test_faults_of_one_host(seen: dict[str, Any], image_size: int, cause: str, hint: str) -> None:
    problems = host_problems(facts(3, **seen), image_size=image_size)
    assert len(problems) == 1
    whole(problems[0], "gpu3")
    assert cause in problems[0].message
    assert hint in str(problems[0].hint)


@pytest.mark.parametrize(
    ("seen", "image_size"),
    [
        ({}, 0),
        ({}, 10 * GIB),
        ({"gpus": gpus(2), "gpu_engine": GPU_ENGINE}, 0),
        # The toolkit is not configured in daemon.json: the engine still has its driver.
        ({"gpus": gpus(2), "gpu_engine": replace(GPU_ENGINE, runtimes={"runc": "runc"})}, 0),
        ({"python": "3.6.8"}, 0),
        ({"python": "4.0"}, 0),
        ({"disk_free_mib": 3072}, GIB),
        # The image is there: nothing receives it.
        ({"python": None, "image_id": "sha256:1"}, 0),
        # The image is there: its size does not matter. Nor does a size that nobody knows.
        ({"disk_free_mib": 10, "image_id": "sha256:1"}, GIB),
        ({"disk_free_mib": 10}, 0),
    ],
)
def test_no_fault(seen: dict[str, Any], image_size: int) -> None:
    assert host_problems(facts(3, **seen), image_size=image_size) == []


def test_a_host_needs_only_what_its_way_to_the_image_and_the_container_uses() -> None:
    """Swarm starts containers without Compose, and has its own checks of GPUs. An engine that pulls needs no Python."""
    bad = facts(3, compose=None, gpus=gpus(1), python=None)
    for compose, ships, count in ((True, True, 3), (False, True, 1), (True, False, 2), (False, False, 0)):
        assert len(host_problems(bad, image_size=0, compose=compose, ships=ships)) == count


def test_faults_are_reported_together_but_no_engine_has_no_other_fault() -> None:
    bad = facts(3, compose=None, gpus=gpus(1), disk_free_mib=1)
    assert len(host_problems(bad, image_size=GIB)) == 3
    assert len(host_problems(replace(bad, engine=""), image_size=GIB)) == 1


@pytest.mark.parametrize(
    ("listening", "containers", "cause"),
    [
        ({"0.0.0.0:33"}, (), "port 33 is taken (0.0.0.0:33)"),
        ({"10.0.0.3:33"}, (), "port 33 is taken (10.0.0.3:33)"),
        ({"10.0.0.3:33"}, (container(cluster="other"),), "by the cluster other"),
        ({"10.0.0.3:33"}, (container(running=False),), "port 33 is taken"),
        # The cluster runs, with another ssh_port: this is the VM's own sshd.
        ({"0.0.0.0:33", "10.0.0.3:34"}, (container(),), "port 33 is taken (0.0.0.0:33)"),
        # Ours, or not in our way.
        ({"10.0.0.3:33"}, (container(),), None),
        ({"127.0.0.1:33", "0.0.0.0:22", "10.9.0.3:33"}, (), None),
        (set(), (container(cluster="other"),), None),
    ],
)
def test_the_port(listening: set[str], containers: tuple[Container, ...], cause: str | None) -> None:
    problem = port_problem(facts(3, listening=frozenset(listening), containers=containers), SPEC, node(3))
    if cause is None:
        assert problem is None
        return
    assert problem is not None
    whole(problem, "gpu3")
    assert cause in problem.message
    assert "ssh_port" in str(problem.hint)
    # A second person may have named the cluster otherwise.
    assert ("name: other" in str(problem.hint)) == ("other" in problem.message)


@pytest.mark.parametrize(
    ("listening", "port", "taken"),
    [
        # The node listens on the port of the last deploy: what listens on the new one is another program.
        ({"10.0.0.3:33", "10.0.0.3:34"}, 34, True),
        # It has the new one already, or nothing listens there.
        ({"10.0.0.3:33"}, 34, False),
        ({"10.0.0.3:34"}, 34, False),
        ({"10.0.0.3:33"}, 33, False),
        ({"0.0.0.0:33"}, 34, True),
    ],
)
def test_a_new_port_is_not_the_nodes_own_while_it_listens_on_the_last_one(
    listening: set[str], port: int, taken: bool
) -> None:
    before = ClusterRecord(
        name="lab", image="i", network="auto", ssh_port=port, nodes=(node(3),), head_runs_ranks=True
    )  # fmt: skip
    seen = facts(3, listening=frozenset(listening), containers=(container(),))
    assert (port_problem(seen, SPEC, node(3), before) is not None) is taken
    # Without a node that runs, the port is another program's.
    idle = replace(seen, containers=(container(running=False),))
    assert (port_problem(idle, SPEC, node(3), before) is not None) is bool(listening & {"0.0.0.0:33", "10.0.0.3:33"})


def test_a_cluster_that_is_stopped_takes_no_port() -> None:
    stopped = container(cluster="other", running=False)
    problem = port_problem(facts(3, listening=frozenset({"10.0.0.3:33"}), containers=(stopped,)), SPEC, node(3))
    assert problem is not None
    assert problem.message == "port 33 is taken (10.0.0.3:33)"
    assert problem.hint == "set another ssh_port: in kit.yaml"


@pytest.mark.parametrize(("files", "problem"), [({"node.env": "1"}, False), ({}, True)])
def test_the_port_of_a_node_is_not_taken_if_its_engine_hangs(files: dict[str, str], problem: bool) -> None:
    """Without the engine's list of containers, nobody knows which program listens."""
    seen = facts(3, engine="", slow=True, listening=frozenset({"10.0.0.3:33"}), files=files)
    assert (port_problem(seen, SPEC, node(3)) is not None) == problem
    # An engine that answers lists no node of this cluster.
    assert port_problem(replace(seen, engine="27.5.1", slow=False), SPEC, node(3)) is not None


def test_only_a_source_that_no_host_has_is_missing() -> None:
    spec = replace(SPEC, volumes=("/data:/data", "/fast:/fast", "/disk:/disk"))
    observed = [facts(1, absent=frozenset({"/data", "/fast"})), facts(2, absent=frozenset({"/data"}))]
    assert missing_sources(observed, spec) == ["/data"]
    # A named volume is no path, and the engines create it.
    named = replace(SPEC, volumes=("data:/data",))
    assert missing_sources([facts(1, absent=frozenset({"data"}))], named) == []


def test_two_names_of_one_machine() -> None:
    problems = cluster_problems([facts(1), facts(2)], [node(1), node(2, address="10.0.0.1")])
    assert len(problems) == 1
    whole(problems[0], "gpu2")
    assert "as gpu1 has" in problems[0].message


def test_several_names_of_one_machine_are_each_named_beside_the_first() -> None:
    nodes = [node(1), node(2, address="10.0.0.1"), node(3), node(4, address="10.0.0.1")]
    problems = cluster_problems([facts(number) for number in range(1, 5)], nodes)
    assert [problem.host for problem in problems] == ["gpu2", "gpu4"]
    assert all("as gpu1 has" in problem.message for problem in problems)


def test_another_architecture() -> None:
    observed = [facts(1), facts(2, arch="aarch64"), facts(3)]
    problems = cluster_problems(observed, [node(1), node(2), node(3)])
    assert len(problems) == 1
    whole(problems[0], "gpu2")
    assert problems[0].message == "is aarch64, the other hosts are x86_64"


@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        ((container(),), True),
        ((container(), container(cluster="other", name="kit-other-mpinode")), True),
        ((), False),
        ((container(running=False),), False),
        ((container(spec="old"),), False),
        ((container(service="mpihead", name="kit-lab-mpihead"),), False),
        ((container(service="mpihead"),), False),
        ((container(name="kit-lab-mpihead"),), False),
        ((container(), container(name="kit-lab-mpihead", service="mpihead")), False),
        ((container(cluster="other"),), False),
    ],
)
def test_the_wanted_container(containers: tuple[Container, ...], expected: bool) -> None:
    assert container_is_current(facts(1, containers=containers), SPEC, "mpinode", "abc") is expected


@pytest.mark.parametrize(
    ("arch", "arches", "message"),
    [
        ("x86_64", ("amd64",), None),
        ("aarch64", ("amd64", "arm64"), None),
        ("aarch64", ("amd64",), "is aarch64, and the image is for x86_64"),
        ("aarch64", (), None),
        ("", ("amd64",), None),
    ],
)
def test_an_image_for_other_processors(arch: str, arches: tuple[str, ...], message: str | None) -> None:
    problems = arch_problems(facts(1, arch=arch), arches)
    assert [problem.message for problem in problems] == ([message] if message else [])
    assert arch_problems(facts(1, arch=arch, image_id="sha256:1f"), arches) == []
