"""kit deploy and kit down with Swarm on VMs in memory: what they change, leave alone and report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kit.errors import HostsFailed, NotReadyError, StepError
from kit.events import Warned
from kit.flows.cluster.before import at_head, left_behind
from kit.flows.cluster.compose import compose_file
from kit.flows.cluster.deploy import deploy
from kit.flows.cluster.down import down
from kit.flows.cluster.exec import exec_hosts
from kit.flows.cluster.ps import ps
from kit.flows.cluster.stack import stack_file
from kit.flows.context import Context
from kit.flows.run.folders import survey
from kit.model.names import MEMBER
from kit.model.plan import Plan
from kit.plan.cluster import deploy as plans
from kit.plan.cluster.deploy import deploy_plan
from kit.remote.ssh.transport import Completed
from tests.fakes.fleet import Fleet
from tests.fakes.reporter import Remembering
from tests.fakes.swarm import TOKEN, FakeSwarm

Deployed = Callable[..., Context]


@pytest.fixture
def context(fleet: Fleet, reporter: Remembering) -> Deployed:
    def make(**spec: object) -> Context:
        return fleet.context(reporter, **{"orchestrator": "swarm", **spec})  # type: ignore[arg-type]

    return make


def services(fleet: Fleet) -> dict[str, list[str]]:
    return {name: [c.service for c in vm.containers if c.task] for name, vm in fleet.vms.items()}


def swarm_of(fleet: Fleet) -> FakeSwarm:
    swarm = fleet["gpu1"].swarm
    assert swarm is not None
    return swarm


def members(fleet: Fleet) -> list[str]:
    return [m.vm.host.name for m in swarm_of(fleet).members.values() if m.up]


ALL = {"gpu1": ["mpihead"], "gpu2": ["mpinode"], "gpu3": ["mpinode"], "gpu4": ["mpinode"]}


def test_a_first_deploy_forms_the_swarm_and_then_there_is_nothing_to_do(fleet: Fleet, context: Deployed) -> None:
    assert deploy(context()).changed
    assert services(fleet) == ALL
    assert members(fleet) == ["gpu1", *sorted(["gpu2", "gpu3", "gpu4"], key=members(fleet).index)]
    assert [m.labels for m in swarm_of(fleet).members.values()].count({"kit.lab": "node"}) == 3
    fleet.forget_changes()
    again = deploy(context())
    assert again.plan.empty
    assert fleet.changes == {}


def test_a_dry_run_changes_nothing(fleet: Fleet, context: Deployed) -> None:
    plan = deploy(context(), dry_run=True).plan
    assert fleet.changes == {}
    assert [r.name for r in plan.rounds] == [
        "ship",
        "set up",
        "form the swarm",
        "join",
        "start",
        "wait for sshd",
        "verify",
    ]


def test_no_private_key_lies_on_a_disk_and_no_token_is_reported(
    fleet: Fleet, context: Deployed, reporter: Remembering
) -> None:
    result = deploy(context(env={"TOKEN": "s3cret-env"}))
    assert not any(b"PRIVATE" in content for vm in fleet.vms.values() for content, _ in vm.files.values())
    secrets = swarm_of(fleet).secrets
    assert sorted(labels["kit.role"] for labels, _ in secrets.values()) == ["client", "head", "node"]
    assert all(b"PRIVATE KEY" in content for _, content in secrets.values())
    stack_file, mode = fleet["gpu1"].files["/opt/kit/lab/stack.yaml"]
    assert mode == "600"
    assert b"s3cret-env" in stack_file
    for text in (repr(result.plan), repr(reporter.events)):
        assert "PRIVATE" not in text
        assert TOKEN not in text
        assert "s3cret-env" not in text


def test_nodes_share_a_host_key_which_is_not_the_heads(fleet: Fleet, context: Deployed) -> None:
    deploy(context())
    lines = fleet["gpu1"].files["/opt/kit/lab/ssh/known_hosts"][0].decode().splitlines()
    keys = [line.split()[2] for line in lines]
    assert len(keys) == 4
    assert keys[1] == keys[2] == keys[3] != keys[0]


def test_exec_and_ps_find_the_task_whatever_it_is_called(fleet: Fleet, context: Deployed) -> None:
    deploy(context())
    for vm in fleet.vms.values():
        vm.answers["nproc"] = Completed(code=0, stdout=b"8\n", stderr=b"")
    (group,) = exec_hosts(context(), None, ["nproc"]).groups
    assert len(group.hosts) == 4
    # The word of kit.yaml is not asked: the hosts know.
    (group,) = exec_hosts(context(orchestrator="compose"), None, ["nproc"]).groups
    assert len(group.hosts) == 4
    assert {(node.service, node.image[:4]) for node in ps(context()).nodes} == {
        ("mpihead", "kit:"),
        ("mpinode", "kit:"),
    }


def test_a_host_more_joins_and_the_others_keep_their_tasks(
    fleet: Fleet, reporter: Remembering, context: Deployed
) -> None:
    three = ["gpu1", "gpu2", "gpu3"]
    deploy(fleet.context(reporter, names=three, orchestrator="swarm"))
    before = [c.name for c in fleet["gpu2"].containers]
    fleet.forget_changes()
    deploy(context())
    assert services(fleet) == ALL
    assert [c.name for c in fleet["gpu2"].containers] == before
    assert "stack kit-lab" not in fleet["gpu1"].changed


def test_a_host_less_loses_its_task(fleet: Fleet, reporter: Remembering, context: Deployed) -> None:
    deploy(context())
    deploy(fleet.context(reporter, names=["gpu1", "gpu2"], orchestrator="swarm"))
    assert services(fleet) == {**ALL, "gpu3": [], "gpu4": []}
    again = deploy(fleet.context(reporter, names=["gpu1", "gpu2"], orchestrator="swarm"))
    assert again.plan.empty
    # The hint of the warning removes it. Then its entry goes, too.
    down(fleet.context(reporter, names=["gpu4"], orchestrator="swarm"))
    assert not any(path.startswith("/opt/kit") for path in fleet["gpu4"].files)
    deploy(fleet.context(reporter, names=["gpu1", "gpu2"], orchestrator="swarm"))
    assert len(swarm_of(fleet).members) == 3


def test_a_host_less_spares_an_active_run(fleet: Fleet, reporter: Remembering, context: Deployed) -> None:
    """Swarm ends the node of the host that left, and the ranks on it."""
    deploy(context())
    fleet["gpu1"].living.append("20260101-000000-abcd")
    fleet.forget_changes()
    less = fleet.context(reporter, names=["gpu1", "gpu2", "gpu3"], orchestrator="swarm")
    with pytest.raises(NotReadyError, match="20260101-000000-abcd"):
        deploy(less)
    assert fleet.changes == {}
    deploy(less, force=True)
    assert services(fleet) == {**ALL, "gpu4": []}
    # gpu4 has ended. Nothing keeps a deploy that ends no node.
    assert deploy(less).plan.empty


def test_a_changed_setting_recreates_the_stack_and_spares_a_run(fleet: Fleet, context: Deployed) -> None:
    deploy(context())
    fleet["gpu1"].living.append("20260101-000000-abcd")
    with pytest.raises(NotReadyError, match="20260101-000000-abcd"):
        deploy(context(shm_size="2gb"))
    before = {name: [c.name for c in vm.containers] for name, vm in fleet.vms.items()}
    deploy(context(shm_size="2gb"), force=True)
    after = {name: [c.name for c in vm.containers] for name, vm in fleet.vms.items()}
    assert services(fleet) == ALL
    assert all(after[name] != before[name] for name in after)
    assert deploy(context(shm_size="2gb")).plan.empty


def test_a_host_that_was_recreated_comes_back_under_another_id(fleet: Fleet, context: Deployed) -> None:
    deploy(context())
    lost = fleet["gpu3"]
    swarm_of(fleet).members[lost.node_id].up = False
    lost.swarm, lost.node_id, lost.containers, lost.files = None, "", [], {}
    lost.images.clear()
    lost.folders.clear()
    fleet.forget_changes()
    deploy(context())
    assert services(fleet) == ALL
    assert len(swarm_of(fleet).members) == 4
    assert "forget 1 nodes" in fleet["gpu1"].changed
    assert set(fleet.changes) == {"gpu1", "gpu3"}
    assert deploy(context()).plan.empty


def test_a_head_that_was_recreated_needs_down_and_deploy(fleet: Fleet, context: Deployed) -> None:
    """The swarm lost its only manager. The hint is a way that works."""
    deploy(context())
    lost = fleet["gpu1"]
    lost.swarm, lost.node_id, lost.containers, lost.files = None, "", [], {}
    lost.folders.clear()
    with pytest.raises(HostsFailed) as caught:
        deploy(context())
    assert {failure.host for failure in caught.value.failures} == {"gpu2", "gpu3", "gpu4"}
    assert all("kit down, then kit deploy" in str(failure.hint) for failure in caught.value.failures)
    down(context())
    deploy(context())
    assert services(fleet) == ALL


def test_a_tasks_mount_that_fails_is_reported(fleet: Fleet, context: Deployed) -> None:
    fleet["gpu3"].faults.add("stack fails")
    with pytest.raises(StepError) as caught:
        deploy(context())
    assert caught.value.host == "gpu1"
    assert "invalid mount config" in caught.value.message
    fleet["gpu3"].faults.clear()
    deploy(context())
    assert services(fleet) == ALL


def test_a_member_that_is_down_is_named_if_it_gets_no_task(
    fleet: Fleet, context: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Swarm then has no task for it, and so no reason."""
    deploy(context())
    lost = fleet["gpu3"]
    swarm_of(fleet).members[lost.node_id].up = False
    lost.containers.clear()
    monkeypatch.setattr("kit.plan.swarm.manager.TASKS_TIMEOUT_S", 0.0)
    with pytest.raises(StepError, match=r"no task on gpu3 \(10.0.0.3\), which is down for the swarm") as caught:
        deploy(context())
    assert "2377/tcp" in str(caught.value.hint)
    assert "just started" in str(caught.value.hint)


