"""From facts to steps: a first deploy, none, and one for each way in which a cluster can differ."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal

import pytest
import yaml

from kit.model.keys import ClusterKeys, KeyPair
from kit.model.observed import HostFacts
from kit.model.plan import (
    VERIFY,
    ComposeUp,
    DeleteFile,
    MakeDataFolder,
    Plan,
    Ship,
    Step,
    VerifyPeers,
    WaitSshd,
    WriteFile,
)
from kit.model.spec import ClusterSpec
from kit.model.values import asdict, replace
from kit.plan.cluster import compose, data
from kit.plan.cluster import deploy as plans
from kit.plan.cluster.dialect import HeldKeys
from kit.plan.cluster.network import pick_interface
from kit.plan.cluster.nodes import nodes_of, slots_of
from kit.plan.cluster.supply import Image
from tests.fakes.datasets import DATA
from tests.fakes.deployed import after_steps, content_of
from tests.fakes.facts import GPU_ENGINE, facts, gpus, host, interfaces, key, keys
from tests.fakes.golden import check_golden
from tests.fakes.plans import check_of, plan_text, steps_of

SPEC = ClusterSpec(name="lab", env={"TOKEN": "s3cret"})
IMAGE = Image(tag="kit:cpu-0123456789ab", id="sha256:1f", size=1_900_000_000)


def keys_for(observed: Sequence[HostFacts]) -> ClusterKeys:
    """As the flow makes them: what hosts hold, and a new one where they hold none."""
    held = compose.held_keys(observed)
    client, hosts, names = held.client, held.hosts, list(held.owners)
    return ClusterKeys(
        client=KeyPair(public=client) if client else key("client-of-" + names[0]),
        hosts={name: KeyPair(public=hosts[name]) if name in hosts else key("host-" + name) for name in names},
    )


def plan_of(observed: Sequence[HostFacts], spec: ClusterSpec = SPEC) -> Plan:
    nodes, problems = nodes_of(observed, spec)
    assert problems == []
    assert plans.problems_of(observed, spec, nodes, IMAGE) == []
    return plans.deploy_plan(spec, observed, nodes, IMAGE, keys_for(observed))


def carried_out(observed: Sequence[HostFacts], plan: Plan) -> list[HostFacts]:
    """Every step, those of the check, too: it passed."""
    done: dict[str, list[Step]] = {}
    for name, step in plan.steps():
        done.setdefault(name, []).append(step)
    return [after_steps(f, done.get(f.host.name, ())) for f in observed]


def deployed(*numbers: int, spec: ClusterSpec = SPEC) -> list[HostFacts]:
    new = [facts(number) for number in numbers]
    return carried_out(new, plan_of(new, spec))


def steps(plan: Plan, name: str) -> tuple[Step, ...]:
    assert name in plan.hosts
    return steps_of(plan, name)


def written(plan: Plan, name: str) -> list[str]:
    return [step.path for step in steps(plan, name) if isinstance(step, WriteFile)]


def network_file(plan: Plan) -> bytes:
    (step,) = (s for s in steps(plan, plan.hosts[0]) if isinstance(s, WriteFile) and s.path == "network")
    return content_of(step)


def kinds(plan: Plan, name: str) -> list[str]:
    return [type(step).__name__ for step in steps(plan, name)]


def test_a_first_deploy_of_three_hosts() -> None:
    new = [facts(1), facts(2, gpus=gpus(2), gpu_engine=GPU_ENGINE), facts(3, host=host(3, slots=4))]
    check_golden("deploy-first.txt", plan_text(plan_of(new)))


def test_nothing_to_do() -> None:
    plan = plan_of(deployed(1, 2, 3))
    assert plan.empty
    assert plan.rounds == ()


def test_private_keys_and_settings_never_show() -> None:
    plan = plan_of([facts(1), facts(2)])
    private = [step for _, step in plan.steps() if isinstance(step, WriteFile) and step.mode == "600"]
    assert any(b"PRIVATE" in content_of(step) for step in private)
    assert any(b"s3cret" in content_of(step) for step in private)
    for shown in (repr(plan), str(plan), f"{plan}", json.dumps(asdict(plan), default=str), plan_text(plan)):
        assert "PRIVATE" not in shown
        assert "s3cret" not in shown


def test_every_private_thing_is_roots_alone() -> None:
    plan = plan_of([facts(1), facts(2)])
    for step in (step for _, step in plan.steps() if isinstance(step, WriteFile)):
        secret = b"PRIVATE" in content_of(step) or b"s3cret" in content_of(step)
        # The record has digests of variables, and the check's file follows from them.
        alone = secret or step.path in ("ssh/authorized_keys", "cluster.json", "verified")
        assert step.mode == ("600" if alone else "644"), step.path


def test_only_the_head_gets_the_client_key() -> None:
    plan = plan_of([facts(1), facts(2)])
    assert {"ssh/id_ed25519", "ssh/known_hosts", "ssh/config", "hosts"} <= set(written(plan, "gpu1"))
    assert written(plan, "gpu2") == [
        "compose.yaml", "ssh/host_ed25519.pub", "ssh/host_ed25519", "ssh/authorized_keys", "node-hosts",
    ]  # fmt: skip


def test_a_new_host() -> None:
    """The others keep their containers, although mpirun's network grows."""
    plan = plan_of([*deployed(1, 2), facts(4)])
    assert network_file(plan_of([facts(1), facts(2)])) == b"10.0.0.0/30\n"
    assert network_file(plan) == b"10.0.0.0/29\n"
    # The record is about hosts that the check did not reach.
    assert kinds(plan, "gpu1") == ["DeleteFile"] + ["WriteFile"] * 5
    assert written(plan, "gpu1") == ["cluster.json", "ssh/known_hosts", "ssh/config", "hosts", "network"]
    assert kinds(plan, "gpu2") == []
    assert kinds(plan, "gpu4")[0] == "Ship"
    assert kinds(plan, "gpu4")[-2:] == ["ComposeUp", "WaitSshd"]


