"""kit deploy with NCCL's plugin in an image: how hosts get it, what is copied, and what a second deploy does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kit.errors import HostsFailed, ImageError, KitError, NotReadyError, RegistryLoginError, StepError
from kit.events import Note
from kit.flows.cluster.compose import compose_file
from kit.flows.cluster.deploy import deploy
from kit.flows.cluster.down import down
from kit.flows.cluster.stack import stack_file
from kit.model.plan import ComposeUp, CopyPlugin, Pull, RemovePlugins, Ship, Step
from kit.remote.engine.client import Engine
from tests.fakes.engine import FakeApi, FakeClient
from tests.fakes.fleet import Fleet
from tests.fakes.reporter import Remembering
from tests.fakes.vm import FakeVM

OFI = "r.example.com:5000/aws/ofi:1.9"
PATH = "/opt/ofi/lib"
PLUGIN = {"plugin": f"{OFI}:{PATH}"}
HOSTS = ["gpu1", "gpu2", "gpu3", "gpu4"]
DIGEST = "sha256:" + "d" * 64


@pytest.fixture
def machine(fleet: Fleet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeVM:
    """This machine and its engine, which has the image."""
    one = FakeVM(host=fleet["gpu1"].host, internal="10.0.9.9", fleet=fleet, images={OFI: "sha256:0f1"})
    monkeypatch.setattr(Engine, "connect", lambda: Engine(FakeClient(FakeApi(one, fleet.registry))))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    return one


def done(result: Any, kind: type[Step]) -> list[str]:
    return [host for host, step in result.plan.steps() if isinstance(step, kind)]


def folders(fleet: Fleet) -> list[set[str]]:
    return [{path for path in vm.folders if "/plugins/" in path} for vm in fleet.vms.values()]


def test_it_is_shipped_and_copied_and_then_there_is_nothing_to_do(
    fleet: Fleet, reporter: Remembering, machine: FakeVM
) -> None:
    result = deploy(fleet.context(reporter, nccl=PLUGIN))
    assert done(result, CopyPlugin) == HOSTS
    assert fleet.origin == "sha256:0f1"
    (folder,) = folders(fleet)[0]
    assert folders(fleet) == [{folder}] * 4
    for vm in fleet.vms.values():
        assert vm.changed.index(f"copy {PATH}") < vm.changed.index("write compose.yaml")
        assert f"{folder}:/opt/nccl-plugin:ro" in vm.files["/opt/kit/lab/compose.yaml"][0].decode()
        # What the copy came from is gone.
        assert not any("nccl-plugin" in image for image in vm.images)
    assert deploy(fleet.context(reporter, nccl=PLUGIN)).plan.empty
    assert f"{folder}:/opt/nccl-plugin:ro" in compose_file(fleet.context(reporter, nccl=PLUGIN), "gpu2").text


def test_other_content_under_the_same_tag_is_a_changed_deploy(
    fleet: Fleet, reporter: Remembering, machine: FakeVM
) -> None:
    deploy(fleet.context(reporter, nccl=PLUGIN))
    before = folders(fleet)
    machine.images[OFI] = "sha256:0f2"
    result = deploy(fleet.context(reporter, nccl=PLUGIN))
    assert done(result, CopyPlugin) == done(result, ComposeUp) == done(result, RemovePlugins) == HOSTS
    after = folders(fleet)
    assert [len(one) for one in after] == [1] * 4
    assert after != before
    for vm in fleet.vms.values():
        changed = [did.partition("/opt/kit")[0] for did in vm.changed]
        assert changed.index("up mpihead" if vm is fleet["gpu1"] else "up mpinode", 5) < changed.index("delete ")
    assert deploy(fleet.context(reporter, nccl=PLUGIN)).plan.empty


def test_without_it_nodes_start_again_and_its_folder_goes(fleet: Fleet, reporter: Remembering, machine: FakeVM) -> None:
    deploy(fleet.context(reporter, nccl=PLUGIN))
    result = deploy(fleet.context(reporter))
    assert done(result, ComposeUp) == done(result, RemovePlugins) == HOSTS
    assert folders(fleet) == [set()] * 4
    assert deploy(fleet.context(reporter)).plan.empty


def test_down_removes_it(fleet: Fleet, reporter: Remembering, machine: FakeVM) -> None:
    deploy(fleet.context(reporter, nccl=PLUGIN))
    down(fleet.context(reporter, nccl=PLUGIN))
    assert folders(fleet) == [set()] * 4


def test_a_new_host_alone_gets_it(fleet: Fleet, reporter: Remembering, machine: FakeVM) -> None:
    deploy(fleet.context(reporter, names=HOSTS[:3], nccl=PLUGIN))
    fleet.forget_changes()
    assert done(deploy(fleet.context(reporter, nccl=PLUGIN)), CopyPlugin) == ["gpu4"]
    assert "up mpinode" not in fleet["gpu2"].changed


def test_an_image_without_a_plugin_changes_no_node(fleet: Fleet, reporter: Remembering, machine: FakeVM) -> None:
    deploy(fleet.context(reporter))
    fleet.forget_changes()
    for vm in fleet.vms.values():
        vm.faults.add("no plugin")
    with pytest.raises(HostsFailed) as caught:
        deploy(fleet.context(reporter, nccl=PLUGIN))
    assert {failure.message for failure in caught.value.failures} == {
        f"nccl.plugin: {OFI}: {PATH} has no libnccl-net*.so"
    }
    assert {failure.hint for failure in caught.value.failures} == {
        f"correct the folder in nccl.plugin, {OFI}:/FOLDER, or name another image; then: kit deploy"
    }
    assert {did for dids in fleet.changes.values() for did in dids if not did.startswith("ship")} == set()


def test_a_host_that_cannot_copy_is_not_set_up_and_the_others_are(
    fleet: Fleet, reporter: Remembering, machine: FakeVM
) -> None:
    fleet["gpu3"].faults.add("no plugin")
    with pytest.raises(StepError) as caught:
        deploy(fleet.context(reporter, nccl=PLUGIN))
    assert caught.value.host == "gpu3"
    assert [name for name, vm in fleet.vms.items() if not vm.containers] == ["gpu3"]
    fleet["gpu3"].faults.clear()
    assert done(deploy(fleet.context(reporter, nccl=PLUGIN)), CopyPlugin) == ["gpu3"]
    assert deploy(fleet.context(reporter, nccl=PLUGIN)).plan.empty


def test_it_is_pulled_to_this_machine_first(fleet: Fleet, reporter: Remembering, machine: FakeVM) -> None:
    machine.images.clear()
    plan = deploy(fleet.context(reporter, nccl=PLUGIN), dry_run=True).plan
    assert (machine.images, fleet.changes) == ({}, {})
    assert f"{OFI} is not on this machine yet: kit deploy pulls it there first" in [n.text for n in reporter.of(Note)]
    (copy,) = (step for host, step in plan.steps() if host == "gpu2" and isinstance(step, CopyPlugin))
    assert copy.full_line() == ("copy", f"{PATH} out of {OFI}")
    assert ("ship", OFI) in [step.line() for _, step in plan.steps()]
    deploy(fleet.context(reporter, nccl=PLUGIN))
    assert OFI in machine.images
    assert all(folders(fleet))


def test_with_a_digest_a_second_deploy_asks_no_engine(
    fleet: Fleet, reporter: Remembering, machine: FakeVM, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.images[f"{OFI}@{DIGEST}"] = "sha256:0f1"
    pinned = {"plugin": f"{OFI}@{DIGEST}:{PATH}"}
    deploy(fleet.context(reporter, nccl=pinned))

    def connect() -> None:
        raise AssertionError("this machine's engine was asked")

    monkeypatch.setattr(Engine, "connect", connect)
    assert deploy(fleet.context(reporter, nccl=pinned)).plan.empty


def test_the_head_pulls_it_where_it_builds(fleet: Fleet, reporter: Remembering) -> None:
    result = deploy(fleet.context(reporter, nccl=PLUGIN, builder="head"))
    ships = {host: step for host, step in result.plan.steps() if isinstance(step, Ship) and step.name == OFI}
    assert {host: step.source for host, step in ships.items()} == dict.fromkeys(HOSTS[1:], ("gpu1", "10.0.0.1"))
    assert done(result, CopyPlugin) == HOSTS
    # Others may still come: what it pulled stays, as the base of its build does.
    assert OFI in fleet["gpu1"].images
    assert OFI not in fleet["gpu2"].images
    assert deploy(fleet.context(reporter, nccl=PLUGIN, builder="head")).plan.empty


REGISTRY = "r.example.com:5000/team"


def pulled(fleet: Fleet, reporter: Remembering, plugin: str = f"{OFI}:{PATH}", **more: Any) -> Any:
    return deploy(fleet.context(reporter, nccl={"plugin": plugin}, registry=REGISTRY), **more)


@pytest.fixture
def registry(fleet: Fleet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A registry with both images, and your login to it. This machine's engine is not asked."""
    from kit.flows.image.content import content  # noqa: PLC0415
    from kit.model.spec import ClusterSpec  # noqa: PLC0415

    fleet.registry.images = {f"{REGISTRY}/{content(ClusterSpec()).tag}": "sha256:" + "a" * 64, OFI: DIGEST}
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("KIT_REGISTRY", REGISTRY)
    monkeypatch.setenv("KIT_REGISTRY_USER", fleet.registry.user)
    monkeypatch.setenv("KIT_REGISTRY_PASSWORD", fleet.registry.password)


