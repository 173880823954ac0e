"""What prevents a deploy with Swarm: each fault has a host, a cause and a next step."""

from __future__ import annotations

from typing import Any

import pytest

from kit.model.observed import Container, GpuEngine, HostFacts
from kit.model.swarm import SwarmFacts, SwarmNode
from kit.model.values import replace
from kit.plan.swarm import checks as swarm_checks
from tests.fakes.facts import GPU_ENGINE, facts, gpus, node


def member(node_id: str, **more: Any) -> SwarmNode:
    values = {"id": node_id, "hostname": node_id, "address": "10.0.0.9", "state": "ready", "availability": "active"}
    return SwarmNode(**{**values, **more})


def manager(*nodes: SwarmNode, **more: Any) -> SwarmFacts:
    values: dict[str, Any] = {"state": "active", "node_id": "n1", "manager": True, "managers": ("10.0.0.1:2377",)}
    return SwarmFacts(**{**values, "nodes": (member("n1"), *nodes), **more})


def worker(node_id: str, **more: Any) -> SwarmFacts:
    return SwarmFacts(**{"state": "active", "node_id": node_id, "managers": ("10.0.0.7:2377",), **more})


TASK = Container(
    name="kit-lab_mpinode.1",
    service="mpinode",
    cluster="lab",
    image="kit:1",
    spec="s",
    running=True,
    status="",
    swarm=True,
)


def problems(first: dict[str, Any], second: dict[str, Any]) -> list[tuple[str | None, str, str]]:
    observed: list[HostFacts] = [facts(1, **first), facts(2, **second)]
    errors = swarm_checks.problems_of(observed, [node(1), node(2)])
    return [(p.host, p.message, str(p.hint)) for p in errors]


def test_hosts_without_a_swarm_pass() -> None:
    assert problems({}, {}) == []
    assert problems({"compose": None}, {"compose": None}) == []


def test_the_heads_own_swarm_passes() -> None:
    assert problems({"swarm": manager(member("n2"))}, {"swarm": worker("n2")}) == []
    assert problems({"swarm": manager()}, {}) == []


@pytest.mark.parametrize(
    ("first", "second", "host", "message", "hint"),
    [
        ({"swarm": worker("n1")}, {}, "gpu1", "is a worker in a swarm (managers: 10.0.0.7)", "docker node promote n1"),
        ({}, {"swarm": worker("n2")}, "gpu2", "is in a swarm already (managers: 10.0.0.7)", "swarm leave"),
        ({}, {"swarm": worker("n2", manager=True)}, "gpu2", "is in a swarm already", "swarm leave --force"),
        ({"swarm": manager()}, {"swarm": worker("n2")}, "gpu2", "is in another swarm", "swarm leave"),
        (
            {"swarm": manager(member("n2", availability="drain"))},
            {"swarm": worker("n2")},
            "gpu2",
            "is drain",
            "--availability active n2",
        ),
        (
            {"swarm": manager(member("n2", state="down"))},
            {"swarm": worker("n2"), "containers": (TASK,)},
            "gpu2",
            "is down for the swarm: its engine does not reach the head gpu1",
            "open 2377/tcp to the head",
        ),
        ({"swarm": SwarmFacts(state="locked")}, {}, "gpu1", "is locked", "docker swarm unlock"),
        ({}, {"swarm": SwarmFacts(state="error", error="no route")}, "gpu2", "is error: no route", "swarm leave"),
        ({}, {"swarm": SwarmFacts(remaps_users=True)}, "gpu2", "userns-remap", "orchestrator: compose"),
        ({}, {"swarm": SwarmFacts(live_restore=True)}, "gpu2", "live-restore", "daemon.json"),
        ({"engine": "19.03.8"}, {}, "gpu1", "older than 20.10", "orchestrator: compose"),
        (
            {},
            {"gpus": gpus(2), "gpu_engine": GPU_ENGINE},
            "gpu2",
            "default runtime is runc",
            '"default-runtime": "nvidia"',
        ),
        ({}, {"gpus": gpus(2), "gpu_engine": GpuEngine()}, "gpu2", "NVIDIA's toolkit", "nvidia-container-toolkit"),
        ({"listening": frozenset({"0.0.0.0:2377"})}, {}, "gpu1", "0.0.0.0:2377 (tcp)", "stop what listens"),
        ({}, {"listening": frozenset({"10.0.0.2:7946"})}, "gpu2", "10.0.0.2:7946 (tcp)", "stop what listens"),
        ({}, {"udp": frozenset({"0.0.0.0:4789"})}, "gpu2", "0.0.0.0:4789 (udp)", "stop what listens"),
    ],
)
def test_faults(first: dict[str, Any], second: dict[str, Any], host: str, message: str, hint: str) -> None:
    (problem,) = problems(first, second)
    assert problem[0] == host
    assert message in problem[1]
    assert hint in problem[2]