def test_an_engine_that_cannot_raise_limits_gets_the_hint_of_kit_local(fleet: Fleet, context: Deployed) -> None:
    fleet["gpu3"].faults.add("low limits")
    with pytest.raises(StepError, match="error setting rlimit type 8: operation not permitted") as caught:
        deploy(context())
    assert caught.value.hint == "this engine cannot raise limits: set ulimits.memlock to default in kit.yaml"


def test_a_server_that_mounts_nothing_is_named(fleet: Fleet, context: Deployed) -> None:
    fleet["gpu3"].faults.add("mount fails")
    shared = {"web": {"from": "nfs://10.0.0.9/web", "to": "/web", "stage": "none"}}
    with pytest.raises(StepError) as caught:
        deploy(context(data=shared))
    assert str(caught.value) == (
        "gpu3: the data set web: the engine cannot mount NFS from 10.0.0.9: connection refused"
    )
    # The host joined with an earlier deploy, so its name is not known here.
    with pytest.raises(StepError, match=r"connection refused on the node \S+ of the swarm") as again:
        deploy(context(data=shared))
    assert again.value.host == "gpu1"


def test_folders_of_data_sets_are_made(fleet: Fleet, context: Deployed) -> None:
    web = {"web": {"from": "s3://corpus/web", "to": "/web", "stage": "ram", "size": "1gb"}}
    deploy(context(data=web))
    assert "make /dev/shm/kit-data/lab/web/files" in fleet["gpu4"].changed
    assert services(fleet) == ALL
    assert deploy(context(data=web)).plan.empty


