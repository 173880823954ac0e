"""Guesses of a secret in env: of kit.yaml by another user of the VM, who reads what kit writes there."""

from __future__ import annotations

import pytest

from kit.model.plan import Plan, WriteFile
from kit.model.spec import ClusterSpec, Orchestrator
from tests.fakes.deployed import content_of
from tests.fakes.facts import facts
from tests.unit.plan.cluster import test_deploy as compose
from tests.unit.plan.swarm import test_deploy as swarm


def public_files(orchestrator: Orchestrator, pin: str) -> dict[tuple[str, str], bytes]:
    """Return what the first deploy writes for everybody to read, by host and path."""
    spec = ClusterSpec(name="lab", orchestrator=orchestrator, env={"PIN": pin})
    hosts = [facts(1), facts(2)]
    plan: Plan = compose.plan_of(hosts, spec) if orchestrator == "compose" else swarm.plan_of(hosts, spec)
    return {
        (host, step.path): content_of(step)
        for host, step in plan.steps()
        if isinstance(step, WriteFile) and step.mode != "600"
    }


@pytest.mark.parametrize("orchestrator", ["compose", "swarm"])
def test_no_file_that_others_can_read_depends_on_a_secret(orchestrator: Orchestrator) -> None:
    """Four digits have 10,000 values: a digest of eight hexadecimal digits confirms the right one."""
    files = public_files(orchestrator, "1234")
    assert ("gpu1", "ssh/known_hosts") in files
    assert files == public_files(orchestrator, "9876")
