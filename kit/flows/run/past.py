"""kit run without --queue beside a line of waiting runs. Imported only where runs wait or hosts are cordoned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kit.errors import NotReadyError
from kit.events import Reporter, Warned
from kit.model.answer import OddAnswer, answer_of
from kit.model.launch import LaunchPlan
from kit.model.queue import Reserved
from kit.plan.queue import answers, cordons, past
from kit.remote.run.door import Door


def reserved(door: Door, value: object) -> Reserved:
    """Return what the head says is reserved for the first run in line. Raises AnswerError."""
    with answer_of(door.host, "its line of runs"):
        first = answers.reserved(value)
        if first is None:
            raise OddAnswer("it names no run in line")
    return first


def warn(plan: LaunchPlan, door: Door, reporter: Reporter) -> None:
    """Warn if the plan takes slots that are reserved for a run in line (--now)."""
    first = reserved(door, door.reserved)
    if past.overlaps(first, plan.places):
        text = f"this run takes slots that are reserved for run {first.run}, the first in line"
        reporter.report(Warned(text=text, hint="see the line: kit queue"))


def refusal(np: int, door: Door, answer: Mapping[str, Any]) -> NotReadyError:
    """Return the error for a run that the head does not start, because of what happened after kit had looked."""
    if "reserved" in answer:
        return past.refusal(np, reserved(door, answer["reserved"]))
    with answer_of(door.host, "its list of cordoned hosts"):
        return cordons.refusal(answers.cordons(answer["cordoned"]))


def waiting(door: Door, answer: Mapping[str, Any]) -> str:
    """Return for whom a run with --wait waits, if no run holds its slots."""
    return f"waiting behind run {reserved(door, answer.get('reserved')).run}, the first in line"
