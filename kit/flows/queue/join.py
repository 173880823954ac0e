"""kit run --queue: put a run in line on the head, which starts it when it is its turn. kit is not needed for that."""

from __future__ import annotations

from typing import Any

from kit.errors import InputError, NotReadyError
from kit.flows.context import Context
from kit.flows.run.environment import sources
from kit.flows.run.ready import Ready, make_ready, plan_on, with_code
from kit.model.answer import answer_of, convert
from kit.model.launch import LaunchPlan, RunRequest
from kit.model.queue import Member, Queued, Turn
from kit.model.values import replace
from kit.plan.queue import entry
from kit.plan.run import gpus, records
from kit.plan.run.again import kept_options
from kit.remote.run.door import Door, new_run_id
from kit.remote.run.values import remember


def join(context: Context, request: RunRequest, turn: Turn, *, door: Door | None = None) -> Queued:
    """Put the run at the end of the line, or one run for each index of an array.

    Its code goes to all hosts that it may get. `door` is one that is already connecting (kit.flows.run.dial).
    """
    entry.check(request)
    detached = replace(request, detach=True, stdin=None, policy=replace(request.policy, operator=None))
    ready = make_ready(context, detached, door=door)
    try:
        check_head(ready.door)
        share = gpus.per_rank(ready.request, context.spec)
        entry.check_nodes(ready.nodes, share)
        gpus.check_idle(ready.request.policy, ready.nodes)
        # The array has an id that no run has.
        *ids, array = _new_ids((len(turn.array) or 1) + 1)
        members: list[Member | None] = [Member(of=array, index=index, size=len(ids)) for index in turn.array]
        members = members or [None]

        def plans() -> list[tuple[RunRequest, LaunchPlan]]:
            made = []
            for run_id, member in zip(ids, members, strict=True):
                one = ready.request
                if member is not None:
                    one = replace(one, env=(*one.env, *entry.array_variables(member)))
                made.append((one, plan_on(context, ready, one, run_id=run_id)))
            return made

        launches = with_code(context, ready, plans, lambda _: [node.name for node in ready.nodes])
        entries = [
            _entry(ready, one, plan, turn, share=share, array=member)
            for (one, plan), member in zip(launches, members, strict=True)
        ]
        answer = ready.door.ask({"op": "queue", "entries": entries})
    finally:
        ready.door.close()
    _check_answer(ready.door, answer)
    for one, plan in launches:
        remember(plan.run_id, dict(one.env))
    with answer_of(ready.door.host, "its answer about the line"):
        ahead = convert(answer.get("ahead", ready.door.waiting), int)
    return Queued(
        runs=tuple(ids),
        ahead=ahead,
        np=launches[0][1].placement.np,
        hosts=tuple(node.name for node in ready.nodes),
        array=array if turn.array else "",
    )


def check_head(door: Door) -> None:
    """Raise NotReadyError if the head's image knows no line."""
    if door.waiting is None:
        raise NotReadyError(
            "the cluster was deployed by a version of kit that has no queue", hint="run: kit deploy", host=door.host
        )


def _entry(
    ready: Ready, request: RunRequest, plan: LaunchPlan, turn: Turn, *, share: int, array: Member | None
) -> dict[str, Any]:
    start = records.start_request(
        plan,
        cluster=ready.cluster.name,
        image=ready.cluster.image,
        head=ready.cluster.nodes[0].name,
        by=ready.by,
        wait=False,
        code=ready.code.record if ready.code else None,
        options=kept_options(request, sources(request.env)),
        exclusive=ready.exclusive,
    )
    return entry.entry(
        plan,
        start,
        turn,
        ready.nodes,
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


def _check_answer(door: Door, answer: object) -> None:
    """Raise an error if the runs are not in line."""
    with answer_of(door.host, "its answer about the line"):
        said = convert(answer, dict[str, Any])
    if "queued" in said:
        return
    unknown = said.get("unknown")
    if isinstance(unknown, str):
        raise InputError(f"--after {unknown}: the head has no such run", hint="list the runs: kit runs; kit queue")
    why = said.get("failed")
    raise NotReadyError(
        f"the head could not queue the run: {why if isinstance(why, str) else 'its launcher gave no reason'}",
        hint=f"check whether its disk is full: kit ssh {door.host} -- df -h",
        host=door.host,
    )
