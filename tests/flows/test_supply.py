"""Where a deploy's image comes from: a registry that hosts pull from, or the head that builds it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kit.config.settings import load_spec
from kit.errors import HostsFailed, ImageError, InputError, StepError, UnreachableError
from kit.events import HostStep, Note, Warned
from kit.flows.cluster.deploy import deploy
from kit.flows.cluster.down import down
from kit.flows.image.build import build_on_head
from kit.flows.image.content import content, locked_bases
from kit.flows.image.push import push_from_head
from kit.model.plan import Pull, Ship
from kit.model.registry import RegistryLogin
from kit.model.secret import Secret
from kit.model.spec import ClusterSpec, ImageSpec
from kit.model.values import asdict
from kit.plan.bases import pinned
from kit.remote.engine.client import Engine, EngineImage
from tests.fakes.engine import BUILT
from tests.fakes.fleet import Fleet
from tests.fakes.plans import steps_of
from tests.fakes.reporter import Remembering

REGISTRY = "r.example.com:5000/team"
BASE = pinned("debian:bookworm-slim", locked_bases())
TAG = content(ClusterSpec()).tag
NAME = f"{REGISTRY}/{TAG}"
DIGEST = "sha256:" + "d" * 64


@pytest.fixture(autouse=True)
def nothing_of_this_machine(fleet: Fleet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its docker's logins are not looked at, and its engine is not asked."""

    def connect() -> None:
        raise AssertionError("this machine's engine was asked")

    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("KIT_REGISTRY", REGISTRY)
    monkeypatch.setenv("KIT_REGISTRY_USER", fleet.registry.user)
    monkeypatch.setenv("KIT_REGISTRY_PASSWORD", fleet.registry.password)
    monkeypatch.setattr(Engine, "connect", connect)
    monkeypatch.setattr("kit.flows.cluster.deploy._image", connect)


def lacking_nothing(fleet: Fleet) -> bool:
    return all(vm.images == {TAG: BUILT} for vm in fleet.vms.values())


def test_hosts_pull_what_they_lack_and_nothing_is_shipped(fleet: Fleet, reporter: Remembering) -> None:
    fleet.registry.images[NAME] = DIGEST
    result = deploy(fleet.context(reporter, registry=REGISTRY))
    pulls = [step for _, step in result.plan.steps() if isinstance(step, Pull)]
    assert pulls == [Pull(image=TAG, source=NAME, digest=DIGEST, why="the host does not have it")] * 4
    assert fleet.shipped == []
    # Kit's name is the only one, so that down --images needs no other.
    assert lacking_nothing(fleet)
    assert "pulled 1 MB of 4 MB" in [event.text for event in reporter.of(HostStep)]
    assert deploy(fleet.context(reporter, registry=REGISTRY)).plan.empty
    down(fleet.context(reporter, registry=REGISTRY), images=True)
    assert all(vm.images == {} for vm in fleet.vms.values())


def test_the_password_is_in_no_plan_and_no_event(fleet: Fleet, reporter: Remembering) -> None:
    fleet.registry.images[NAME] = DIGEST
    plan = deploy(fleet.context(reporter, registry=REGISTRY), dry_run=True).plan
    deploy(fleet.context(reporter, registry=REGISTRY))
    files = [content for vm in fleet.vms.values() for content, _ in vm.files.values()]
    changed = [vm.changed for vm in fleet.vms.values()]
    assert fleet.registry.password not in repr((plan, reporter.events, files, changed))
    assert fleet.registry.password not in json.dumps(asdict(plan), default=str)
    assert {"username": "ann", "password": fleet.registry.password} in fleet.registry.logins


def test_an_image_that_is_not_there_is_reported_before_anything_is_changed(fleet: Fleet, reporter: Remembering) -> None:
    with pytest.raises(HostsFailed) as caught:
        deploy(fleet.context(reporter, registry=REGISTRY))
    assert "nothing was changed" in caught.value.message
    assert {failure.message for failure in caught.value.failures} == {f"the registry does not have {NAME}"}
    hint = f"KIT_IMAGE_FLAVOUR=cpu kit image push {REGISTRY}"
    assert {failure.hint for failure in caught.value.failures} == {hint}
    assert caught.value.exit_code == 6
    assert fleet.changes == {}


@pytest.mark.parametrize(
    ("image", "words"),
    [({"flavour": "auto"}, "KIT_IMAGE_FLAVOUR=cuda-tensorflow "), ({"flavour": "cuda-mxnet"}, "")],
    ids=["open", "written"],
)
def test_the_hint_pushes_the_flavor_that_the_hosts_need(
    fleet: Fleet, reporter: Remembering, tmp_path: Path, image: dict[str, str], words: str
) -> None:
    """A laptop without a GPU would push the image for CPUs again and again."""
    for vm in fleet.vms.values():
        vm.gpus, vm.driver = 2, "580.65.06"
    with pytest.raises(HostsFailed) as caught:
        deploy(fleet.context(reporter, registry=REGISTRY, image=image))
    assert {failure.hint for failure in caught.value.failures} == {f"{words}kit image push {REGISTRY}"}
    flavour = words.strip().rpartition("=")[2] or image["flavour"]
    pushed = load_spec(tmp_path, flags={}, environ={"KIT_IMAGE_FLAVOUR": flavour})
    assert {failure.message for failure in caught.value.failures} == {
        f"the registry does not have {REGISTRY}/{content(pushed).tag}"
    }


