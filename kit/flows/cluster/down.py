"""kit down: removes the cluster from every host. It finds everything by label and leaves nothing."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from kit.errors import KitError, UnreachableError
from kit.events import HostDone, HostFailed, HostStep, Phase
from kit.flows.cluster.change import Change, changing
from kit.flows.context import Context
from kit.flows.image.content import content
from kit.model import names
from kit.model.host import Host
from kit.model.result import DownResult
from kit.plan.cluster.teardown import teardown_step
from kit.remote.cluster.steps import remove
from kit.remote.ssh import fanout
from kit.remote.swarm import steps as swarm

MEMBERSHIP = "membership in the swarm"


def down(context: Context, *, images: bool = False) -> DownResult:
    """Remove the cluster's containers and folder from all hosts, and with `images` also its image.

    Hosts are done side by side. One error at the end names all hosts that failed.
    """
    spec = context.spec
    tags = (content(spec.image).tag,) if images else ()
    step = teardown_step(spec, tags)
    head = context.inventory.head
    gone: list[str] = []

    def work(host: Host) -> tuple[str, ...]:
        context.reporter.report(HostStep(host=host.name, text=f"removing {names.project(spec.name)}"))
        with closing(context.connect(host)) as transport:
            try:
                change.check()
                removed = [*(unstacked.removed if host == head else ()), *remove(transport, step)]
                if (host != head or not unstacked.manager) and (left := swarm.leave(transport, stay=unstacked.stay)):
                    gone.append(left)
                    removed.append(MEMBERSHIP)
            except KitError as error:
                context.reporter.report(HostFailed(host=host.name, text=error.message, hint=error.hint))
                raise
        context.reporter.report(
            HostDone(host=host.name, text=f"removed {len(removed)}" if removed else "nothing there")
        )
        return tuple(removed)

    # An unreachable head must not prevent the removal from the other hosts.
    with changing(context, "down", needs_lock=False) as change:
        change.what = f"{len(context.inventory.hosts)} hosts"
        context.reporter.report(Phase(name="take down", hosts=context.inventory.names))
        # Services go before their containers, or Swarm would restart these.
        unstacked = _unstack(context, change)
        done = fanout.each(context.inventory.hosts, work)
        # The manager leaves after the others, which need it to leave.
        last = unstacked.manager and head.name in done.results
        manager_left = _leave(context, change, unstacked.stay, gone) if last else None
        removed = {**done.or_raise("kit down")}
        removed[head.name] = (*removed[head.name], *([MEMBERSHIP] if manager_left else []))
    return DownResult(cluster=spec.name, removed=removed)


def _unstack(context: Context, change: Change) -> swarm.Unstacked:
    """Remove the stack by the head. Do nothing if it is unreachable: its own removal reports that."""
    try:
        with closing(context.connect(context.inventory.head)) as transport:
            change.check()
            return swarm.remove_stack(transport, context.spec.name)
    except UnreachableError:
        return swarm.Unstacked()


def _leave(context: Context, change: Change, stay: Sequence[str], gone: Sequence[str]) -> str | None:
    with closing(context.connect(context.inventory.head)) as transport:
        change.check()
        return swarm.leave(transport, stay=stay, gone=gone)
