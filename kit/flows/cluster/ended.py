"""The runs that a deploy must not end without --force: those of this cluster, and of another one on the same hosts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing, suppress

from kit.errors import NotReadyError, UnreachableError
from kit.events import Warned
from kit.flows.cluster.look import failed
from kit.flows.context import Context
from kit.model import names
from kit.model.host import Host
from kit.model.launch import Node
from kit.model.observed import HostFacts
from kit.model.plan import ComposeUp, Plan, Step
from kit.model.swarm import RemoveNode, StackDeploy, StackRemove
from kit.plan.cluster.foreign import nodes_without_head, ranks_of_others
from kit.plan.cluster.nodes import nodes_of
from kit.plan.run.owners import active
from kit.remote.cluster.observe import living_runs


def spare_others(
    context: Context,
    observed: Sequence[HostFacts],
    nodes: Sequence[Node],
    *,
    dry_run: bool = False,
    changed: str = "nothing was changed",
) -> None:
    """Raise NotReadyError if ranks of another cluster run on a host, because its head cannot protect them.

    New keys would lock that head out, also where no container is recreated. A dry run only warns.
    """
    hosts = nodes_without_head(observed, nodes, context.spec.name)
    if not hosts:
        return
    from kit.flows.cluster.others import ranks_there  # noqa: PLC0415  (few deploys find such a host)

    outcome = ranks_there(context, hosts)
    if outcome.failures:
        raise failed(changed, list(outcome.failures.values()))
    living = {run for facts in observed for run in facts.living}
    source = context.inventory.source
    text = ranks_of_others(outcome.results, living, cluster=context.spec.name, source=source)
    if text is None:
        return
    hint = "if it is another cluster, set another name: in kit.yaml; if its head is lost: kit deploy --force"
    if not dry_run:
        raise NotReadyError(f"{text}; {changed}", hint=hint)
    context.reporter.report(Warned(text=f"{text}, and this deploy would end them", hint=hint))


def spare_runs(context: Context, plan: Plan, observed: Sequence[HostFacts]) -> None:
    """Raise NotReadyError if the plan recreates or ends a node while a run is active: that would end the run."""
    if living := _ended_runs(plan, observed):
        raise _ends(context, living, observed, "nothing was changed")


def warn_of_runs(context: Context, plan: Plan, observed: Sequence[HostFacts]) -> None:
    """Warn, in a dry run, of active runs that the plan would end."""
    if living := _ended_runs(plan, observed):
        text, hint = _ends_text(context, living, observed)
        context.reporter.report(Warned(text=text, hint=hint))


def _ended_runs(plan: Plan, observed: Sequence[HostFacts]) -> set[str]:
    """Return the active runs if the plan recreates or ends a node."""
    living = {run for facts in observed for run in facts.living}
    return living if living and ends_nodes(list(plan.steps()), plan.cluster, observed) else set()


def spare_new_runs(context: Context, observed: Sequence[HostFacts]) -> None:
    """Raise NotReadyError if a run has begun since the look. The image may have been on its way for minutes."""
    living: set[str] = set()
    # Only heads have runs: this one, and an earlier one.
    for head in _heads(observed):
        # One that cannot be reached fails in the round that is about to begin.
        with suppress(UnreachableError), closing(context.connect(head)) as transport:
            living |= set(living_runs(transport, folder=names.folder(context.spec.name)))
    if living:
        raise _ends(context, living, observed, "no container was changed")
    nodes, _ = nodes_of(observed, context.spec)
    spare_others(context, observed, nodes, changed="no container was changed")


def ends_nodes(steps: Sequence[tuple[str, Step]], cluster: str, observed: Sequence[HostFacts]) -> bool:
    """Return whether one of these steps (host, step) recreates or ends a container that runs."""
    from kit.plan.swarm.manager import leavers, role_changes  # noqa: PLC0415  (most deploys end nothing)

    touched = {host for host, step in steps if isinstance(step, ComposeUp | RemoveNode)}
    touched |= {host for _, step in steps if isinstance(step, StackDeploy) for host in step.restarts}
    touched |= set(role_changes(steps, cluster, observed[0]))
    stopped = {facts.host.name for facts in observed if not any(container.running for container in facts.containers)}
    stack_goes = any(isinstance(step, StackRemove) for _, step in steps)
    return bool(stack_goes or touched - stopped or leavers(steps, observed[0]))


def _heads(observed: Sequence[HostFacts]) -> list[Host]:
    return [facts.host for facts in observed if facts.record is not None]


def _ends(context: Context, living: Iterable[str], observed: Sequence[HostFacts], changed: str) -> NotReadyError:
    text, hint = _ends_text(context, living, observed)
    return NotReadyError(f"{text}; {changed}", hint=hint)


def _ends_text(context: Context, living: Iterable[str], observed: Sequence[HostFacts]) -> tuple[str, str]:
    """Return which active runs a deploy would end, and what to do."""
    from kit.flows.run.listing import with_owners  # noqa: PLC0415  (only where a run is active)

    runs = with_owners(context, living, _heads(observed))
    ends = ", and this deploy would end it" if len(runs) == 1 else ", and this deploy would end them"
    return f"{active(runs)}{ends}", "wait for it (kit wait), stop it (kit stop ID), or end it by: kit deploy --force"
