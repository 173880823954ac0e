"""From facts to the steps of a deploy with Swarm, as data. What comes of them is in tests/flows/test_swarm.py."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from kit.cli.text import plan as render
from kit.model.keys import ClusterKeys
from kit.model.observed import Container, HostFacts
from kit.model.plan import MakeDataFolder, Plan, Step
from kit.model.spec import ClusterSpec
from kit.model.swarm import (
    LEFT,
    ForgetNodes,
    LabelNodes,
    RemoveNode,
    StackDeploy,
    StackRemove,
    SwarmFacts,
    SwarmJoin,
    SwarmLeave,
    SwarmNode,
    SwarmService,
    UnlabelNodes,
    WaitTasks,
)
from kit.model.values import asdict, replace
from kit.plan.cluster import deploy as plans
from kit.plan.cluster.supply import Image
from kit.plan.swarm.leave import Leaving, leaving
from kit.plan.swarm.manager import leavers, role_changes
from tests.fakes.datasets import DATA
from tests.fakes.facts import facts, key, node
from tests.fakes.golden import check_golden

SPEC = ClusterSpec(name="lab", orchestrator="swarm", env={"TOKEN": "s3cret"}, volumes=("/data:/data:ro",))
IMAGE = Image(tag="kit:cpu-0123456789ab", id="sha256:1f", size=1_900_000_000)


def plan_of(observed: Sequence[HostFacts], spec: ClusterSpec = SPEC) -> Plan:
    nodes = [node(int(f.host.name.removeprefix("gpu"))) for f in observed]
    pairs = {nodes[0].name: key("head"), **{item.name: key("node") for item in nodes[1:]}}
    return plans.deploy_plan(spec, observed, nodes, IMAGE, ClusterKeys(client=key("client"), hosts=pairs))


def steps(plan: Plan, kind: type[Step]) -> list[Any]:
    return [step for _, step in plan.steps() if isinstance(step, kind)]


def member(number: int, **more: Any) -> SwarmNode:
    values = {
        "id": f"n{number}", "hostname": f"vm{number}", "address": f"10.0.0.{number}", "state": "ready",
        "availability": "active", "labels": {"kit.lab": "head" if number == 1 else "node"},
    }  # fmt: skip
    return SwarmNode(**{**values, **more})


def manager(*nodes: SwarmNode, **more: Any) -> HostFacts:
    swarm = {"state": "active", "node_id": "n1", "manager": True, "made": True, "nodes": (member(1), *nodes)}
    return facts(1, swarm=SwarmFacts(**{**swarm, **more}))


def worker(number: int) -> HostFacts:
    return facts(number, swarm=SwarmFacts(state="active", node_id=f"n{number}", made=True))


def test_a_first_deploy_of_three_hosts() -> None:
    absent = frozenset({"/data", "/opt/kit/lab/var"})
    plan = plan_of([facts(1, absent=absent), facts(2, absent=absent), facts(3, image_id="sha256:1f")])
    check_golden("swarm/deploy-first.txt", render.plan(plan, verbose=True) + "\n")


def test_folders_of_data_sets_are_made_before_the_stack_starts() -> None:
    spec = replace(SPEC, data=DATA)
    folders = ["/opt/kit/.data/lab/imagenet", "/dev/shm/kit-data/lab/web-text", "/nvme/kit-data/lab/labels"]
    lacking = frozenset(f"{folder}/files" for folder in folders)
    plan = plan_of([facts(1, absent=lacking), facts(2, absent=lacking)], spec)
    made = [(host, step.path) for host, step in plan.steps() if isinstance(step, MakeDataFolder)]
    assert made == [(host, f"{folder}/files") for host in ("gpu1", "gpu2") for folder in folders]
    kinds = [type(step) for _, step in plan.steps()]
    assert kinds.index(StackDeploy) > max(at for at, kind in enumerate(kinds) if kind is MakeDataFolder)
    assert not steps(plan_of([facts(1), facts(2)], spec), MakeDataFolder)


def test_private_keys_tokens_and_settings_never_show() -> None:
    plan = plan_of([facts(1), facts(2)])
    for shown in (repr(plan), str(plan), json.dumps(asdict(plan), default=str), render.plan(plan, verbose=True)):
        assert "PRIVATE" not in shown
        assert "s3cret" not in shown


def test_only_what_a_manager_has_to_do_is_on_the_head() -> None:
    plan = plan_of([facts(1), facts(2)])
    start = next(part for part in plan.rounds if part.name == "start")
    assert [part.host for part in start.hosts] == ["gpu1"]
    join = next(part for part in plan.rounds if part.name == "join")
    assert [part.host for part in join.hosts if part.steps] == ["gpu2"]


@pytest.mark.parametrize(
    ("managers", "server"),
    [
        (("10.0.0.1:2377",), "10.0.0.1:2377"),
        ((), "10.0.0.1:2377"),
        # The swarm was created with the head's address in another network.
        (("192.168.7.1:2377",), "192.168.7.1:2377"),
        (("192.168.7.9:2377", "192.168.7.1:2377"), "192.168.7.1:2377"),
        (("192.168.7.9:2377", "192.168.7.8:2377"), "192.168.7.9:2377"),
        (("192.168.7.9:2377", "10.0.0.1:2377"), "10.0.0.1:2377"),
    ],
)
def test_a_host_joins_where_the_manager_listens(managers: tuple[str, ...], server: str) -> None:
    known = (member(1, address="192.168.7.1"), member(2))
    (join,) = steps(plan_of([manager(nodes=known, managers=managers), worker(2), facts(3)]), SwarmJoin)
    assert join.manager == server
    (first,) = steps(plan_of([facts(1), facts(2)]), SwarmJoin)
    assert first.manager == "10.0.0.1:2377"


@pytest.mark.parametrize(
    ("stranger", "forgotten", "unlabelled"),
    [
        # It is in nobody's way, and none of kit's.
        (member(9, labels={}), (), ()),
        (member(9, labels={"kit.other": "node"}, state="down"), (), ()),
        (member(9, address="10.0.0.2", labels={}, state="down"), ("n9",), ()),
        # A host of the list, back under another id: not even its old self's silence is waited for.
        (member(9, address="10.0.0.2"), ("n9",), ()),
        (member(9), (), ("n9",)),
        (member(9, labels={"kit.lab": LEFT}), (), ()),
        (member(9, labels={"kit.lab": LEFT}, state="down"), ("n9",), ()),
        (member(9, state="down"), ("n9",), ()),
        # Another cluster uses it.
        (member(9, labels={"kit.lab": LEFT, "kit.other": "node"}, state="down"), (), ()),
        (member(9, labels={"kit.lab": "node", "kit.other": "node"}, state="down"), (), ("n9",)),
        (member(9, labels={"kit.lab": LEFT, "kit.other": LEFT}, state="down"), ("n9",), ()),
    ],
)
def test_entries_of_hosts_that_are_gone(
    stranger: SwarmNode, forgotten: tuple[str, ...], unlabelled: tuple[str, ...]
) -> None:
    plan = plan_of([manager(member(2), stranger), worker(2)])
    assert [step.ids for step in steps(plan, ForgetNodes)] == ([forgotten] if forgotten else [])
    assert [step.ids for step in steps(plan, UnlabelNodes)] == ([unlabelled] if unlabelled else [])
    assert steps(plan, LabelNodes) == []


WEB = SwarmService(name="web", cluster="", spec="")
OTHER = SwarmService(name="kit-other_mpihead", cluster="other", spec="ab")


@pytest.mark.parametrize(
    ("stranger", "more", "forgotten", "unlabelled"),
    [
        (member(9, address="10.0.0.2", labels={}, state="down"), {"made": False}, (), ()),
        # It may only restart, and their service runs there again.
        (member(9, labels={"kit.lab": LEFT}, state="down"), {"made": False}, (), ()),
        (member(9, state="down"), {"made": False}, (), ("n9",)),
        (member(9, labels={"kit.lab": LEFT}, state="down"), {"services": (WEB,)}, (), ()),
        (member(9, state="down"), {"services": (WEB,)}, (), ("n9",)),
        # The service of another cluster runs where its label is.
        (member(9, state="down"), {"services": (OTHER,)}, ("n9",), ()),
        # It is one of the hosts, under another ID by now.
        (member(9, address="10.0.0.2", state="down"), {"made": False}, ("n9",), ()),
    ],
)
def test_nothing_of_somebody_elses_swarm_is_removed(
    stranger: SwarmNode, more: dict[str, Any], forgotten: tuple[str, ...], unlabelled: tuple[str, ...]
) -> None:
    plan = plan_of([manager(member(2), stranger, **more), worker(2)])
    assert [step.ids for step in steps(plan, ForgetNodes)] == ([forgotten] if forgotten else [])
    assert [step.ids for step in steps(plan, UnlabelNodes)] == ([unlabelled] if unlabelled else [])
    (wait,) = steps(plan, WaitTasks)
    assert wait.silent == (("n9",) if stranger.labels else ())


@pytest.mark.parametrize(
    ("entry", "changes", "leaves"),
    [
        (member(2), [], []),
        (member(2, labels={}), [], []),
        (member(2, labels={"kit.lab": LEFT}), [], []),
        (member(2, labels={"kit.lab": "head"}), ["gpu2"], []),
        (member(9), [], ["n9"]),
        (member(9, labels={"kit.lab": LEFT}), [], []),
        (member(9, state="down"), [], []),
    ],
)
def test_whose_tasks_end_when_labels_change(entry: SwarmNode, changes: list[str], leaves: list[str]) -> None:
    others = (entry,) if entry.id == "n2" else (member(2), entry)
    head = manager(*others, made=False)
    plan = plan_of([head, worker(2)])
    steps = list(plan.steps())
    assert (role_changes(steps, plan.cluster, head), leavers(steps, head)) == (changes, leaves)


def test_a_deploy_says_which_hosts_nodes_it_recreates() -> None:
    plan = plan_of([manager(member(2)), worker(2)])
    (deploy,) = steps(plan, StackDeploy)
    assert deploy.restarts == ("gpu1", "gpu2")


def as_swarm(observed: HostFacts, *, cluster: str = "lab") -> HostFacts:
    task = Container(
        name="kit-lab_mpinode.x.y", service="mpinode", cluster=cluster, image="kit:cpu-1", spec="ab", running=True,
        status="Up", swarm=True,
    )  # fmt: skip
    return replace(observed, containers=(task,), files={"node.env": "0" * 64})


@pytest.mark.parametrize(
    ("service", "nodes", "leave"),
    [
        (SwarmService(name="kit-lab_mpihead", cluster="lab", spec="ab"), (), True),
        (SwarmService(name="kit-other_mpihead", cluster="other", spec="ab"), (), False),
        (SwarmService(name="web", cluster="", spec=""), (), False),
        (SwarmService(name="kit-lab_mpihead", cluster="lab", spec="ab"), (member(9, labels={}),), False),
        (SwarmService(name="kit-lab_mpihead", cluster="lab", spec="ab"), (member(9, labels={}, state="down"),), True),
        (
            SwarmService(name="kit-lab_mpihead", cluster="lab", spec="ab"),
            (member(2, labels={"kit.lab": "node", "kit.other": "node"}),),
            False,
        ),
    ],
)
def test_compose_takes_over(service: SwarmService, nodes: tuple[SwarmNode, ...], leave: bool) -> None:
    head = as_swarm(manager(member(2), *(n for n in nodes), services=(service,)))
    left = leaving(SPEC, [head, as_swarm(worker(2))])
    taken_off = [step for part in left.before for plan in part.hosts for step in plan.steps]
    assert [type(step) for step in taken_off] == ([StackRemove] if service.cluster == "lab" else [])
    # What Swarm ends in its own time is in nobody's way, and keeps no host from leaving.
    kinds = [RemoveNode, SwarmLeave] if leave else [RemoveNode]
    assert {name: [type(step) for step in steps] for name, steps in left.steps.items()} == {
        "gpu1": kinds,
        "gpu2": kinds,
    }
    every = [step for steps in left.steps.values() for step in steps]
    assert all(step.others == ("n1", "n2") for step in every if isinstance(step, SwarmLeave))


@pytest.mark.parametrize(("others", "leave"), [((), True), ((OTHER,), False)])
@pytest.mark.parametrize("stack", [(SwarmService(name="kit-lab_mpihead", cluster="lab", spec="ab"),), ()])
def test_compose_takes_over_with_another_head(
    stack: tuple[SwarmService, ...], others: tuple[SwarmService, ...], leave: bool
) -> None:
    # gpu2 is the first host now. The stack is at gpu1, the manager.
    left = leaving(SPEC, [as_swarm(worker(2)), as_swarm(manager(member(2), services=(*stack, *others)))])
    taken_off = [(plan.host, type(step)) for part in left.before for plan in part.hosts for step in plan.steps]
    assert taken_off == ([("gpu1", StackRemove)] if stack else [])
    kinds = [RemoveNode, SwarmLeave] if leave else [RemoveNode]
    assert {host: [type(step) for step in steps] for host, steps in left.steps.items()} == {
        "gpu1": kinds,
        "gpu2": kinds,
    }


def test_compose_leaves_a_swarm_alone_that_it_never_used() -> None:
    assert leaving(SPEC, [manager(member(2))]) == Leaving()


@pytest.mark.parametrize(
    ("image_id", "rounds"),
    [
        ("sha256:1f", [("take off", "all"), ("set up", "all"), ("verify", "all")]),
        (None, [("take off", "all"), ("ship", "all"), ("set up", "host"), ("verify", "all")]),
    ],
)
def test_nothing_is_set_up_for_compose_before_the_stack_is_gone(
    image_id: str | None, rounds: list[tuple[str, str]]
) -> None:
    service = SwarmService(name="kit-lab_mpihead", cluster="lab", spec="ab")
    head = as_swarm(manager(member(2), services=(service,)))
    plan = plan_of(
        [replace(f, image_id=image_id) for f in (head, as_swarm(worker(2)))], replace(SPEC, orchestrator="compose")
    )
    assert [(part.name, part.needs) for part in plan.rounds] == rounds
    set_up = next(part for part in plan.rounds if part.name == "set up")
    assert [type(step) for host in set_up.hosts for step in host.steps[:2]] == [RemoveNode, SwarmLeave] * 2