@pytest.mark.parametrize(
    ("network", "bridge", "expected"),
    [
        ("auto", "10.0.0.3/30", b"10.0.0.1/32,10.0.0.2/32\n"),
        ("10.0.0.0/8", "10.200.0.1/16", b"10.0.0.1/32,10.0.0.2/32\n"),
        ("auto", "10.0.0.5/30", b"10.0.0.0/30\n"),
        ("10.0.0.0/24", "10.200.0.1/16", b"10.0.0.0/24\n"),
    ],
)
def test_an_address_that_is_not_mpis_but_lies_in_its_network(network: str, bridge: str, expected: bytes) -> None:
    """A bridge of Compose with the same address on every VM hangs Open MPI just as docker0 does."""
    seen = [facts(1), facts(2, interfaces=interfaces(lo="127.0.0.1/8", br_5f1=bridge, eth0="10.0.0.2/24"))]
    plan = plan_of(seen, replace(SPEC, network=network))
    assert network_file(plan) == expected
    (record,) = (s for s in steps(plan, "gpu1") if isinstance(s, WriteFile) and s.path == "cluster.json")
    assert f"{json.loads(content_of(record))['network']}\n".encode() == expected


def test_every_change_is_verified_from_the_head() -> None:
    plan = plan_of([*deployed(1, 2), facts(3)])
    after = check_of(plan)
    assert {host for host, step in plan.steps() if step in after} == {"gpu1"}
    verify, write = after
    # In this order: the result of an earlier check must be gone before the record changes, or if this check fails.
    first, second, *_ = steps(plan, "gpu1")
    assert isinstance(first, DeleteFile)
    assert isinstance(second, WriteFile)
    assert (first.path, second.path) == ("verified", "cluster.json")
    assert isinstance(verify, VerifyPeers)
    assert isinstance(write, WriteFile)
    assert write.path == "verified"
    assert verify.container == "kit-lab-mpihead"
    assert verify.peers == (("gpu1", "10.0.0.1"), ("gpu2", "10.0.0.2"), ("gpu3", "10.0.0.3"))


def test_an_earlier_check_is_deleted_once() -> None:
    first, second = deployed(1, 2)
    plan = plan_of([first, replace(second, containers=(), listening=frozenset())])
    assert kinds(plan, "gpu1") == []
    assert after_kinds(plan) == ["DeleteFile", "VerifyPeers", "WriteFile"]


