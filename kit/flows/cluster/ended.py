"""The runs that a deploy must not end without --force: those of this cluster, and of another one on the same hosts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress

from kit.errors import NotReadyError, UnreachableError
from kit.events import Warned
from kit.flows.cluster.look import failed
from kit.flows.context import Context
from kit.model import names
from kit.model.host import Host
from kit.model.launch import Node
from kit.model.observed import HostFacts
from kit.model.plan import ComposeUp, Plan, Step, WriteFile
from kit.model.swarm import RemoveNode, StackDeploy, StackRemove
from kit.model.text import fold
from kit.plan.cluster.changes import leavers, runs_on
from kit.plan.cluster.foreign import nodes_without_head, ranks_of_others
from kit.plan.cluster.nodes import nodes_of
from kit.plan.cluster.record import record_of
from kit.plan.run.owners import active
from kit.remote.cluster.observe import living_runs, run_leases

_HINT = "wait for it (kit wait), stop it (kit stop ID), or end it by: kit deploy --force"


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
    """Raise NotReadyError if the plan recreates or ends a node while a run is active: that would end the run.

    Raise it also if a host that a run uses left the hosts file.
    """
    if living := _ended_runs(plan, observed):
        raise _ends(context, living, observed, "nothing was changed")
    spare_runs_of_leavers(context, observed, "nothing was changed")


def warn_of_runs(context: Context, plan: Plan, observed: Sequence[HostFacts]) -> None:
    """Warn, in a dry run, of active runs that the plan would end."""
    if living := _ended_runs(plan, observed):
        text, hint = _ends_text(context, living, observed)
        context.reporter.report(Warned(text=text, hint=hint))
    elif runs := _runs_of_leavers(context, observed):
        text, hint = _leaves_text(context, runs, observed)
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


def spare_runs_of_leavers(context: Context, observed: Sequence[HostFacts], changed: str) -> None:
    """Raise NotReadyError if an active run uses a host that left the hosts file: its supervisor could not reach it."""
    if runs := _runs_of_leavers(context, observed):
        text, hint = _leaves_text(context, runs, observed)
        raise NotReadyError(f"{text}; {changed}", hint=hint)


def _runs_of_leavers(context: Context, observed: Sequence[HostFacts]) -> Mapping[str, tuple[str, ...]]:
    """Return the active runs that use hosts that left the hosts file, each with these hosts (plan.cluster.changes)."""
    folder = names.folder(context.spec.name)
    runs: dict[str, tuple[str, ...]] = {}
    for facts in observed:
        # Without its container, a head has no active run, and perhaps no Python that could list them.
        runs_node = any(one.running and one.cluster == context.spec.name for one in facts.containers)
        if runs_node and (left := _leavers(context, observed, facts)):
            with closing(context.connect(facts.host)) as transport:
                leases = run_leases(transport, folder=folder)
                # After the leases: a run that has ended meanwhile must not look like one without a lease.
                runs |= runs_on(left, living_runs(transport, folder=folder), leases)
    return runs


def _leavers(context: Context, observed: Sequence[HostFacts], head: HostFacts) -> list[str]:
    """Return the hosts that the record of this head has, and the hosts file has not."""
    if (record := record_of(head)) is None:
        return []
    nodes, _ = nodes_of(observed, context.spec)
    left = leavers(record, context.inventory.names, {node.address for node in nodes})
    return [node.name for node in left]


def takes_hosts_out(steps: Sequence[tuple[str, Step]]) -> bool:
    """Return whether one of these steps (host, step) replaces the record: then, the head reaches no host that left."""
    return any(isinstance(step, WriteFile) and step.path == names.RECORD for _, step in steps)


def ends_nodes(steps: Sequence[tuple[str, Step]], cluster: str, observed: Sequence[HostFacts]) -> bool:
    """Return whether one of these steps (host, step) recreates or ends a container that runs."""
    from kit.plan.swarm import manager  # noqa: PLC0415  (most deploys end nothing)

    touched = {host for host, step in steps if isinstance(step, ComposeUp | RemoveNode)}
    touched |= {host for _, step in steps if isinstance(step, StackDeploy) for host in step.restarts}
    touched |= set(manager.role_changes(steps, cluster, observed[0]))
    running = {
        facts.host.name for facts in observed if any(c.running and c.cluster == cluster for c in facts.containers)
    }
    stack_goes = any(isinstance(step, StackRemove) for _, step in steps)
    return bool(stack_goes or touched & running or manager.leavers(steps, observed[0]))


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
    return f"{active(runs)}{ends}", _HINT


def _leaves_text(
    context: Context, runs: Mapping[str, tuple[str, ...]], observed: Sequence[HostFacts]
) -> tuple[str, str]:
    """Return which hosts leave which of these active runs (plan.cluster.changes.runs_on), and what to do."""
    from kit.flows.run.listing import with_owners  # noqa: PLC0415  (only where a run is active)

    left = list(dict.fromkeys(host for facts in observed for host in _leavers(context, observed, facts)))
    used = [host for host in left if any(host in hosts for hosts in runs.values())] or left
    owned = zip(sorted(runs), with_owners(context, runs, _heads(observed)), strict=True)
    shown = [f"{run} on {fold(runs[id_])}" if runs[id_] else run for id_, run in owned]
    would = "would" if all(runs.values()) else "may"
    which = f"{fold(used)} {'is' if len(used) == 1 else 'are'} no longer in {context.inventory.source}"
    text = f"{active(shown)}, and this deploy {would} end {'it' if len(shown) == 1 else 'them'}: {which}"
    return text, f"put {fold(used)} back into {context.inventory.source}, or {_HINT}"
