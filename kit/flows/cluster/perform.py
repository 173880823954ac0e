"""The part of kit deploy that changes hosts. Most deploys have nothing to do, and never import this."""

from __future__ import annotations

from collections.abc import Callable, Collection

from kit.errors import HostsFailed
from kit.flows.cluster.change import Change, changing
from kit.flows.context import Context
from kit.model.plan import SET_UP, Plan, Round
from kit.model.swarm import START
from kit.remote.cluster.execute import execute


def perform(context: Context, plan_again: Callable[[], Plan], before: Callable[[Round], None]) -> Plan:
    """Take the lock, plan again because hosts may have changed, execute and return that plan.

    `before` may end it before a round (kit.remote.cluster.execute).
    """
    with changing(context, "deploy") as change:
        plan = plan_again()
        if not plan.empty:
            # Before the checks of single hosts: one error, and nothing begun.
            change.check()
            change.what = _summary(plan)
            _execute(context, plan, change, before)
    return plan


def _summary(plan: Plan) -> str:
    """Return `14 steps on 4 hosts`, for the audit."""
    hosts = [host for host, _ in plan.steps()]
    return f"{len(hosts)} steps on {len(set(hosts))} hosts"


def _execute(context: Context, plan: Plan, change: Change, before: Callable[[Round], None]) -> None:
    execution = change.execution(context)
    failures = execute(execution, plan, before)
    if failures:
        # If the lock was lost, that is the one cause for all hosts.
        change.check()
        if len(failures) == 1:
            raise next(iter(failures.values()))
        raise HostsFailed(_outcome(len(failures), len(plan.hosts), execution.skipped), list(failures.values()))


def _outcome(failed: int, count: int, skipped: Collection[str]) -> str:
    """Return what became of the hosts. `skipped` are the names of the rounds that did not begin."""
    if {SET_UP, START} & set(skipped):
        return f"{failed} of {count} hosts failed; the nodes were not started"
    return f"{failed} hosts failed, {count - failed} are done"
