"""What an engine reports about Swarm, as facts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kit.model.observed import HostFacts
from kit.model.swarm import SwarmNode, SwarmSecret, SwarmService
from kit.remote.cluster.observe import parse
from tests.fakes.facts import host

CLUSTER = {"ID": "c1", "Spec": {"Dispatcher": {"HeartbeatPeriod": 20000000000}}}
MANAGER = {"LocalNodeState": "active", "NodeID": "n1", "ControlAvailable": True, "Error": "",
           "RemoteManagers": [{"NodeID": "n1", "Addr": "10.0.0.1:2377"}], "Cluster": CLUSTER}  # fmt: skip
NODE = ["n2", {"Labels": {"kit.lab": "node"}, "Availability": "active"}, "vm2", {"State": "down", "Addr": "10.0.0.2"}]


def seen(info: dict[str, Any], **sections: str) -> HostFacts:
    text = "".join(f"@@ {name}\n{lines}\n" for name, lines in {"engine": json.dumps(info), **sections}.items())
    return parse(host(1), f"{text}@@ end\n")


def test_a_host_in_no_swarm() -> None:
    swarm = seen({"ServerVersion": "26.1.5", "Swarm": {"LocalNodeState": "inactive", "RemoteManagers": None}}).swarm
    assert (swarm.state, swarm.manager, swarm.managers, swarm.made) == ("inactive", False, (), False)
    assert seen({}).swarm.state == "inactive"


def test_a_manager() -> None:
    facts = seen(
        {
            "Swarm": MANAGER,
            "LiveRestoreEnabled": True,
            "SecurityOptions": ["name=seccomp", "name=userns"],
            "DefaultRuntime": "nvidia",
        },
        nodes=json.dumps(NODE) + "\nError: no such node",
        services=json.dumps(["kit-lab_mpinode", {"kit.cluster": "lab", "kit.spec": "ab"}]) + '\n["web_1", null]',
        secrets=json.dumps(["kit-lab-node-1", {"kit.role": "node", "kit.public": "ssh-ed25519 AAAA x"}]),
    )
    swarm = facts.swarm
    assert swarm.manager
    assert swarm.managers == ("10.0.0.1:2377",)
    assert swarm.heartbeat_s == 20.0
    assert (swarm.live_restore, swarm.remaps_users) == (True, True)
    assert facts.gpu_engine.default_runtime == "nvidia"
    assert swarm.nodes == (
        SwarmNode(
            id="n2", hostname="vm2", address="10.0.0.2", state="down", availability="active", labels={"kit.lab": "node"}
        ),
    )
    assert swarm.services == (
        SwarmService(name="kit-lab_mpinode", cluster="lab", spec="ab"),
        SwarmService(name="web_1", cluster="", spec=""),
    )
    assert swarm.secrets == (SwarmSecret(name="kit-lab-node-1", role="node", public="ssh-ed25519 AAAA x"),)


@pytest.mark.parametrize(
    ("state", "member", "made"),
    [
        ("active", "n1", True),
        ("active", "pending", True),
        ("active", "n9", False),
        ("active", "", False),
        ("inactive", "pending", False),
    ],
)
def test_who_brought_the_host_in(state: str, member: str, made: bool) -> None:
    assert seen({"Swarm": {**MANAGER, "LocalNodeState": state}}, member=member).swarm.made is made


def test_gpus_that_are_advertised() -> None:
    named = [{"NamedResourceSpec": {"Kind": "NVIDIA-GPU", "Value": f"GPU-{n}"}} for n in range(2)]
    discrete = [{"DiscreteResourceSpec": {"Kind": "gpu", "Value": 4}}]
    assert seen({"GenericResources": named}).swarm.resources == {"NVIDIA-GPU": 2}
    assert seen({"GenericResources": discrete}).swarm.resources == {"gpu": 4}
    assert seen({"GenericResources": None}).swarm.resources == {}


def row(name: str, state: str, *, task: bool, cluster: str = "lab", service: str = "mpinode") -> str:
    labels = f"kit.cluster={cluster},kit.service={service},kit.spec=ab,kit.image=kit:cpu-1"
    more = ",com.docker.swarm.task.id=t1" if task else ""
    return json.dumps({"Names": name, "Labels": labels + more, "State": state, "Status": "x", "Image": "sha256:1f"})


def test_of_tasks_the_one_that_runs_counts() -> None:
    rows = [row("new", "created", task=True), row("now", "running", task=True), row("old", "exited", task=True)]
    (container,) = seen({}, containers="\n".join(rows)).containers
    assert (container.name, container.swarm, container.image) == ("now", True, "kit:cpu-1")
    (container,) = seen({}, containers="\n".join([rows[0], rows[2]])).containers
    assert container.name == "new"
    both = [row("a", "exited", task=False), row("b", "exited", task=False), rows[1]]
    assert [c.name for c in seen({}, containers="\n".join(both)).containers] == ["a", "b", "now"]


def test_the_task_of_a_former_head_counts_while_no_other_task_runs() -> None:
    ended = row("head", "exited", task=True, service="mpihead")
    others = row("other", "running", task=True, cluster="other", service="mpihead")

    def names(*rows: str) -> list[str]:
        return [container.name for container in seen({}, containers="\n".join(rows)).containers]

    assert names(ended, row("now", "running", task=True), others) == ["now", "other"]
    assert names(ended, row("new", "created", task=True), others) == ["head", "new", "other"]


def test_folders_that_are_not_there_and_sockets() -> None:
    facts = seen({}, absent="/data/a b\n/srv", udp="0200000A:12B5", engine_ports="10.0.0.2:7946")
    assert facts.absent == {"/data/a b", "/srv"}
    assert facts.udp == {"10.0.0.2:4789"}
    assert facts.swarm.ports == {"10.0.0.2:7946"}
