"""kit queue: show the line of waiting runs, and change it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kit.errors import InputError, StepError
from kit.events import Warned
from kit.flows.context import Context
from kit.flows.queue.join import check_head
from kit.flows.run.attach import open_door
from kit.model.answer import answer_of, convert
from kit.model.queue import Change, Changed, Line
from kit.model.text import one_line
from kit.plan.queue import answers
from kit.plan.run.owners import of_others
from kit.plan.run.records import several
from kit.remote.machine.operator import operator
from kit.remote.run.door import Door


def look(context: Context, *, door: Door | None = None) -> Line:
    """Return the runs in line, and the cordoned hosts. `door` is one that is already connecting."""
    return _line(context, door)


def change(
    context: Context, how: Change, runs: Sequence[str], *, priority: int | None = None, door: Door | None = None
) -> Changed:
    """Change runs in line. `runs` are ids of runs or arrays, or the beginnings of ids.

    `door` is one that is already connecting.
    Raises InputError, before anything is changed, if one of them is not in line. Raises StepError if the head cannot
    write a change: those before it are done.
    """
    line = _line(context, door)
    ids = [_one(line, word) for word in runs]
    changed: list[str] = []
    others: list[str] = []
    for run in ids:
        answer = _ask(context, {"op": "change", "id": run, "how": how, "priority": priority}, None)
        if "failed" in answer:
            raise _unchanged(context.inventory.head.name, run, answer["failed"], changed)
        if "changed" not in answer:
            raise not_in_line(run)
        with answer_of(context.inventory.head.name, "its answer about the line"):
            changed += convert(answer.get("members", [run]), list[str])
            others += convert(answer.get("others", []), list[str])
    left = [other for other in dict.fromkeys(others) if other not in changed]
    owners = of_others({run.id: run.by for run in line.runs if run.id in {*changed, *left}}, operator())
    return Changed(how=how, runs=tuple(dict.fromkeys(changed)), others=tuple(left), owners=owners)


def _unchanged(head: str, run: str, why: object, changed: Sequence[str]) -> StepError:
    """Return the error for a change that the head could not write, with the runs that it changed before."""
    before = f"; changed before that: {', '.join(map(one_line, changed))}" if changed else ""
    return StepError(
        f"{run} could not be changed: {one_line(str(why))}{before}",
        hint=f"check whether its disk is full: kit ssh {head} -- df -h; see what changed: kit queue",
        host=head,
    )


def not_in_line(word: str) -> InputError:
    return InputError(f"no run '{word}' is in line", hint="see the line: kit queue; runs that started: kit runs")


def _one(line: Line, word: str) -> str:
    """Return the id of the run or array in line with this id, or the only one whose id begins with it."""
    ids = dict.fromkeys([*(run.id for run in line.runs), *(run.array.of for run in line.runs if run.array)])
    matches = [word] if word in ids else [run for run in ids if run.startswith(word)]
    if len(matches) > 1:
        raise several(word, matches)
    if not matches:
        raise not_in_line(word)
    return matches[0]


def _line(context: Context, door: Door | None) -> Line:
    answer = _ask(context, {"op": "line"}, door)
    with answer_of(context.inventory.head.name, "its line of runs"):
        line, odd = answers.line(context.spec.name, answer)
    for text in odd:
        context.reporter.report(Warned(text=f"kit cannot read a run in line: {text}"))
    return line


def _ask(context: Context, request: Mapping[str, Any], door: Door | None) -> Mapping[str, Any]:
    """Ask the head about the line, over one connection."""
    door = open_door(context, door)
    try:
        check_head(door)
        return door.ask(request)
    finally:
        door.close(ended=True)