def after_kinds(plan: Plan) -> list[str]:
    return [type(step).__name__ for step in check_of(plan)]


def hosts_only(observed: Sequence[HostFacts], plan: Plan) -> list[HostFacts]:
    """The hosts' steps are done, and then kit, or the line to the head, ended."""
    return [after_steps(f, steps(plan, f.host.name)) for f in observed]


def test_a_check_that_never_came_is_made_up_for() -> None:
    new = [facts(1), facts(2)]
    seen = hosts_only(new, plan_of(new))
    plan = plan_of(seen)
    assert list(plan.steps(without=VERIFY)) == []
    assert after_kinds(plan) == ["VerifyPeers", "WriteFile"]
    assert plan_of(carried_out(seen, plan)).empty


def test_a_check_that_never_came_after_a_change_is_made_up_for() -> None:
    """The older check spoke of other containers."""
    spec = replace(SPEC, shm_size="8gb")
    seen = deployed(1, 2)
    seen = hosts_only(seen, plan_of(seen, spec))
    plan = plan_of(seen, spec)
    assert list(plan.steps(without=VERIFY)) == []
    assert after_kinds(plan) == ["VerifyPeers", "WriteFile"]
    assert plan_of(carried_out(seen, plan), spec).empty


def test_a_check_that_failed_after_another_passed_is_made_up_for() -> None:
    """The cluster is the very one that passed before: what that check left must not speak for it."""
    seen = deployed(1, 2)
    seen[1] = replace(seen[1], image_id=None)
    plan = plan_of(seen)
    seen = hosts_only(seen, plan)
    seen[0] = after_steps(seen[0], [s for s in check_of(plan) if isinstance(s, DeleteFile)])
    assert after_kinds(plan_of(seen)) == ["VerifyPeers", "WriteFile"]


def test_a_host_key_was_lost() -> None:
    seen = deployed(1, 2)
    files = {path: digest for path, digest in seen[1].files.items() if path != "ssh/host_ed25519"}
    seen[1] = replace(seen[1], files=files, host_key=None)
    # Another key than the one before: only the host differs between the test's keys.
    nodes, _ = nodes_of(seen, SPEC)
    made = keys_for(seen)
    new = ClusterKeys(client=made.client, hosts={**made.hosts, "gpu2": key("another")})
    plan = plans.deploy_plan(SPEC, seen, nodes, IMAGE, new)
    assert written(plan, "gpu2") == ["compose.yaml", "ssh/host_ed25519.pub", "ssh/host_ed25519"]
    up = next(step for step in steps(plan, "gpu2") if isinstance(step, ComposeUp))
    assert up.recreate
    assert up.why == "it has a new host key"
    assert written(plan, "gpu1") == ["ssh/known_hosts"]


def test_a_deploy_that_was_interrupted_between_the_key_and_the_container() -> None:
    """sshd still has the old key: the container has to be recreated although every file is right."""
    seen = deployed(1, 2)
    nodes, _ = nodes_of(seen, SPEC)
    made = keys_for(seen)
    new = ClusterKeys(client=made.client, hosts={**made.hosts, "gpu2": key("another")})
    plan = plans.deploy_plan(SPEC, seen, nodes, IMAGE, new)
    files_only = [s for s in steps(plan, "gpu2") if isinstance(s, WriteFile)]
    again = plan_of([after_steps(seen[0], steps(plan, "gpu1")), after_steps(seen[1], files_only)])
    assert kinds(again, "gpu2") == ["ComposeUp", "WaitSshd"]


def test_a_container_with_the_temporary_name_of_compose_is_recreated() -> None:
    seen = deployed(1, 2)
    (container,) = seen[1].containers
    cut = replace(container, name="eee140673997_kit-lab-mpinode")
    plan = plan_of([seen[0], replace(seen[1], containers=(cut,))])
    ups = [(step.recreate, step.why) for step in steps(plan, "gpu2") if isinstance(step, ComposeUp)]
    assert ups == [(True, "its container has another name")]
    # With the earlier one beside it, Compose removes that, and renames this one.
    plan = plan_of([seen[0], replace(seen[1], containers=(cut, container))])
    assert [step.recreate for step in steps(plan, "gpu2") if isinstance(step, ComposeUp)] == [False]