@pytest.mark.usefixtures("registry")
def test_with_a_registry_hosts_pull_it_at_its_digest(fleet: Fleet, reporter: Remembering) -> None:
    result = pulled(fleet, reporter)
    pulls = [step for _, step in result.plan.steps() if isinstance(step, Pull) and step.source == OFI]
    assert [step.digest for step in pulls] == [DIGEST] * 4
    assert fleet.shipped == []
    assert all(folders(fleet))
    assert not any("nccl" in image or "ofi" in image for vm in fleet.vms.values() for image in vm.images)
    asked = len(fleet.registry.logins)
    assert pulled(fleet, reporter).plan.empty
    # Only the head looks up what the tag means now.
    assert len(fleet.registry.logins) == asked + 1
    fleet.registry.images[OFI] = "sha256:" + "e" * 64
    assert done(pulled(fleet, reporter), CopyPlugin) == HOSTS


@pytest.mark.usefixtures("registry")
def test_with_a_digest_hosts_that_have_it_ask_nobody(fleet: Fleet, reporter: Remembering) -> None:
    pinned = f"{OFI}@{DIGEST}"
    fleet.registry.images[pinned] = DIGEST
    pulled(fleet, reporter, f"{pinned}:{PATH}")
    asked = len(fleet.registry.logins)
    assert pulled(fleet, reporter, f"{pinned}:{PATH}").plan.empty
    assert len(fleet.registry.logins) == asked


