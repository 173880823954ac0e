"""kit run: place the ranks on free slots, start the run on the head, and follow it. kit exits with the job's code."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from kit.errors import Interrupted, KitError, NotReadyError
from kit.events import Note, Warned
from kit.flows.context import Context
from kit.flows.run.answers import TRIES, id_taken, lost_run, run_of, runs_of
from kit.flows.run.busy import on_free_gpus
from kit.flows.run.environment import sources
from kit.flows.run.follow import GRACE_S, PATIENCE, Follower, Manner
from kit.flows.run.node_log import with_node_log
from kit.flows.run.planning import dry_run
from kit.flows.run.ready import Ready, make_ready, planned
from kit.flows.run.stop import stop
from kit.model.launch import LaunchPlan, RunRequest
from kit.model.result import RunResult
from kit.model.run import RunRecord
from kit.model.values import replace
from kit.plan.run import leases, records
from kit.plan.run.again import kept_options
from kit.plan.run.owners import named
from kit.remote.machine.interrupts import Interrupts
from kit.remote.run.door import Door
from kit.remote.run.feed import Feed
from kit.remote.run.values import remember


def run(context: Context, request: RunRequest, *, door: Door | None = None) -> RunResult:
    """Run the request's command on the cluster. `exit_code` of the result is the job's; None if kit did not wait.

    `door` is one that is already connecting (kit.flows.run.dial).

    Raises Interrupted after Ctrl-C, when no rank is left on any host that kit can reach.
    """
    start = time.monotonic()
    if request.dry_run:
        return RunResult(plan=dry_run(context, request), exit_code=None, seconds=time.monotonic() - start)
    ready = make_ready(context, request, door=door)
    request = ready.request
    plan, follower, start_request = _begun(context, ready)
    door = follower.door
    if request.detach:
        door.close()
        if follower.before:
            ended = stop(context, plan.run_id, grace_s=GRACE_S)
            raise Interrupted(f"run {plan.run_id} was stopped; ranks left: {_left(ended)}")
        record = records.started_record(start_request, started=time.time())
        return RunResult(plan=plan, exit_code=None, seconds=time.monotonic() - start, record=record)
    if request.terminal:
        from kit.flows.run.terminal import in_terminal  # noqa: PLC0415  (only for -it)

        in_terminal(context, plan, follower)
    return _follow(context, plan, follower, start, start_request)


def _begun(context: Context, ready: Ready) -> tuple[LaunchPlan, Follower, Mapping[str, Any]]:
    """Plan the run and start it. Return its plan, what follows it, and the request that started it.

    If another run takes the slots between the two, or has the id, plan again, with what the head says by then.
    """
    request, door = ready.request, ready.door
    for left in reversed(range(TRIES)):
        try:
            plan, start_request = _planned(context, ready)
            needed = plan.policy.operator == "stop"
            manner = Manner(tagged=request.tag_output, operator=True, needed=needed, by=ready.by)
            follower = Follower(plan.run_id, door, context.reporter, manner)
            before = _started(context, plan, door, start_request, again=left > 0)
            if before is None:
                from kit.flows.run.attach import open_door  # noqa: PLC0415  (only where runs start side by side)

                door.close()
                door = open_door(context, door.another())
                ready = replace(ready, door=door)
                continue
            follower.before = before
            remember(plan.run_id, dict(request.env))
            if request.stdin is not None:
                follower.feed = Feed(request.stdin, door)
                follower.feed.start()
        except BaseException:
            door.close()
            raise
        return plan, follower, start_request
    raise AssertionError("the last try starts the run, or raises")


def _planned(context: Context, ready: Ready) -> tuple[LaunchPlan, Mapping[str, Any]]:
    """Return the plan of the run on slots that are free by the door's word, and the request that starts it."""
    request, door, cluster, code = ready.request, ready.door, ready.cluster, ready.code
    if request.stdin is not None and not door.takes_stdin:
        raise NotReadyError(
            "the cluster's image does not pass standard input on to rank 0",
            hint="run: kit deploy; or run without input: kit run … </dev/null",
        )
    plan = planned(context, ready)
    if request.now and door.reserved:
        from kit.flows.run.past import warn  # noqa: PLC0415  (only where runs wait)

        warn(plan, door, context.reporter)
    plan = on_free_gpus(context, plan, ready, ignore=request.ignore_busy_gpus)
    start_request = records.start_request(
        plan,
        cluster=cluster.name,
        image=cluster.image,
        head=cluster.nodes[0].name,
        by=ready.by,
        wait=request.wait,
        code=code.record if code else None,
        options=kept_options(request, sources(request.env)),
        stdin=request.stdin is not None,
        exclusive=ready.exclusive,
        now=request.now,
    )
    return plan, start_request