def test_the_client_key_was_lost() -> None:
    seen = deployed(1, 2)
    files = {path: digest for path, digest in seen[0].files.items() if path != "ssh/id_ed25519"}
    seen[0] = replace(seen[0], files=files, client_key=None)
    nodes, _ = nodes_of(seen, SPEC)
    made = keys_for(seen)
    plan = plans.deploy_plan(SPEC, seen, nodes, IMAGE, ClusterKeys(client=key("another"), hosts=made.hosts))
    assert written(plan, "gpu1") == ["ssh/authorized_keys", "ssh/id_ed25519.pub", "ssh/id_ed25519"]
    assert written(plan, "gpu2") == ["ssh/authorized_keys"]
    # Wherever the deploy is cut: the old public half beside the new private one would look like a pair.
    for count, _ in enumerate(steps(plan, "gpu1")):
        cut = after_steps(seen[0], steps(plan, "gpu1")[:count])
        assert compose.held_keys([cut, seen[1]]).client is None
    # sshd reads authorized_keys at each login.
    assert "ComposeUp" not in kinds(plan, "gpu1") + kinds(plan, "gpu2")


def test_the_head_moves() -> None:
    one, two = deployed(1, 2)
    plan = plan_of([two, one])
    ups = {name: s.why for name, s in plan.steps() if isinstance(s, ComposeUp)}
    assert ups == {"gpu2": "the host becomes mpihead", "gpu1": "the host becomes mpinode"}
    deleted = [step.path for step in steps(plan, "gpu1") if isinstance(step, DeleteFile)]
    assert deleted == [
        "cluster.json", "hosts", "network", "ssh/config", "ssh/id_ed25519", "ssh/id_ed25519.pub", "ssh/known_hosts",
        "verified",
    ]  # fmt: skip
    assert [host.host for host in plan.rounds[-1].hosts] == ["gpu2"]
    moved = carried_out([two, one], plan)
    assert [f.containers[0].service for f in moved] == ["mpihead", "mpinode"]
    assert plan_of(moved).empty


def test_the_image_is_missing_on_one_host() -> None:
    seen = deployed(1, 2)
    seen[1] = replace(seen[1], image_id=None)
    plan = plan_of(seen)
    assert kinds(plan, "gpu1") == []
    (ship,) = steps(plan, "gpu2")
    assert isinstance(ship, Ship)
    assert (ship.image, ship.size, ship.why) == (IMAGE.tag, IMAGE.size, "the host does not have it")


def test_the_image_comes_from_a_registry() -> None:
    image = Image(tag=IMAGE.tag, source=f"r.example.com:5000/team/{IMAGE.tag}", digest="sha256:dd")
    new = [facts(1), facts(2)]
    nodes, _ = nodes_of(new, SPEC)
    plan = plans.deploy_plan(SPEC, new, nodes, image, keys_for(new))
    check_golden("deploy-pull.txt", plan_text(plan))
    assert plan_of(carried_out(new, plan)).empty


def test_the_image_comes_from_the_head() -> None:
    seen = deployed(1, 2)
    seen[1] = replace(seen[1], image_id=None)
    nodes, _ = nodes_of(seen, SPEC)
    plan = plans.deploy_plan(SPEC, seen, nodes, replace(IMAGE, builder="gpu1"), keys_for(seen))
    (ship,) = steps(plan, "gpu2")
    assert isinstance(ship, Ship)
    assert ship.source == ("gpu1", "10.0.0.1")


def test_the_spec_changed() -> None:
    plan = plan_of(deployed(1, 2), replace(SPEC, shm_size="8gb"))
    assert written(plan, "gpu1") == ["compose.yaml", "cluster.json"]
    assert written(plan, "gpu2") == ["compose.yaml"]
    for name in ("gpu1", "gpu2"):
        assert kinds(plan, name)[-3:] == ["WriteFile", "ComposeUp", "WaitSshd"]
    up = next(step for step in steps(plan, "gpu1") if isinstance(step, ComposeUp))
    assert (up.why, up.recreate) == ("its definition changed", False)