def test_a_folder_that_a_volume_names_is_made(fleet: Fleet, context: Deployed) -> None:
    deploy(context(volumes=["/data/imagenet:/data:ro"]))
    assert "make /data/imagenet" in fleet["gpu4"].changed
    assert services(fleet) == ALL
    assert deploy(context(volumes=["/data/imagenet:/data:ro"])).plan.empty


def test_what_a_node_has_of_its_own_changed(fleet: Fleet, context: Deployed) -> None:
    deploy(context())
    before = [c.name for c in fleet["gpu3"].containers]
    fleet["gpu3"].files["/opt/kit/lab/node.env"] = (b"KIT_NODE=gpu3\nKIT_ADDRESS=10.0.0.33\n", "644")
    fleet.forget_changes()
    deploy(context())
    assert [c.name for c in fleet["gpu3"].containers] != before
    assert services(fleet) == ALL
    assert "remove node" in fleet["gpu3"].changed
    assert "remove node" not in fleet["gpu2"].changed


def test_a_deploy_that_ends_before_a_node_restarts_is_finished_by_the_next_one(
    fleet: Fleet, context: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new variables are on the disk, and the container still has the old ones."""
    deploy(context())
    before = [c.name for c in fleet["gpu3"].containers]
    fleet["gpu3"].files["/opt/kit/lab/node.env"] = (b"KIT_NODE=gpu3\nKIT_ADDRESS=10.0.0.33\n", "644")
    with monkeypatch.context() as patch:
        patch.setattr(type(fleet["gpu3"]), "_remove_node", lambda *_: Completed(code=1, stdout=b"", stderr=b"busy"))
        with pytest.raises(StepError, match="the node's container could not be removed: busy"):
            deploy(context())
    assert [c.name for c in fleet["gpu3"].containers] == before
    deploy(context())
    assert [c.name for c in fleet["gpu3"].containers] != before
    assert services(fleet) == ALL
    assert deploy(context()).plan.empty


@pytest.mark.parametrize(("first", "second"), [("compose", "swarm"), ("swarm", "compose")])
def test_from_one_to_the_other(fleet: Fleet, context: Deployed, first: str, second: str) -> None:
    deploy(context(orchestrator=first))
    deploy(context(orchestrator=second))
    by_swarm = second == "swarm"
    assert {name: [(c.service, c.task) for c in vm.containers] for name, vm in fleet.vms.items()} == {
        name: [(service, by_swarm)] for name, (service,) in ALL.items()
    }
    assert [vm.swarm is not None for vm in fleet.vms.values()] == [by_swarm] * 4
    assert all((MEMBER in vm.files) == by_swarm for vm in fleet.vms.values())
    private = [path for vm in fleet.vms.values() for path, (c, _) in vm.files.items() if b"PRIVATE KEY" in c]
    assert len(private) == (0 if by_swarm else 5)
    assert deploy(context(orchestrator=second)).plan.empty


def test_the_way_back_with_another_head(fleet: Fleet, reporter: Remembering, context: Deployed) -> None:
    deploy(context())
    back = fleet.context(reporter, names=["gpu2", "gpu1", "gpu3", "gpu4"])
    deploy(back)
    assert {name: [(c.service, c.task) for c in vm.containers] for name, vm in fleet.vms.items()} == {
        name: [("mpihead" if name == "gpu2" else "mpinode", False)] for name in ALL
    }
    assert all(vm.swarm is None and MEMBER not in vm.files for vm in fleet.vms.values())
    assert deploy(back).plan.empty


def test_the_way_back_spares_a_run_that_begins_after_the_look(
    fleet: Fleet, reporter: Remembering, context: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(context())
    planned = []

    def plan(*words: Any, **more: Any) -> Plan:
        planned.append(deploy_plan(*words, **more))
        fleet["gpu1"].living = ["20261121-101500-3fa2"] if len(planned) == 2 else []
        return planned[-1]

    monkeypatch.setattr(plans, "deploy_plan", plan)
    with pytest.raises(NotReadyError, match="is active, and this deploy would end it; no container was changed"):
        deploy(fleet.context(reporter))
    assert services(fleet) == ALL


def test_the_way_back_without_the_head_says_what_is_lost_with_it(
    fleet: Fleet, reporter: Remembering, context: Deployed
) -> None:
    deploy(context())
    deploy(fleet.context(reporter, names=["gpu2", "gpu3"]), dry_run=True)
    (warned,) = reporter.warnings
    assert warned.text.startswith("gpu[2-3] have nodes of the cluster, and no host has its record, so the earlier head")


@pytest.mark.parametrize("names", [["gpu3", "gpu4"], ["gpu4", "gpu3"]])
def test_ranks_of_another_cluster_in_a_swarm_are_spared(fleet: Fleet, reporter: Remembering, names: list[str]) -> None:
    deploy(fleet.context(reporter, names=["gpu1", "gpu2", "gpu3"], orchestrator="swarm"))
    fleet["gpu3"].ranks = [("20261121-101500-3fa2", 2, 41)]
    fleet.forget_changes()
    with pytest.raises(NotReadyError, match="gpu3 runs ranks of a cluster called lab whose head is not in hosts"):
        deploy(fleet.context(reporter, names=names))
    # Swarm itself keeps the host.
    with pytest.raises(StepError, match=r"is a worker in a swarm|is in a swarm already"):
        deploy(fleet.context(reporter, names=names, orchestrator="swarm"), force=True)
    for orchestrator in ("compose", "swarm"):
        with pytest.raises(NotReadyError, match="gpu3 runs ranks of a cluster called lab"):
            down(fleet.context(reporter, names=names, orchestrator=orchestrator))
    assert fleet.changes == {}


@pytest.mark.parametrize(("first", "second"), [("compose", "swarm"), ("swarm", "compose"), ("swarm", "swarm")])
def test_what_a_host_that_leaves_keeps(
    fleet: Fleet, reporter: Remembering, context: Deployed, first: str, second: str
) -> None:
    keeps = "still runs its node" if first == "compose" else "keeps its files"
    deploy(context(orchestrator=first))
    fewer = fleet.context(reporter, names=["gpu1", "gpu2", "gpu3"], orchestrator=second)
    assert left_behind(fewer) == ("gpu4",)
    deploy(fewer)
    before_down, before_deploy = (warning.text for warning in reporter.warnings)
    assert before_deploy == f"gpu4 (10.0.0.4) is no longer in hosts, and {keeps}"
    assert ("leaves its node" in before_down) == (first == "compose")
    assert bool(fleet["gpu4"].containers) == (first == "compose")


def test_the_way_back_keeps_a_swarm_that_others_use(fleet: Fleet, context: Deployed) -> None:
    deploy(context())
    deploy(context(name="other", ssh_port=34))
    deploy(context(orchestrator="compose"))
    assert all(vm.swarm is not None for vm in fleet.vms.values())
    assert {c.labels["kit.cluster"] for c in fleet["gpu2"].containers if c.task} == {"other"}


def test_down_leaves_nothing_and_twice_does_nothing(fleet: Fleet, context: Deployed) -> None:
    deploy(context())
    result = down(context())
    assert all(result.removed.values())
    assert all(vm.swarm is None and not vm.containers and not vm.files for vm in fleet.vms.values())
    assert not any(down(context()).removed.values())
    deploy(context())
    assert services(fleet) == ALL


def test_down_of_one_cluster_leaves_the_others_swarm(fleet: Fleet, context: Deployed) -> None:
    deploy(context())
    deploy(context(name="other", ssh_port=34))
    down(context())
    assert len(members(fleet)) == 4
    assert {c.labels["kit.cluster"] for vm in fleet.vms.values() for c in vm.containers} == {"other"}
    assert deploy(context(name="other", ssh_port=34)).plan.empty
    down(context(name="other", ssh_port=34))
    assert all(vm.swarm is None for vm in fleet.vms.values())


def foreign(fleet: Fleet, *names: str) -> FakeSwarm:
    """A swarm that somebody made by hand; the first is its manager."""
    swarm = FakeSwarm(manager=fleet[names[0]])
    for name in names:
        swarm.add(fleet[name])
    return swarm


def test_a_swarm_that_is_there_is_used_and_never_left(fleet: Fleet, context: Deployed) -> None:
    swarm = foreign(fleet, "gpu1", "gpu2", "gpu3")
    deploy(context())
    assert services(fleet) == ALL
    assert members(fleet) == ["gpu1", "gpu2", "gpu3", "gpu4"]
    down(context())
    # Only gpu4 was brought in by kit.
    assert members(fleet) == ["gpu1", "gpu2", "gpu3"]
    assert swarm.services == {}
    assert swarm.secrets == {}
    assert not any(member.labels for member in swarm.members.values())


def test_a_service_of_somebody_elses_keeps_the_swarm(fleet: Fleet, context: Deployed) -> None:
    deploy(context())
    swarm_of(fleet).services["web"] = {
        "deploy": {"placement": {"constraints": ["node.labels.web == yes"]}},
        "labels": {"kit.spec": ""},
    }
    down(context())
    assert len(members(fleet)) == 4


@pytest.mark.parametrize(
    ("swarms", "host", "message"),
    [
        ([("gpu2", "gpu1")], "gpu1", "is a worker in a swarm"),
        ([("gpu2", "gpu3")], None, "is in a swarm already"),
        ([("gpu1",), ("gpu3",)], "gpu3", "is in another swarm"),
    ],
)
def test_a_swarm_that_cannot_be_used_is_reported_before_anything_is_changed(
    fleet: Fleet, context: Deployed, swarms: list[tuple[str, ...]], host: str | None, message: str
) -> None:
    for names in swarms:
        foreign(fleet, *names)
    with pytest.raises((StepError, HostsFailed)) as caught:
        deploy(context())
    failures = caught.value.failures if isinstance(caught.value, HostsFailed) else [caught.value]
    assert host is None or host in {failure.host for failure in failures}
    assert any(message in failure.message for failure in failures)
    assert all(failure.hint for failure in failures)
    assert fleet.changes == {}


def test_a_firewall_between_the_hosts_is_reported_with_the_ports(fleet: Fleet, context: Deployed) -> None:
    fleet["gpu4"].faults.add("firewall")
    with pytest.raises(StepError) as caught:
        deploy(context())
    assert caught.value.host == "gpu4"
    assert "2377/tcp" in str(caught.value.hint)
    assert "stack kit-lab" not in fleet["gpu1"].changed
    fleet["gpu4"].faults.clear()
    deploy(context())
    assert services(fleet) == ALL


def test_down_without_the_head_takes_the_others_out_of_the_swarm(fleet: Fleet, context: Deployed) -> None:
    deploy(context())
    fleet["gpu1"].faults.add("unreachable")
    for name in ("gpu2", "gpu3", "gpu4"):
        # Nobody starts them again: their manager is gone.
        vm = fleet[name]
        vm.swarm = FakeSwarm(manager=fleet["gpu1"], members=dict(swarm_of(fleet).members))
    with pytest.raises(Exception, match="gpu1"):
        down(context())
    assert all(fleet[name].swarm is None and not fleet[name].containers for name in ("gpu2", "gpu3", "gpu4"))


def test_down_stops_if_the_stack_cannot_be_removed(
    fleet: Fleet, context: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Swarm would start the containers again that kit removes from the others."""
    deploy(context())
    monkeypatch.setattr(
        type(fleet["gpu1"]), "_swarm_remove", lambda *_: Completed(code=1, stdout=b"", stderr=b"no quorum")
    )
    with pytest.raises(StepError, match="the stack could not be removed: no quorum") as caught:
        down(context())
    assert caught.value.host == "gpu1"
    assert services(fleet) == ALL


def test_a_manager_that_left_takes_only_itself_down(fleet: Fleet, reporter: Remembering, context: Deployed) -> None:
    """The hint of kit deploy names it alone. Its swarm has the stack of the others."""
    deploy(context())
    swarm_of(fleet).promoted.append(fleet["gpu3"])
    deploy(fleet.context(reporter, names=["gpu1", "gpu2", "gpu4"], orchestrator="swarm"))
    fleet.forget_changes()
    down(fleet.context(reporter, names=["gpu3"], orchestrator="swarm"))
    assert services(fleet) == {**ALL, "gpu3": []}
    assert set(fleet.changes) == {"gpu3"}
    assert not any(path.startswith("/opt/kit/lab") for path in fleet["gpu3"].files)
    assert deploy(fleet.context(reporter, names=["gpu1", "gpu2", "gpu4"], orchestrator="swarm")).plan.empty


def test_down_of_a_manager_that_is_no_head(fleet: Fleet, reporter: Remembering, context: Deployed) -> None:
    deploy(context())
    swarm_of(fleet).promoted.append(fleet["gpu3"])
    fleet.forget_changes()
    with pytest.raises(StepError, match="is a node of lab, whose head is gpu1") as caught:
        down(fleet.context(reporter, names=["gpu3", "gpu2"], orchestrator="swarm"))
    assert caught.value.host == "gpu3"
    assert fleet.changes == {}
    # With the head somewhere in the file, the whole cluster goes.
    down(fleet.context(reporter, names=["gpu3", "gpu2", "gpu1", "gpu4"], orchestrator="swarm"))
    assert not any(services(fleet).values())


def test_down_of_a_worker_that_comes_first(fleet: Fleet, reporter: Remembering, context: Deployed) -> None:
    """Its stack would stay on the manager, which would start the nodes again."""
    deploy(context())
    fleet.forget_changes()
    with pytest.raises(StepError, match=r"is a worker in a swarm \(managers: 10.0.0.1\)") as caught:
        down(fleet.context(reporter, names=["gpu2", "gpu1", "gpu3", "gpu4"], orchestrator="swarm"))
    assert (caught.value.host, "kit ssh gpu2 -- sudo docker swarm leave" in str(caught.value.hint)) == ("gpu2", True)
    assert fleet.changes == {}


def test_a_manager_that_a_former_host_keeps_is_named(fleet: Fleet, reporter: Remembering, context: Deployed) -> None:
    deploy(context())
    three = ["gpu1", "gpu2", "gpu3"]
    deploy(fleet.context(reporter, names=three, orchestrator="swarm"))
    reporter.events.clear()
    down(fleet.context(reporter, names=three, orchestrator="swarm"))
    assert members(fleet) == ["gpu1", "gpu4"]
    (warned,) = reporter.warnings
    assert warned.text == "gpu1 still manages its swarm: gpu4 is a member"
    assert warned.hint == (
        "if gpu4 has just left it, wait a minute, then: kit down; otherwise, to end the swarm: "
        "sudo docker swarm leave on gpu4, then sudo docker swarm leave --force on gpu1"
    )


def test_the_stack_file_is_printed_as_on_the_head(fleet: Fleet, context: Deployed) -> None:
    before = stack_file(context()).text
    assert "docker secret create kit-lab-node-by-hand" in before
    assert fleet.changes == {}
    deploy(context(env={"A": "b"}))
    printed = stack_file(context(env={"A": "b"})).text
    assert printed.encode() == fleet["gpu1"].files["/opt/kit/lab/stack.yaml"][0]
    assert "by-hand" not in printed


@pytest.mark.parametrize("name", ["gpu1", "gpu3"])
def test_the_compose_file_is_printed_as_on_its_host(fleet: Fleet, context: Deployed, name: str) -> None:
    compose = context(orchestrator="compose")
    assert "kit.host-key" not in compose_file(compose, name).text
    deploy(compose)
    assert compose_file(compose, name).text.encode() == fleet[name].files["/opt/kit/lab/compose.yaml"][0]
    assert compose_file(compose, None).host == "gpu1"


def test_a_swarm_of_somebody_elses_that_gives_up_early_is_reported(
    fleet: Fleet, context: Deployed, reporter: Remembering
) -> None:
    swarm = foreign(fleet, "gpu1")
    assert swarm.manager is fleet["gpu1"]
    sections = fleet["gpu1"]._swarm_info()
    beat = {"Cluster": {"Spec": {"Dispatcher": {"HeartbeatPeriod": 5_000_000_000}}}}
    fleet["gpu1"].info["Swarm"] = {**sections, **beat}
    deploy(context(), dry_run=True)
    (warned,) = (event for event in reporter.events if isinstance(event, Warned))
    assert "15 s" in warned.text
    assert "--dispatcher-heartbeat 20s" in str(warned.hint)


def test_a_deploy_that_failed_while_hosts_joined_leaves_no_swarm_after_down(fleet: Fleet, context: Deployed) -> None:
    fleet["gpu4"].faults.add("firewall")
    with pytest.raises(StepError):
        deploy(context())
    assert fleet["gpu2"].swarm is not None
    down(context())
    assert all(vm.swarm is None and not vm.files for vm in fleet.vms.values())


def with_two_heads(fleet: Fleet, reporter: Remembering) -> None:
    """Deploy with Compose on gpu1 and gpu2, then with Swarm on gpu2 and gpu3: both heads have a record."""
    deploy(fleet.context(reporter, names=["gpu1", "gpu2"]))
    deploy(fleet.context(reporter, names=["gpu2", "gpu3"], orchestrator="swarm"))
    fleet.forget_changes()


def test_down_removes_a_stack_that_is_not_on_the_first_host(fleet: Fleet, reporter: Remembering) -> None:
    """gpu1 has a record, too, so it is taken for the head."""
    with_two_heads(fleet, reporter)
    context = fleet.context(reporter, names=["gpu1", "gpu2", "gpu3"])
    state = survey(context)
    assert state.stacks == ("gpu2",)
    assert at_head(context, state.failures) is context
    swarm = fleet["gpu2"].swarm
    assert swarm is not None
    reporter.events.clear()
    result = down(context, stacks=state.stacks)
    assert not swarm.services
    assert not swarm.secrets
    assert all(vm.swarm is None and not vm.containers and not vm.files for vm in fleet.vms.values())
    assert "membership in the swarm" in result.removed["gpu2"]
    assert reporter.warnings == []


def test_down_does_not_forget_a_host_that_keeps_a_stack(fleet: Fleet, reporter: Remembering) -> None:
    """As if gpu2 had not said in the survey that it has one."""
    with_two_heads(fleet, reporter)
    context = fleet.context(reporter, names=["gpu1", "gpu2", "gpu3"])
    with pytest.raises(StepError) as caught:
        down(context)
    assert str(caught.value) == (
        "gpu2: the cluster could not be removed: Swarm still runs the stack of lab, which this host manages"
    )
    assert caught.value.hint == "put gpu2 first in the hosts file, then: kit down"
    assert "/opt/kit/lab/stack.yaml" in fleet["gpu2"].files
    # An earlier kit removed the folder all the same.
    for path in [path for path in fleet["gpu2"].files if path.startswith("/opt/kit/lab/")]:
        del fleet["gpu2"].files[path]
    with pytest.raises(
        StepError, match="gpu2: the host could not leave the swarm: Swarm still runs the stack"
    ) as again:
        down(context)
    assert again.value.hint == caught.value.hint
    down(fleet.context(reporter, names=["gpu2", "gpu1", "gpu3"]))
    assert all(vm.swarm is None and not vm.containers and not vm.files for vm in fleet.vms.values())


def test_a_deploy_that_stops_before_the_stack_does_not_call_hosts_done(fleet: Fleet, context: Deployed) -> None:
    for name in ("gpu3", "gpu4"):
        fleet[name].faults.add("firewall")
    with pytest.raises(HostsFailed, match=r"^2 of 4 hosts failed; the nodes were not started$"):
        deploy(context())
    assert not any(services(fleet).values())
