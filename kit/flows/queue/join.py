"""kit run --queue: put a run in line on the head, which starts it when it is its turn. kit is not needed for that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kit.errors import InputError, Interrupted, KitError, NotReadyError
from kit.events import Warned
from kit.flows.context import Context
from kit.flows.run.answers import TRIES, id_taken
from kit.flows.run.code import Code
from kit.flows.run.environment import sources
from kit.flows.run.listing import unknown_run
from kit.flows.run.ready import Ready, make_ready, plan_on, with_code
from kit.model.answer import answer_of, convert
from kit.model.launch import LaunchPlan, Node, RunRequest
from kit.model.queue import Queued, Turn
from kit.model.run import Member
from kit.model.text import one_line
from kit.model.values import replace
from kit.plan.queue import entry
from kit.plan.run import gpus, records
from kit.plan.run.again import kept_options
from kit.plan.run.code_record import without_diff
from kit.remote.run.door import Door, new_run_id
from kit.remote.run.values import remember


def join(context: Context, request: RunRequest, turn: Turn, *, door: Door | None = None) -> Queued:
    """Put the run at the end of the line, or one run for each index of an array.

    If the head knows another run with one of the new ids, which have the second in them, try again with others.

    Its code goes to all hosts that it may get, also to cordoned ones. Its shape is one for the hosts that are not
    cordoned, if it fits there. `door` is one that is already connecting (kit.flows.run.dial).
    """
    for left in reversed(range(TRIES)):
        queued = _joined(context, request, turn, door, again=left > 0)
        if queued is not None:
            return queued
        door = None
    raise AssertionError("the last try joins the line, or raises")


def _joined(context: Context, request: RunRequest, turn: Turn, door: Door | None, *, again: bool) -> Queued | None:
    """Return what joined the line. Return None if a new id is that of another run, and kit may try `again`."""
    entry.check(request)
    detached = replace(request, detach=True, stdin=None, policy=replace(request.policy, operator=None))
    ready = make_ready(context, detached, door=door, waits=True)
    try:
        if request.again:
            entry.check(ready.request, repeated=True)
        check_head(ready.door)
        share = gpus.per_rank(ready.request, context.spec)
        entry.check_nodes(ready.nodes, share)
        gpus.check_idle(ready.request.policy, ready.nodes)
        ready = replace(ready, cordoned=_fitting(context, ready, share))
        # The array has an id that no run has.
        *ids, array = _new_ids((len(turn.array) or 1) + 1)
        members: list[Member | None] = [Member(of=array, index=index, size=len(ids)) for index in turn.array]
        members = members or [None]
        names = [node.name for node in ready.nodes]
        launches = with_code(context, ready, lambda: _launches(context, ready, ids, members), lambda _: names)
        if ready.cordoned and ready.code is not None:
            without = _without_code(context, ready, ready.code, [node.name for node in ready.cordoned])
            ready = replace(ready, cordoned=[node for node in ready.cordoned if node.name not in without])
            launches = _launches(context, ready, ids, members) if without else launches
        nodes = _all_nodes(context, ready)
        code = ready.code.record if ready.code else None
        # It may have a megabyte, and an array 1,000 runs. An older launcher wants it in each entry.
        code, diff = without_diff(code) if code and ready.door.takes_diffs else (code, {})
        entries = [
            _entry(ready, one, plan, turn, nodes, share=share, array=member, code=code)
            for (one, plan), member in zip(launches, members, strict=True)
        ]
        name = array if turn.array else ids[0]
        what = f"array {name} of {len(ids)} runs" if turn.array else f"run {name}"
        answer = _asked(ready.door, {"op": "queue", "entries": entries, **({"diff": diff} if diff else {})}, name, what)
    finally:
        ready.door.close()
    if again and "taken" in answer:
        return None
    _check_answer(context, ready.door, answer)
    # The runs of an array have the same values, and the cache has room for a few hundred files.
    remember(name, dict(ready.request.env), members=ids if turn.array else ())
    with answer_of(ready.door.host, "its answer about the line"):
        ahead = convert(answer.get("ahead", ready.door.waiting), int)
    return Queued(
        runs=tuple(ids),
        ahead=ahead,
        np=launches[0][1].placement.np,
        hosts=tuple(node.name for node in nodes),
        array=array if turn.array else "",
    )


def _asked(door: Door, request: Mapping[str, Any], name: str, what: str) -> Mapping[str, Any]:
    """Return the head's answer to what joins the line. Without one, the head may have the request all the same."""
    hint = f"look: kit queue; take it out of the line: kit queue rm {name}"
    try:
        return door.ask(request)
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted while {what} joined the line, so it may be there", hint=hint) from None
    except KitError as error:
        error.message += f"; {what} may be in line"
        error.hint = f"{error.hint}; then {hint}" if error.hint else hint
        raise


