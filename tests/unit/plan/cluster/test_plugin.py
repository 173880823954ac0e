"""NCCL's plugin out of an image: which hosts get it, how, and which folder their nodes mount."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kit.model.keys import ClusterKeys
from kit.model.nccl import plugin_image
from kit.model.observed import HostFacts
from kit.model.plan import CopyPlugin, Plan, RemovePlugins, Ship
from kit.model.spec import ClusterSpec, NcclSpec
from kit.model.values import replace
from kit.plan.cluster import deploy as plans
from kit.plan.cluster import plugin as plugins
from kit.plan.cluster import stack
from kit.plan.cluster.nodes import nodes_of
from kit.plan.cluster.plugin import Plugin
from kit.plan.cluster.supply import Image
from tests.fakes.facts import facts, key
from tests.fakes.golden import check_golden
from tests.fakes.plans import plan_text, steps_of

TEXT = "nvcr.io/acme/ofi:1.9:/opt/ofi/lib"
SPEC = ClusterSpec(name="lab", nccl=NcclSpec(plugin=TEXT))
IMAGE = Image(tag="kit:cpu-0123456789ab", id="sha256:1f", size=1_900_000_000)
CONTENT = "sha256:" + "c" * 64


def plugin(content: str = CONTENT, **image: Any) -> Plugin:
    wanted = plugin_image(TEXT)
    assert wanted is not None
    tag = plugins.tag_of("lab", content, wanted.path)
    whole = Image(tag=tag, id="sha256:2f", size=40_000_000, origin="sha256:0f", name=wanted.image)
    return Plugin(wanted=wanted, content=content, image=replace(whole, **image))


def plan_of(observed: Sequence[HostFacts], wanted: Plugin | None, spec: ClusterSpec = SPEC) -> Plan:
    nodes, _ = nodes_of(observed, spec)
    keys = ClusterKeys(client=key("client"), hosts={node.name: key(node.name) for node in nodes})
    return plans.deploy_plan(spec, observed, nodes, IMAGE, keys, plugin=wanted)


def has(*keys: str) -> dict[str, Any]:
    return {"plugins": frozenset(keys)}


def test_a_first_deploy() -> None:
    observed = [facts(1), facts(2, **has(plugin().key)), facts(3, **has("0" * 16))]
    check_golden("deploy-plugin.txt", plan_text(plan_of(observed, plugin())))


def test_a_deploy_with_swarm() -> None:
    spec = replace(SPEC, orchestrator="swarm")
    check_golden("swarm/deploy-plugin.txt", plan_text(plan_of([facts(1), facts(2)], plugin(), spec)))


def test_the_folder_follows_from_the_content_and_the_path_alone() -> None:
    assert plugins.key_of(CONTENT, "/a") == plugins.key_of(CONTENT, "/a") != plugins.key_of(CONTENT, "/b")
    assert plugins.key_of("sha256:" + "d" * 64, "/a") != plugins.key_of(CONTENT, "/a")
    (volume,) = stack.volumes(plugins.mounted(SPEC, plugin()))
    assert volume == f"/opt/kit/lab/plugins/{plugin().key}:/opt/nccl-plugin:ro"
    folder = ClusterSpec(name="lab", nccl=NcclSpec(plugin="/opt/x"))
    assert stack.volumes(plugins.mounted(folder, None)) == ("/opt/x:/opt/nccl-plugin:ro",)
    assert stack.volumes(SPEC) == ()


def test_hosts_pull_it_if_it_is_in_a_registry() -> None:
    wanted = plugin(source="nvcr.io/acme/ofi:1.9", digest=CONTENT)
    plan = plan_of([facts(1, image_id="sha256:1f"), facts(2, image_id="sha256:1f")], wanted)
    assert [(part.name, part.needs) for part in plan.rounds] == [
        ("pull plugin", "all"), ("copy plugin", "host"), ("set up", "host"), ("verify", "all"),
    ]  # fmt: skip
    assert steps_of(plan, "gpu1")[0].full_line() == ("pull", f"nvcr.io/acme/ofi:1.9@{CONTENT}")


def test_the_engine_that_gives_it_to_others_copies_its_own() -> None:
    plan = plan_of([facts(1), facts(2)], plugin(builder="gpu1"))
    first, second = (
        [step for step in steps_of(plan, name) if isinstance(step, Ship | CopyPlugin) and step.image != IMAGE.tag]
        for name in ("gpu1", "gpu2")
    )
    assert [(type(step), step.image) for step in first] == [(CopyPlugin, "sha256:0f")]
    assert [(type(step), step.image) for step in second] == [
        (Ship, plugin().image.tag),
        (CopyPlugin, plugin().image.tag),
    ]
    alone = plan_of([facts(1, image_id="sha256:1f")], plugin(builder="gpu1"))
    assert [(part.name, part.needs) for part in alone.rounds][:2] == [("copy plugin", "all"), ("set up", "host")]


def test_a_dry_run_that_does_not_know_the_content_removes_nothing() -> None:
    plan = plan_of([facts(1, **has("0" * 16))], plugin(content=""))
    assert [step.folder for _, step in plan.steps() if isinstance(step, CopyPlugin)] == [""]
    assert not any(isinstance(step, RemovePlugins) for _, step in plan.steps())


@pytest.mark.parametrize("wanted", [None, plugin()], ids=["none", "another"])
def test_what_nobody_mounts_any_more_goes_last(wanted: Plugin | None) -> None:
    spec = SPEC if wanted else ClusterSpec(name="lab")
    plan = plan_of([facts(1, **has("0" * 16, "1" * 16))], wanted, spec)
    (last,) = (step for _, step in plan.steps() if isinstance(step, RemovePlugins))
    assert last.line() == ("remove", f"/opt/kit/lab/plugins/{'0' * 16}, /opt/kit/lab/plugins/{'1' * 16}")
    assert [part.name for part in plan.rounds][-2:] == ["tidy up plugins", "verify"]


@pytest.mark.parametrize(
    ("seen", "image", "message"),
    [
        ({}, {"arches": ("arm64",)}, "is x86_64, and the image of nccl.plugin, nvcr.io/acme/ofi:1.9, is for aarch64"),
        ({"disk_free_mib": 100}, {}, "100 MiB are free for the engine, and the image of nccl.plugin, nvcr.io/acme/"),
        ({"disk_free_mib": 100, **has(plugin().key)}, {"arches": ("arm64",)}, ""),
        ({}, {"arches": ("arm64", "amd64")}, ""),
    ],
    ids=str,
)
def test_hosts_that_could_not_get_it(seen: dict[str, Any], image: dict[str, Any], message: str) -> None:
    problems = plugins.problems([facts(2, **seen)], plugin(**image))
    assert [problem.host for problem in problems] == ["gpu2"] * bool(message)
    assert all(problem.message.startswith(message) for problem in problems)


def test_the_steps_in_words() -> None:
    plan = plan_of([facts(1)], plugin())
    shown = {step.kind: (step.line(), step.full_line(), step.why) for step in steps_of(plan, "gpu1")[1:3]}
    why = "the host does not have this plugin"
    source = "/opt/ofi/lib out of nvcr.io/acme/ofi:1.9"
    assert shown == {
        "Ship": (("ship", "nvcr.io/acme/ofi:1.9 (40 MB)"), ("ship", "nvcr.io/acme/ofi:1.9 (40 MB)"), why),
        "CopyPlugin": (("copy", source), ("copy", f"{source} to /opt/kit/lab/plugins/{plugin().key}"), why),
    }