def test_what_only_mpirun_uses_restarts_nothing() -> None:
    other = replace(SPEC, mpi=replace(SPEC.mpi, bind_to="core"), command=("true",))
    assert plan_of(deployed(1, 2), other).empty


@pytest.mark.parametrize(
    ("change", "expected", "why"),
    [
        ({"running": False, "status": "Exited (137) 2 minutes ago"}, ["ComposeUp", "WaitSshd"], "Exited (137)"),
        ({"spec": "older"}, ["ComposeUp", "WaitSshd"], "its definition changed"),
    ],
)
def test_a_container_that_is_not_as_wanted(change: dict[str, object], expected: list[str], why: str) -> None:
    seen = deployed(1, 2)
    seen[1] = replace(seen[1], containers=(replace(seen[1].containers[0], **change),))
    seen[1] = replace(seen[1], listening=frozenset())
    plan = plan_of(seen)
    assert kinds(plan, "gpu2") == expected
    assert why in steps(plan, "gpu2")[0].why
    assert kinds(plan, "gpu1") == []


def test_a_container_that_is_gone() -> None:
    seen = deployed(1, 2)
    seen[1] = replace(seen[1], containers=(), listening=frozenset())
    assert steps(plan_of(seen), "gpu2")[0].why == "no mpinode runs here"


def test_an_sshd_that_does_not_listen_is_waited_for() -> None:
    seen = deployed(1, 2)
    seen[1] = replace(seen[1], listening=frozenset({"127.0.0.1:33"}))
    (wait,) = steps(plan_of(seen), "gpu2")
    assert isinstance(wait, WaitSshd)
    assert (wait.address, wait.port) == ("10.0.0.2", 33)


@pytest.mark.parametrize("change", ["digest", "mode", "extra"])
def test_files_that_somebody_touched(change: str) -> None:
    seen = deployed(1, 2)
    files, modes = dict(seen[1].files), dict(seen[1].modes)
    if change == "digest":
        files["compose.yaml"] = "0" * 64
    elif change == "mode":
        modes["ssh/authorized_keys"] = "644"
    else:
        files["compose.yaml.Xy12Zw"] = "0" * 64
    seen[1] = replace(seen[1], files=files, modes=modes)
    (step,) = steps(plan_of(seen), "gpu2")
    wanted = {"digest": "compose.yaml", "mode": "ssh/authorized_keys", "extra": "compose.yaml.Xy12Zw"}
    assert isinstance(step, DeleteFile if change == "extra" else WriteFile)
    assert step.path == wanted[change]


@pytest.mark.parametrize("path", ["notes.txt", "compose.yaml.backup", "ssh/authorized_keys.before"])
def test_a_file_of_a_user_stays(path: str) -> None:
    seen = deployed(1, 2)
    one = seen[1]
    seen[1] = replace(one, files={**one.files, path: "0" * 64}, modes={**one.modes, path: "644"})
    assert not steps(plan_of(seen), "gpu2")


def test_the_hostfile_by_hand_leaves_the_head_out_where_it_runs_no_ranks() -> None:
    spec = replace(SPEC, head_runs_ranks=False)
    plan = plan_of([facts(1), facts(2)], spec)
    hosts = next(s for s in steps(plan, "gpu1") if isinstance(s, WriteFile) and s.path == "hosts")
    assert hosts.content == b"10.0.0.2 slots=1\n"


@pytest.mark.parametrize(
    ("slots", "spec", "gpu_count", "expected"),
    [(3, 5, 8, 3), (None, 5, 8, 5), (None, "auto", 8, 8), (None, "auto", 0, 1)],
)
def test_slots(slots: int | None, spec: Literal["auto"] | int, gpu_count: int, expected: int) -> None:
    seen = facts(1, host=host(1, slots=slots), gpus=gpus(gpu_count))
    assert slots_of(seen, ClusterSpec(slots=spec)) == expected


def test_mig_devices_count_as_gpus() -> None:
    one, two = gpus(2)
    seen = facts(1, gpus=(replace(one, mig=("MIG-a", "MIG-b", "MIG-c")), two))
    (node,), _ = nodes_of([seen], SPEC)
    assert (node.gpus, node.mig, slots_of(seen, ClusterSpec())) == (4, True, 4)
    (node,), _ = nodes_of([facts(1, gpus=(replace(one, mig=()),))], SPEC)
    assert (node.gpus, node.mig) == (0, True)


