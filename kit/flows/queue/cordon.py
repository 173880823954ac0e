"""kit hosts, kit hosts cordon and uncordon: on a cordoned host, no new run is placed. The head keeps the list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kit.config.selection import select_hosts
from kit.errors import InputError, NotReadyError, StepError
from kit.events import Warned
from kit.flows.context import Context
from kit.flows.queue.join import check_head
from kit.flows.run.attach import open_door
from kit.model.answer import answer_of
from kit.model.doctor import DoctorResult
from kit.model.queue import HostRow, HostRows
from kit.plan.queue import answers, cordons
from kit.remote.machine.operator import operator
from kit.remote.run.door import Door

# A reason is a line in tables and messages.
MOST_WHY = 200


def rows(context: Context, *, door: Door | None = None) -> HostRows:
    """Return the hosts with their cordons. `door`, here and below, is one that is already connecting."""
    door = open_door(context, door)
    door.close(ended=True)
    check_head(door)
    with answer_of(door.host, "its list of cordoned hosts"):
        return _rows(context, door, door.cordons)


def cordon(context: Context, hosts: str, why: str, *, door: Door | None = None) -> HostRows:
    """Place no new run on these hosts. Runs that are there go on. A new reason replaces an earlier one."""
    return cordon_hosts(context, select_hosts(context.inventory, hosts).names, why, door=door)


def cordon_hosts(context: Context, names: Sequence[str], why: str, *, door: Door | None = None) -> HostRows:
    """Do the same with hosts by their names. Raises InputError for a reason that is no line of text."""
    if not why.isprintable() or len(why) > MOST_WHY:
        raise InputError(
            f"the reason is not one line of at most {MOST_WHY} characters",
            hint="write a short one: --why 'its GPU 1 has errors'",
        )
    return _change(context, {"op": "cordon", "hosts": list(names), "why": why, "by": operator()}, door)


def cordon_broken(context: Context, result: DoctorResult) -> HostRows:
    """Cordon the hosts for which kit doctor has a finding that breaks runs, with the names of its checks.

    If no host would be left for runs, warn and cordon none: the fault is then hardly that of single hosts.
    """
    now = rows(context)
    out = {row.name for row in now.hosts if row.cordon}
    why = {
        host: text
        for host, text in cordons.of_findings(result.findings, context.inventory.names).items()
        if host not in out
    }
    if not why:
        return now
    if out | set(why) >= set(context.inventory.names):
        text = "every host would be cordoned, so kit cordons none"
        hint = "fix what the findings name; or cordon hosts by hand: kit hosts cordon"
        context.reporter.report(Warned(text=text, hint=hint))
        return now
    for reason in dict.fromkeys(why.values()):
        now = cordon_hosts(context, [host for host, text in why.items() if text == reason], reason)
    return now


def left_out(context: Context, hosts: Sequence[str], ranking: Sequence[str], does_not: str) -> frozenset[str]:
    """Return which of these hosts are cordoned, and warn of them: `does_not` says what is not done with them.

    `ranking` are those that run ranks. Raises NotReadyError if none of them is left. For verbs without -H.
    """
    out = [row.cordon for row in rows(context).hosts if row.cordon is not None and row.name in hosts]
    try:
        cordons.usable([context.host(name) for name in ranking], out, named=False)
    except NotReadyError as error:
        error.hint = f"end that: kit hosts uncordon {ranking[0]}"
        raise
    for group in cordons.alike(out):
        them = "it" if len(group) == 1 else "them"
        context.reporter.report(Warned(text=f"{cordons.text(*group)}; {does_not} {them}"))
    return frozenset(cordon.host for cordon in out)


def uncordon(context: Context, hosts: str, *, door: Door | None = None) -> HostRows:
    """Allow new runs on these hosts again. The name of a cordoned host counts also if the hosts file lost it."""
    door = open_door(context, door)
    try:
        check_head(door)
        names = [hosts] if hosts in (door.cordons or {}) else select_hosts(context.inventory, hosts).names
    except BaseException:
        door.close()
        raise
    return _ask(context, {"op": "uncordon", "hosts": list(names)}, door)


def _change(context: Context, request: Mapping[str, Any], door: Door | None) -> HostRows:
    door = open_door(context, door)
    try:
        check_head(door)
    except BaseException:
        door.close()
        raise
    return _ask(context, request, door)


def _ask(context: Context, request: Mapping[str, Any], door: Door) -> HostRows:
    """Ask over an open door, and close it."""
    try:
        answer = door.ask(request)
    finally:
        door.close(ended=True)
    if "failed" in answer:
        raise StepError(
            f"the list of cordoned hosts did not change: {answer['failed']}",
            hint=f"check whether its disk is full: kit ssh {door.host} -- df -h",
            host=door.host,
        )
    with answer_of(door.host, "its list of cordoned hosts"):
        return _rows(context, door, answer.get("cordons"))


def _rows(context: Context, door: Door, answer: object) -> HostRows:
    """Return the hosts of the hosts file, and then cordoned hosts that it lacks. `answer` is the head's list of these.

    Raises OddAnswer.
    """
    answers.check_time(door.now or 0.0)
    by_host = {cordon.host: cordon for cordon in answers.cordons(answer)}
    known = [
        HostRow(name=host.name, address=host.address, cordon=by_host.pop(host.name, None))
        for host in context.inventory.hosts
    ]
    gone = [HostRow(name=name, address="", cordon=cordon) for name, cordon in by_host.items()]
    return HostRows(cluster=context.spec.name, hosts=(*known, *gone), now=door.now)