def _started(
    context: Context, plan: LaunchPlan, door: Door, start_request: Mapping[str, Any], *, again: bool
) -> int | None:
    """Start the run, after waiting for slots if the request says so. Return how often Ctrl-C came meanwhile.

    Return None if another run has its slots or its id, and kit may plan it `again`.
    """
    interrupted, sent = 0, False
    answer: Mapping[str, Any] | None = None
    while answer is None:
        try:
            if not sent:
                # The head would wait for the end of half a request, and kit for the answer.
                with Interrupts() as interrupts:
                    door.send(start_request)
                    sent = True
                interrupted += interrupts.count
            answer = door.answer()
        except KeyboardInterrupt:
            # The head has the request, or gets it next. kit can stop the run only after the head has started it.
            interrupted += 1
            if interrupted > PATIENCE:
                raise
    if interrupted and "started" not in answer:
        raise KeyboardInterrupt
    answer = _waited(context, door, answer)
    if "cordoned" in answer or "reserved" in answer:
        from kit.flows.run.past import refusal  # noqa: PLC0415  (only where runs wait, or hosts are cordoned)

        raise refusal(plan.placement.np, door, answer)
    if again and ("held" in answer or "taken" in answer):
        # Another run took the slots after kit had looked, or has the id.
        return None
    if "held" in answer:
        raise leases.taken(plan.placement.np, runs_of(door.host, answer["held"]))
    if "started" not in answer:
        raise id_taken(door.host) if "taken" in answer else _not_started(context.inventory.head.name, answer)
    return interrupted


def _not_started(head: str, answer: Mapping[str, Any]) -> NotReadyError:
    why = answer.get("failed")
    return NotReadyError(
        f"the head could not start the run: {why if isinstance(why, str) else 'its launcher gave no reason'}",
        hint=f"check whether its disk is full: kit ssh {head} -- df -h",
        host=head,
    )


def _waited(context: Context, door: Door, answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the answer that comes after those that say for what the run waits."""
    while "waiting" in answer:
        holders = runs_of(door.host, answer["waiting"])
        if holders:
            names_of_holders = ", ".join(named(holder.id, holder.by) for holder in holders)
            context.reporter.report(Note(text=f"waiting for slots that other runs hold: {names_of_holders}"))
        else:
            from kit.flows.run.past import waiting  # noqa: PLC0415  (only where runs wait)

            context.reporter.report(Note(text=waiting(door, answer)))
        answer = door.answer()
    return answer


def _follow(
    context: Context, plan: LaunchPlan, follower: Follower, start: float, start_request: Mapping[str, Any]
) -> RunResult:
    try:
        ending = _ending(follower)
    except KitError:
        # The head is gone, so nothing there can end the ranks. kit does, unless the run is to continue without it.
        if plan.policy.operator == "stop":
            left = _clean_up(context, plan)
            if follower.interrupted:
                raise Interrupted(f"run {plan.run_id} was stopped; ranks left: {left}") from None
        raise
    finally:
        follower.door.close(ended=follower.ending is not None)
    if ending is None or ending.get("lost"):
        left = _clean_up(context, plan)
        if follower.interrupted:
            raise Interrupted(f"run {plan.run_id} was stopped; ranks left: {left}")
        raise lost_run(context.inventory.head.name, plan.run_id, f"; ranks left: {left}")
    record = run_of(follower.door.host, {"id": plan.run_id}, ending)
    failure = record.failure
    if failure is not None and failure.kind == "host":
        failure = with_node_log(context, failure)
    if follower.interrupted and record.stopped:
        raise Interrupted(f"run {plan.run_id} was stopped; ranks left: {_left(record)}")
    return RunResult(
        plan=plan,
        exit_code=record.exit_code,
        seconds=time.monotonic() - start,
        stopped=record.stopped,
        failure=failure,
        folded=follower.folded,
        attempts=record.attempt,
        left=record.left or {},
        interrupted=follower.interrupted > 0,
        record=records.started_record(start_request, started=follower.began, ending=ending),
    )


def _ending(follower: Follower) -> Mapping[str, Any] | None:
    try:
        return follower.ending or follower.follow()
    except KeyboardInterrupt:
        # Ctrl-C came just before or just after the follower counted it.
        follower.before = max(follower.before, follower.interrupted) + 1
        return follower.ending or follower.follow()


def _left(record: RunRecord) -> str:
    """Return how many processes are left. A host that could not be asked has a guard that ends its processes."""
    return str(sum((record.left or {}).values()))


def _clean_up(context: Context, plan: LaunchPlan) -> str:
    """End what is left on every host of the run, from here. Return how many processes remain, in words."""
    # mpirun runs on the head, even if the head has no ranks.
    host_names = dict.fromkeys([context.inventory.head.name, *(node.name for node in plan.placement.nodes)])
    hosts = [context.host(name) for name in host_names]
    # Only after a failure:
    from kit.model.failures import alike  # noqa: PLC0415
    from kit.model.text import fold  # noqa: PLC0415
    from kit.remote.run.sweep import sweep  # noqa: PLC0415

    left, failures = sweep(hosts, plan.run_id, context.connect)
    for failure in alike(failures.values()):
        text = f"{fold(failure.hosts)}: cannot tell whether ranks are left: {failure.message}"
        context.reporter.report(Warned(text=text, hint="check later: kit ps"))
    for host, count in left.items():
        if count:
            context.reporter.report(
                Warned(text=f"{host}: {count} processes of the run are still running", hint=f"kit ssh {host}; then: ps")
            )
    return f"{sum(left.values())}" if not failures else f"not known on {fold(failures)}"
