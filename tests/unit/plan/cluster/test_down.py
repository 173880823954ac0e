"""The plan of kit down: services go before their containers, and the head leaves the swarm after all others."""

from __future__ import annotations

import pytest

from kit.model.data import DataSource, DataSpec, Stage
from kit.model.plan import RemoveCluster
from kit.model.spec import ClusterSpec
from kit.plan.cluster.down import down_plan
from tests.fakes.golden import check_golden
from tests.fakes.plans import plan_text


def test_three_hosts_and_their_image() -> None:
    plan = down_plan(ClusterSpec(name="lab"), ["gpu1", "gpu2", "gpu3"], ("kit:cpu-0123456789ab",))
    check_golden("down.txt", plan_text(plan))


def with_data(stage: Stage) -> ClusterSpec:
    source = DataSource(kind="nfs", text="nfs://10.0.0.9/web", place="10.0.0.9", path="/web")
    return ClusterSpec(name="lab", data=(DataSpec(name="web", source=source, to="/data/web", stage=stage),))


def test_the_head_ends_stagings_first() -> None:
    """It leads them. If another host's stager ended before, the staging's kit would report a lost host."""
    cases: tuple[tuple[Stage, list[str]], ...] = (("disk", ["EndStagings", "StackRemove"]), ("none", ["StackRemove"]))
    for stage, first in cases:
        plan = down_plan(with_data(stage), ["gpu1", "gpu2"], ())
        assert [step.kind for host, step in plan.steps() if host == "gpu1"][: len(first)] == first
        assert "EndStagings" not in [step.kind for host, step in plan.steps() if host == "gpu2"]


@pytest.mark.parametrize(("stage", "folders"), [("disk", ("/opt/kit/.data/lab/web",)), ("none", ())])
def test_only_a_staged_data_set_has_a_folder(stage: Stage, folders: tuple[str, ...]) -> None:
    steps = [step for _, step in down_plan(with_data(stage), ["gpu1"], ()).steps()]
    assert [step.data for step in steps if isinstance(step, RemoveCluster)] == [folders]


def test_the_preview_does_not_promise_that_a_host_leaves_the_swarm() -> None:
    """A secret of yours, a service or another cluster keeps it, which kit sees only on the host."""
    *_, (_, leave) = down_plan(ClusterSpec(name="lab"), ["gpu1"], ()).steps()
    assert leave.line() == ("leave", "the swarm that kit made, unless something else needs it")


def test_one_host_leaves_the_swarm_after_its_container() -> None:
    plan = down_plan(ClusterSpec(name="lab"), ["gpu1"], ())
    assert [step.kind for _, step in plan.steps()] == ["StackRemove", "RemoveCluster", "SwarmLeave"]


def test_a_stack_goes_wherever_it_is() -> None:
    """Its host leaves the swarm with the head: others need it to leave."""
    plan = down_plan(ClusterSpec(name="lab"), ["gpu1", "gpu2", "gpu3"], (), stacks=("gpu1", "gpu2"))
    kinds = {host: [step.kind for name, step in plan.steps() if name == host] for host in plan.hosts}
    assert kinds["gpu1"] == kinds["gpu2"] == ["StackRemove", "RemoveCluster", "SwarmLeave"]
    assert kinds["gpu3"] == ["RemoveCluster", "SwarmLeave"]
    assert [[host.host for host in part.hosts] for part in plan.rounds] == [
        ["gpu1", "gpu2"], ["gpu1", "gpu2", "gpu3"], ["gpu1", "gpu2"],
    ]  # fmt: skip