@pytest.mark.usefixtures("registry")
def test_a_registry_without_it(fleet: Fleet, reporter: Remembering) -> None:
    del fleet.registry.images[OFI]
    with pytest.raises(ImageError) as caught:
        pulled(fleet, reporter)
    assert caught.value.message == f"the registry does not have {OFI}"
    assert caught.value.hint == "correct the image in nccl.plugin: its name or its tag"
    assert fleet.changes == {}


@pytest.mark.usefixtures("registry")
def test_another_registry_does_not_get_the_login(fleet: Fleet, reporter: Remembering) -> None:
    deploy(fleet.context(reporter, registry=REGISTRY))
    fleet.registry.logins.clear()
    with pytest.raises(RegistryLoginError):
        pulled(fleet, reporter, "evil.example.com/ofi:1:/lib")
    assert fleet.registry.logins == [{}]


@pytest.mark.usefixtures("registry")
def test_a_dry_run_sends_no_login(fleet: Fleet, reporter: Remembering) -> None:
    assert done(pulled(fleet, reporter, dry_run=True), CopyPlugin) == HOSTS
    assert all(login == {} for login in fleet.registry.logins)
    assert fleet.changes == {}


def test_with_swarm(fleet: Fleet, reporter: Remembering, machine: FakeVM) -> None:
    deploy(fleet.context(reporter, nccl=PLUGIN, orchestrator="swarm"))
    (folder,) = folders(fleet)[0]
    assert folders(fleet) == [{folder}] * 4
    stack = fleet["gpu1"].files["/opt/kit/lab/stack.yaml"][0].decode()
    assert stack.count(folder) == 2
    assert folder in stack_file(fleet.context(reporter, nccl=PLUGIN, orchestrator="swarm")).text
    assert deploy(fleet.context(reporter, nccl=PLUGIN, orchestrator="swarm")).plan.empty
    machine.images[OFI] = "sha256:0f2"
    result = deploy(fleet.context(reporter, nccl=PLUGIN, orchestrator="swarm"))
    assert done(result, CopyPlugin) == done(result, RemovePlugins) == HOSTS
    assert [len(one) for one in folders(fleet)] == [1] * 4


def test_a_file_by_hand_needs_the_copy(fleet: Fleet, reporter: Remembering, machine: FakeVM) -> None:
    with pytest.raises(NotReadyError, match="has not copied") as caught:
        compose_file(fleet.context(reporter, nccl=PLUGIN), None)
    assert caught.value.hint == "run: kit deploy"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"python": None}, "has no python3; Python 3.6 or newer is required to copy nccl.plugin out of its image"),
        ({"python": "3.5.2"}, "has Python 3.5.2; Python 3.6 or newer is required to copy nccl.plugin"),
    ],
)
def test_a_host_that_could_not_copy(
    fleet: Fleet, reporter: Remembering, machine: FakeVM, change: dict[str, Any], message: str
) -> None:
    deploy(fleet.context(reporter))
    fleet.forget_changes()
    for name, value in change.items():
        setattr(fleet["gpu2"], name, value)
    with pytest.raises(KitError) as caught:
        deploy(fleet.context(reporter, nccl=PLUGIN))
    assert caught.value.host == "gpu2"
    assert caught.value.message.startswith(message)
    assert fleet.changes == {}
