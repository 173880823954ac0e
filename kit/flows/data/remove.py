"""kit data rm, kit data stop: remove a staged data set from all hosts, and end a staging."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing

from kit.errors import NotReadyError, StepError
from kit.events import HostDone, HostStep, Phase
from kit.flows.cluster.change import changing
from kit.flows.context import Context
from kit.flows.data.hosts import look, spare_runs
from kit.flows.run.listing import listing
from kit.model.data import data_folder
from kit.model.datasets import RemoveDataResult, RemovedData, StopResult
from kit.model.host import Host
from kit.model.text import fold
from kit.plan.data.choose import known_sets, named, removable
from kit.remote.data import state
from kit.remote.data.order import Order, Place
from kit.remote.data.refusals import NotRunning
from kit.remote.ssh import fanout

_STOP_S = 60.0


def remove_data(
    context: Context,
    words: Sequence[str],
    *,
    dry_run: bool,
    confirm: Callable[[tuple[RemovedData, ...]], bool],
) -> RemoveDataResult | None:
    """Remove what was staged of these data sets from all hosts. Return None if `confirm` says no.

    Raises an error, and removes nothing, if a host cannot be asked, if one of them is being staged, if a run is active
    that could read it, or if a run in line has it in --data.
    """
    cluster = context.spec.name
    hosts = look(context).or_raise("kit data rm")
    sets = removable(context.spec, hosts, words)
    for one in sets:
        busy = [name for name, host in hosts.items() for item in host.sets if item.name == one.name and item.stages]
        if busy and _is_staging(context, one.name):
            raise _staging(one.name)
    _spare_runs(context, sets)
    result = RemoveDataResult(cluster=cluster, sets=sets, dry_run=dry_run)
    if dry_run or not any(one.hosts for one in sets):
        return result
    if not confirm(sets):
        return None
    with changing(context, "data rm") as change:
        # A run may have begun since the user was asked.
        _spare_runs(context, sets)
        change.what = ", ".join(one.name for one in sets)
        context.reporter.report(Phase(name="remove", hosts=context.inventory.names))
        # The head goes last: as long as it has the data, the same command can be repeated.
        head, *others = context.inventory.hosts
        for group in (others, [head]):
            fanout.each(group, lambda host: _remove(context, host, sets)).or_raise("kit data rm")
    return result


def _remove(context: Context, host: Host, sets: Sequence[RemovedData]) -> None:
    with closing(context.connect(host)) as transport:
        for one in sets:
            context.reporter.report(HostStep(host=host.name, text=f"removing {one.name}"))
            if not state.remove(transport, context.spec.name, one.name, one.folders):
                error = _staging(one.name)
                error.host = host.name
                raise error
    context.reporter.report(HostDone(host=host.name, text="removed"))


def _spare_runs(context: Context, sets: Sequence[RemovedData]) -> None:
    spare_runs(context, f"can read {fold(one.name for one in sets)}; nothing was removed")
    wanted = {one.name for one in sets}
    # Their data came when they joined the line, and nobody stages it again before they start.
    waiting = [run for run in listing(context).waiting if wanted.intersection(run.data)]
    if waiting:
        ids = ", ".join(run.id for run in waiting[:3]) + (" …" if waiting[3:] else "")
        needed = fold(sorted(wanted & {name for run in waiting for name in run.data}))
        raise NotReadyError(
            f"the run {ids} waits in line and needs {needed}; nothing was removed",
            hint=f"wait for it (kit wait {waiting[0].id}), or take it out of the line: kit queue rm {waiting[0].id}",
        )


def _staging(name: str) -> NotReadyError:
    return NotReadyError(
        f"{name} is being staged; nothing was removed",
        hint=f"wait for it (kit data ls), or end it: kit data stop {name}",
    )


def _is_staging(context: Context, name: str) -> bool:
    """Return whether a staging runs: a stager stays for some seconds after its last one."""
    data = next((data for data in context.spec.data if data.name == name), None)
    if data is None:
        # Nobody here knows where to ask. Each host looks again before it removes anything.
        return False
    order = _order(context, name)
    try:
        with closing(order):
            hello = order.begun().hello
            return hello is None or hello.staging is not None
    except NotRunning:
        return False


def stop(context: Context, name: str) -> StopResult:
    """End the staging of a data set that runs on the cluster. What came is kept."""
    named(context.spec, name)
    order = _order(context, name)
    try:
        with closing(order):
            hello = order.begun().hello
            staging = hello.staging if hello else None
            if staging is None:
                return StopResult(cluster=context.spec.name, name=name)
            order.send(op="stop", id=staging)
            stopped = order.answer(_STOP_S).stopped
    except NotRunning:
        return StopResult(cluster=context.spec.name, name=name)
    if not stopped:
        raise StepError(
            f"the staging of {name} did not stop", hint="see it: kit data ls", host=context.inventory.head.name
        )
    return StopResult(cluster=context.spec.name, name=name, id=staging)


def _order(context: Context, name: str) -> Order:
    (data,) = known_sets(context.spec, [name])
    place = Place(cluster=context.spec.name, data=name, folder=data_folder(context.spec.name, data))
    return Order(context.inventory.head, context.connect, place, how="running").start()
