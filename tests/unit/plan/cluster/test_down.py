"""The plan of kit down: services go before their containers, and the head leaves the swarm after all others."""

from __future__ import annotations

from kit.model.spec import ClusterSpec
from kit.plan.cluster.down import down_plan
from tests.fakes.golden import check_golden
from tests.fakes.plans import plan_text


def test_three_hosts_and_their_image() -> None:
    plan = down_plan(ClusterSpec(name="lab"), ["gpu1", "gpu2", "gpu3"], ("kit:cpu-0123456789ab",))
    check_golden("down.txt", plan_text(plan))


def test_one_host_leaves_the_swarm_after_its_container() -> None:
    plan = down_plan(ClusterSpec(name="lab"), ["gpu1"], ())
    assert [step.kind for _, step in plan.steps()] == ["StackRemove", "RemoveCluster", "SwarmLeave"]