def _launches(
    context: Context, ready: Ready, ids: Sequence[str], members: Sequence[Member | None]
) -> list[tuple[RunRequest, LaunchPlan]]:
    """Return the request and the plan of each run, on the hosts that are not cordoned, or on all if it needs them."""
    whole = replace(ready, nodes=_all_nodes(context, ready))
    if not whole.nodes:
        raise NotReadyError("all hosts are cordoned, and the run can use none of them", hint="see why: kit hosts")
    try:
        return _launches_on(context, ready if ready.nodes else whole, ids, members)
    except (InputError, NotReadyError):
        if not ready.cordoned:
            raise
    # It does not fit without the cordoned hosts, so it waits for them.
    return _launches_on(context, whole, ids, members)


def _launches_on(
    context: Context, hosts: Ready, ids: Sequence[str], members: Sequence[Member | None]
) -> list[tuple[RunRequest, LaunchPlan]]:
    launches = []
    for run_id, member in zip(ids, members, strict=True):
        one = hosts.request
        if member is not None:
            one = replace(one, env=(*one.env, *entry.array_variables(member)))
        launches.append((one, plan_on(context, hosts, one, run_id=run_id)))
    return launches


def _all_nodes(context: Context, ready: Ready) -> Sequence[Node]:
    """Return the hosts that the run may get, in the order of the hosts file."""
    if not ready.cordoned:
        return ready.nodes
    places = {name: place for place, name in enumerate(context.inventory.names)}
    return sorted((*ready.nodes, *ready.cordoned), key=lambda node: places[node.name])


def _fitting(context: Context, ready: Ready, share: int) -> Sequence[Node]:
    """Return the cordoned hosts on which the run could start. Warn about the others: they may be broken."""
    fitting = []
    for node in ready.cordoned:
        try:
            entry.check_nodes([node], share)
            gpus.check_idle(ready.request.policy, [node])
        except InputError as error:
            _warn_of_unused(context, node.name, error)
        else:
            fitting.append(node)
    return fitting


def _without_code(context: Context, ready: Ready, code: Code, names: Sequence[str]) -> Sequence[str]:
    """Bring the code to cordoned hosts, and return those that cannot get it. Warn about them: they may be broken."""
    try:
        code.bring(context, ready.door, ready.cluster, names)
    except Interrupted:
        raise
    except KitError as error:
        if len(names) > 1:
            return [name for one in names for name in _without_code(context, ready, code, [one])]
        _warn_of_unused(context, names[0], error)
        return names
    return ()


def _warn_of_unused(context: Context, host: str, error: KitError) -> None:
    context.reporter.report(
        Warned(text=f"the run does not use {host}, also without its cordon: {error}", hint=error.hint)
    )


def check_head(door: Door) -> None:
    """Raise NotReadyError if the head's image knows no line."""
    if door.waiting is None:
        raise NotReadyError(
            "the cluster was deployed by a version of kit that has no queue", hint="run: kit deploy", host=door.host
        )


def _entry(
    ready: Ready,
    request: RunRequest,
    plan: LaunchPlan,
    turn: Turn,
    nodes: Sequence[Node],
    *,
    share: int,
    array: Member | None,
    code: Mapping[str, Any] | None,
) -> dict[str, Any]:
    start = records.start_request(
        plan,
        cluster=ready.cluster.name,
        image=ready.cluster.image,
        head=ready.cluster.nodes[0].name,
        by=ready.by,
        wait=False,
        code=code,
        # Without the variables of an array, which follow from the record.
        options=kept_options(request, sources(ready.request.env)),
        exclusive=ready.exclusive,
    )
    return entry.entry(
        plan,
        start,
        turn,
        nodes,
        share=share,
        exclusive=ready.exclusive,
        cpus=request.cpus,
        array=array,
    )


def _new_ids(count: int) -> list[str]:
    """Return as many ids, in the order of their names: that of the runs of an array."""
    ids: set[str] = set()
    while len(ids) < count:
        ids.add(new_run_id())
    return sorted(ids)


def _check_answer(context: Context, door: Door, answer: object) -> None:
    """Raise an error if the runs are not in line."""
    with answer_of(door.host, "its answer about the line"):
        fields = convert(answer, dict[str, Any])
    if "queued" in fields:
        return
    unknown = fields.get("unknown")
    known, size = fields.get("known"), fields.get("size")
    if isinstance(unknown, str) and isinstance(known, int) and isinstance(size, int):
        word = one_line(unknown)
        raise InputError(
            f"--after {word}: the head knows only {known} of the {size} runs of this array, so it cannot know how all "
            "of them ended",
            hint=f"however they ended: --after {word},any; or name the runs that count: kit runs",
        )
    if isinstance(unknown, str):
        raise unknown_run(context, unknown)
    if "taken" in fields:
        raise id_taken(door.host)
    why = fields.get("failed")
    raise NotReadyError(
        f"the head could not queue the run: {why if isinstance(why, str) else 'its launcher gave no reason'}",
        hint=f"check whether its disk is full: kit ssh {door.host} -- df -h",
        host=door.host,
    )