def test_a_wrong_password_is_named(fleet: Fleet, reporter: Remembering, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KIT_REGISTRY_PASSWORD", "wr0ng")
    with pytest.raises(HostsFailed) as caught:
        deploy(fleet.context(reporter, registry=REGISTRY))
    assert {failure.message for failure in caught.value.failures} == {"r.example.com:5000 refuses the login of ann"}
    assert "wr0ng" not in repr((caught.value.failures, reporter.events))
    assert fleet.changes == {}


def test_a_login_of_which_a_half_is_set(fleet: Fleet, reporter: Remembering, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KIT_REGISTRY_PASSWORD")
    with pytest.raises(InputError, match="KIT_REGISTRY_USER is set"):
        deploy(fleet.context(reporter, registry=REGISTRY))


def test_a_host_that_does_not_trust_the_registry_is_named_first(fleet: Fleet, reporter: Remembering) -> None:
    fleet.registry.images[NAME] = DIGEST
    fleet["gpu3"].faults.add("no CA")
    with pytest.raises(ImageError) as caught:
        deploy(fleet.context(reporter, registry=REGISTRY))
    assert caught.value.host == "gpu3"
    assert "/etc/docker/certs.d/r.example.com:5000/ca.crt on the host" in str(caught.value.hint)
    assert fleet.changes == {}


def test_one_pull_breaks_the_others_are_done_and_the_next_deploy_does_the_rest(
    fleet: Fleet, reporter: Remembering
) -> None:
    fleet.registry.images[NAME] = DIGEST
    fleet["gpu2"].faults.add("registry breaks")
    with pytest.raises(ImageError) as caught:
        deploy(fleet.context(reporter, registry=REGISTRY))
    assert caught.value.host == "gpu2"
    assert caught.value.message == "the host cannot reach r.example.com:5000"
    assert [name for name, vm in fleet.vms.items() if not vm.containers] == ["gpu2"]
    fleet["gpu2"].faults.clear()
    fleet.forget_changes()
    deploy(fleet.context(reporter, registry=REGISTRY))
    assert [name for name, did in fleet.changes.items() if any(c.startswith("pull") for c in did)] == ["gpu2"]
    assert lacking_nothing(fleet)


def test_an_image_for_other_processors(fleet: Fleet, reporter: Remembering) -> None:
    fleet.registry.images[NAME] = DIGEST
    fleet.registry.arch = "arm64"
    with pytest.raises(HostsFailed) as caught:
        deploy(fleet.context(reporter, registry=REGISTRY))
    assert {failure.message for failure in caught.value.failures} == {"is x86_64, and the image is for aarch64"}
    assert fleet.changes == {}


def test_the_head_builds_and_the_others_get_it_from_there(fleet: Fleet, reporter: Remembering) -> None:
    result = deploy(fleet.context(reporter, builder="head"))
    assert fleet["gpu1"].changed[0] == f"build {TAG}"
    ships = {host: step for host, step in result.plan.steps() if isinstance(step, Ship)}
    assert {name: step.source for name, step in ships.items()} == dict.fromkeys(
        ("gpu2", "gpu3", "gpu4"), ("gpu1", "10.0.0.1")
    )
    assert fleet.shipped_from == "gpu1"
    assert fleet["gpu1"].images.keys() == {TAG, BASE}
    assert deploy(fleet.context(reporter, builder="head")).plan.empty


def test_a_dry_run_lets_the_head_build_nothing(fleet: Fleet, reporter: Remembering) -> None:
    plan = deploy(fleet.context(reporter, builder="head"), dry_run=True).plan
    assert fleet.changes == {}
    assert not any(isinstance(step, Ship) for step in steps_of(plan, "gpu1"))
    assert isinstance(steps_of(plan, "gpu2")[0], Ship)
    assert f"{TAG} is not on gpu1 yet: kit deploy builds it there first" in [n.text for n in reporter.of(Note)]


def test_nobody_waits_for_the_heads_build_to_hear_of_a_fault(fleet: Fleet, reporter: Remembering) -> None:
    fleet["gpu2"].faults.add("no engine")
    with pytest.raises(StepError):
        deploy(fleet.context(reporter, builder="head"))
    assert fleet.changes == {}


def test_build_and_push_from_the_head(fleet: Fleet, reporter: Remembering) -> None:
    assert build_on_head(fleet.context(reporter)).built
    assert not build_on_head(fleet.context(reporter)).built
    login = RegistryLogin(user="bob", secret=Secret(b"s3cret-pass"))
    result = push_from_head(fleet.context(reporter), REGISTRY, login=login)
    assert result.image == NAME
    assert result.digest == fleet.registry.images[NAME]
    assert fleet.registry.logins == [{"username": "bob", "password": "s3cret-pass"}]
    assert fleet["gpu1"].images.keys() == {TAG, BASE}


def test_an_engine_that_is_silent_has_its_host_named(fleet: Fleet, reporter: Remembering) -> None:
    fleet["gpu1"].faults.add("engine hangs up")
    with pytest.raises(UnreachableError) as caught:
        build_on_head(fleet.context(reporter))
    assert caught.value.host == "gpu1"
    assert "permission denied" in caught.value.message


def test_services_of_swarm_keep_the_tag_of_an_image_that_was_pulled(fleet: Fleet, reporter: Remembering) -> None:
    """kit knows its id only when hosts have it. That alone is no reason to restart the services."""
    fleet.registry.images[NAME] = DIGEST
    deploy(fleet.context(reporter, registry=REGISTRY, orchestrator="swarm"))
    assert [[c.service for c in vm.containers if c.task] for vm in fleet.vms.values()] == [
        ["mpihead"], ["mpinode"], ["mpinode"], ["mpinode"],
    ]  # fmt: skip
    assert {c.image for vm in fleet.vms.values() for c in vm.containers} == {TAG}
    assert deploy(fleet.context(reporter, registry=REGISTRY, orchestrator="swarm")).plan.empty
    deploy(fleet.context(reporter, registry=REGISTRY, orchestrator="swarm", shm_size="2gb"))
    assert {c.image for vm in fleet.vms.values() for c in vm.containers} == {BUILT}


def test_hosts_with_another_image_under_the_tag_are_named(fleet: Fleet, reporter: Remembering) -> None:
    fleet.registry.images[NAME] = DIGEST
    deploy(fleet.context(reporter, registry=REGISTRY))
    assert reporter.of(Warned) == []
    fleet["gpu3"].images[TAG] = "sha256:" + "0" * 64
    assert deploy(fleet.context(reporter, registry=REGISTRY)).plan.empty
    (warned,) = reporter.of(Warned)
    assert warned.text == f"hosts have different images under the tag {TAG}: gpu[2,4] b1; gpu3 {'0' * 12}"
    assert warned.hint == "to give all hosts the same image: kit down --images, then kit deploy"


def test_a_build_that_replaces_an_image_says_that_hosts_keep_theirs(fleet: Fleet, reporter: Remembering) -> None:
    build_on_head(fleet.context(reporter), force=True)
    build_on_head(fleet.context(reporter), force=True)
    assert reporter.of(Warned) == []
    fleet["gpu1"].images[TAG] = "sha256:01d"
    build_on_head(fleet.context(reporter, registry=REGISTRY))
    assert reporter.of(Warned) == []
    build_on_head(fleet.context(reporter, registry=REGISTRY), force=True)
    (warned,) = reporter.of(Warned)
    assert warned.text == f"hosts that have {TAG} keep the image that they have, because the tag is the same"
    assert warned.hint == f"to replace it there: kit image push {REGISTRY}, kit down --images, then kit deploy"


@pytest.mark.parametrize("answers", [True, False])
def test_a_newer_base_on_this_machine_is_named_though_all_hosts_have_the_tag(
    fleet: Fleet, reporter: Remembering, monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    image = {"flavour": "ssh-layer", "base": "team/hvd:latest"}
    tag = content(ClusterSpec(image=ImageSpec(flavour="ssh-layer", base="team/hvd:latest"))).tag
    for vm in fleet.vms.values():
        vm.images = {tag: BUILT}

    class ThisMachine:
        host = None

        def image(self, name: str) -> EngineImage:
            return EngineImage(image_id="sha256:1", size_bytes=1, layers=("a", "b") if name == tag else ("c",))

        def close(self) -> None:
            pass

    def connect() -> ThisMachine:
        if not answers:
            raise UnreachableError("no Docker Engine answers")
        return ThisMachine()

    monkeypatch.setattr(Engine, "connect", connect)
    deploy(fleet.context(reporter, image=image), dry_run=True)
    texts = [event.text for event in reporter.of(Warned) if "team/hvd" in event.text]
    assert texts == [f"{tag} was built on another team/hvd:latest than this machine has now"] * answers
    fleet.registry.images[f"{REGISTRY}/{tag}"] = DIGEST
    deploy(fleet.context(reporter, image=image, registry=REGISTRY), dry_run=True)
    assert len([event for event in reporter.of(Warned) if "team/hvd" in event.text]) == answers