@pytest.mark.parametrize(
    "second",
    [
        # Only a manager listens on 2377; other addresses are nobody's business; the engine keeps its own for a while.
        {"listening": frozenset({"0.0.0.0:2377"})},
        {"listening": frozenset({"192.168.0.2:7946"})},
        {"listening": frozenset({"10.0.0.2:7946"}), "swarm": SwarmFacts(ports=frozenset({"10.0.0.2:7946"}))},
        {"gpus": gpus(2), "gpu_engine": replace(GPU_ENGINE, default_runtime="nvidia")},
    ],
)
def test_what_is_no_fault(second: dict[str, Any]) -> None:
    assert problems({}, second) == []


def test_a_member_that_has_just_started_is_no_fault() -> None:
    """Its containers ended with its engine. The swarm sees it in a moment."""
    first = {"swarm": manager(member("n2", state="down"))}
    assert problems(first, {"swarm": worker("n2")}) == []
    assert problems(first, {"swarm": worker("n2"), "containers": (replace(TASK, running=False),)}) == []


NO_LEADER = "rpc error: code = Unknown desc = The swarm does not have a leader."


@pytest.mark.parametrize(
    ("error", "message"),
    [(NO_LEADER, f"its swarm has no leader: {NO_LEADER}"), ("", "its swarm does not list its nodes")],
)
def test_a_swarm_without_a_leader_is_one_problem_and_nobody_leaves_it(error: str, message: str) -> None:
    """The head lists no node then, not even itself."""
    managers = ("10.0.0.1:2377", "10.0.0.2:2377")
    first = SwarmFacts(state="active", node_id="n1", manager=True, managers=managers, error=error)
    second = SwarmFacts(state="active", node_id="n2", manager=True, managers=managers, error=error)
    ((host, text, hint),) = problems({"swarm": first}, {"swarm": second})
    assert (host, text) == ("gpu1", message)
    assert "managers: 10.0.0.1, 10.0.0.2" in hint
    assert "docker swarm leave" not in hint
    assert hint.endswith("--force-new-cluster --advertise-addr 10.0.0.1 --listen-addr 10.0.0.1:2377")


@pytest.mark.parametrize(
    ("more", "files", "again"),
    [
        ({"made": True}, {"node.env": "a"}, True),
        ({"made": True}, {}, False),
        ({"made": False}, {"node.env": "a"}, False),
        ({"made": True, "manager": True}, {"node.env": "a"}, False),
    ],
)
def test_a_new_vm_of_the_head_is_helped_by_down_and_deploy(
    more: dict[str, Any], files: dict[str, Any], again: bool
) -> None:
    """Only if kit made the swarm for this cluster, and its manager is gone."""
    ((host, _, hint),) = problems({}, {"swarm": worker("n2", **more), "files": files})
    assert host == "gpu2"
    assert ("if the VM of gpu1 was replaced: kit down, then kit deploy; or " in hint) == again
    assert "or leave it: kit ssh gpu2 -- sudo docker swarm leave" in hint


def test_a_member_listens_itself() -> None:
    ports = frozenset({"10.0.0.1:2377", "10.0.0.1:7946"})
    assert problems({"swarm": manager(), "listening": ports}, {}) == []


@pytest.mark.parametrize(
    ("more", "warns"), [({"heartbeat_s": 5.0}, True), ({"heartbeat_s": 20.0}, False), ({"made": True}, False)]
)
def test_a_swarm_that_gives_up_early_is_reported(more: dict[str, Any], warns: bool) -> None:
    warning = swarm_checks.short_heartbeat(facts(1, swarm=manager(**{"heartbeat_s": 5.0, **more})))
    assert (warning is not None) == warns
    assert warning is None or "15 s" in warning
