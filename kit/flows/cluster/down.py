"""kit down: plan, show, execute. It finds everything of the cluster by label, and leaves nothing."""

from __future__ import annotations

from kit.flows.cluster.change import changing
from kit.flows.context import Context
from kit.flows.image.content import tag_of
from kit.model.plan import Plan
from kit.model.result import DownResult
from kit.plan.cluster.down import down_plan
from kit.remote.cluster.execute import execute
from kit.remote.ssh.fanout import Outcome


def plan_down(context: Context, *, images: bool = False) -> Plan:
    """Return what `down` does. kit contacts no host for that."""
    tags = (tag_of(context.spec),) if images else ()
    return down_plan(context.spec, context.inventory.names, tags)


def down(context: Context, *, images: bool = False) -> DownResult:
    """Remove the cluster's containers and folder from all hosts, and with `images` also its image.

    Hosts are done side by side. One error at the end names all hosts that failed.
    """
    plan = plan_down(context, images=images)
    # A head that kit cannot reach gives no lock, and must not prevent the removal from the other hosts.
    with changing(context, "down", needs_lock=False) as change:
        change.what = f"{len(plan.hosts)} hosts"
        lines: dict[str, list[str]] = {}
        failures = execute(change.execution(context, removed=lines), plan)
        if failures:
            # If the lock was lost, that is the one cause for all hosts.
            change.check()
        removed = {host: tuple(lines.get(host, ())) for host in plan.hosts if host not in failures}
        Outcome(results=removed, failures=failures).or_raise("kit down")
    return DownResult(cluster=plan.cluster, removed=removed)
