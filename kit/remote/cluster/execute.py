"""Carries out a plan: its rounds in order, and in each round its hosts side by side. It decides nothing.

Two tables say which function does which kind of step: on one host, or on all hosts of a round at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing

from kit.errors import Interrupted, KitError, SlowError, UnreachableError
from kit.events import HostDone, HostFailed, Phase
from kit.model.host import Host
from kit.model.plan import HostPlan, Needs, Plan, Round
from kit.remote.cluster import steps
from kit.remote.cluster.execution import Execution
from kit.remote.setup import steps as setup
from kit.remote.ssh import fanout
from kit.remote.swarm import steps as swarm

ON_HOST = {**steps.ON_HOST, **swarm.ON_HOST, **setup.ON_HOST}
ON_ALL = steps.ON_ALL


def execute(execution: Execution, plan: Plan, before: Callable[[Round], None] = lambda _: None) -> dict[str, KitError]:
    """Do the plan's rounds. Return the failures by host.

    A host stops at its first failure. Each round says what it needs of the rounds before it. `before` is called with
    each round that is about to begin, and raises a KitError to end the plan there.
    """
    failures: dict[str, KitError] = {}
    for at, part in enumerate(plan.rounds):
        if not _begins(part.needs, failures):
            execution.skipped.extend(later.name for later in plan.rounds[at:])
            break
        ready = [host for host in part.hosts if host.host not in failures]
        if ready:
            before(part)
            execution.reporter.report(Phase(name=part.name, hosts=tuple(host.host for host in ready)))
            failures |= (at_once if part.together else side_by_side)(execution, ready)
            execution.slow.update(host for host, error in failures.items() if isinstance(error, SlowError))
    return failures


def _begins(needs: Needs, failures: Mapping[str, KitError]) -> bool:
    if needs == "all":
        return not failures
    return needs == "host" or all(isinstance(error, UnreachableError | SlowError) for error in failures.values())


def side_by_side(execution: Execution, plans: Sequence[HostPlan]) -> Mapping[str, KitError]:
    """Do the steps of each host, with a thread and a connection for each."""
    steps_of = {plan.host: plan.steps for plan in plans}

    def work(host: Host) -> None:
        with closing(execution.connect(host)) as transport:
            try:
                for step in steps_of[host.name]:
                    execution.begin(host.name, step)
                    ON_HOST[type(step)](execution, transport, step)
            except Interrupted:
                raise
            except KitError as error:
                execution.reporter.report(HostFailed(host=host.name, text=error.message, hint=error.hint))
                raise
        execution.reporter.report(HostDone(host=host.name, text=execution.summary(host.name)))

    return fanout.each([execution.hosts[name] for name in steps_of], work).failures


def at_once(execution: Execution, plans: Sequence[HostPlan]) -> Mapping[str, KitError]:
    """Do the one step of each host by the function for all of them."""
    by_host = {plan.host: step for plan in plans for step in plan.steps}
    for host, step in by_host.items():
        execution.begin(host, step)
    (kind,) = {type(step) for step in by_host.values()}
    return ON_ALL[kind](execution, by_host)