def test_a_host_without_an_address_is_a_problem_and_the_others_are_nodes() -> None:
    lost = facts(2, interfaces=interfaces(docker0="172.17.0.1/16"))
    nodes, problems = nodes_of([facts(1), lost, facts(3)], SPEC)
    assert [node.name for node in nodes] == ["gpu1", "gpu3"]
    assert [problem.host for problem in problems] == ["gpu2"]
    all_problems = plans.problems_of([facts(1), lost, facts(3, engine="")], SPEC, nodes, IMAGE)
    assert [problem.host for problem in all_problems] == ["gpu3"]


def test_keys_that_hosts_hold() -> None:
    owners = {"gpu1": "gpu1", "gpu2": "gpu2"}
    assert compose.held_keys([facts(1), facts(2)]) == HeldKeys(client=None, hosts={}, owners=owners)
    seen = deployed(1, 2)
    publics = {f.host.name: f.host_key or "" for f in seen}
    assert compose.held_keys(seen) == HeldKeys(client=seen[0].client_key, hosts=publics, owners=owners)


@pytest.mark.parametrize("path", ["ssh/id_ed25519", "ssh/host_ed25519"])
def test_a_private_key_that_others_could_read_is_replaced(path: str) -> None:
    seen = deployed(1, 2)
    seen[0] = replace(seen[0], modes={**seen[0].modes, path: "644"})
    plan = plan_of(seen)
    written = {step.path: step for step in steps(plan, plan.hosts[0]) if isinstance(step, WriteFile)}
    assert written[path].mode == "600"
    # sshd reads the host key when it starts. Each login reads the head's key again.
    assert any(isinstance(step, ComposeUp) for step in steps(plan, plan.hosts[0])) == (path == "ssh/host_ed25519")


def test_a_thousand_hosts_are_planned_and_then_left_alone() -> None:
    many = [
        facts(1, host=host(1, name=f"n{i}", address=f"10.0.{i // 250}.{i % 250 + 1}"),
              interfaces=interfaces(docker0="172.17.0.1/16", eth0=f"10.0.{i // 250}.{i % 250 + 1}/16"))
        for i in range(1000)
    ]  # fmt: skip
    plan = plan_of(many)
    assert plan_of(carried_out(many, plan)).empty


def test_the_interface_of_the_plan_is_the_one_that_was_picked() -> None:
    seen = facts(1, interfaces=interfaces(docker0="172.17.0.1/16", ens5="10.0.0.1/24"), default_interface=None)
    plan = plan_of([seen, facts(2)])
    compose = next(s for s in steps(plan, "gpu1") if isinstance(s, WriteFile) and s.path == "compose.yaml")
    assert pick_interface(seen, "auto").name == "ens5"
    environment = yaml.safe_load(content_of(compose))["services"]["mpihead"]["environment"]
    assert (environment["NCCL_SOCKET_IFNAME"], environment["HOROVOD_GLOO_IFACE"]) == ("=ens5", "ens5")


def test_the_keys_of_tests_are_made_for_every_host() -> None:
    assert set(keys("a", "b").hosts) == {"a", "b"}


def test_folders_of_data_sets_are_made_once() -> None:
    spec = replace(SPEC, data=DATA)
    lacking = frozenset(path for path in data.paths(spec) if path != "/nvme")
    new = [facts(number, absent=lacking) for number in (1, 2)]
    plan = plan_of(new, spec)
    folders = ["/opt/kit/.data/lab/imagenet", "/dev/shm/kit-data/lab/web-text", "/nvme/kit-data/lab/labels"]
    made = [*(f"{folder}/files" for folder in folders), "/opt/kit/.data/lab/crawl/mount"]
    assert [(host, step.path) for host, step in plan.steps() if isinstance(step, MakeDataFolder)] == [
        (host, path) for host in ("gpu1", "gpu2") for path in made
    ]
    # What starts the node comes after its folders.
    assert kinds(plan, "gpu2").index("ComposeUp") > kinds(plan, "gpu2").index("MakeDataFolder")
    assert plan_of(carried_out(new, plan), spec).empty
