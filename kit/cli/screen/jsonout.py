"""`--output json`: one object a line on stdout, each with "kit" (the version of this format) and "kind"."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import math
import time
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from kit.cli.screen.plain import Progress
from kit.cli.screen.terminal import Terminal
from kit.errors import HostsFailed, InputError, InputErrors, KitError
from kit.events import Event, OutputLine, UnfinishedLine
from kit.model.plan import PULL, SET_UP, SHIP, TAKE_OFF, VERIFY, Plan, Round, Step
from kit.model.queue import Cordon, HostRows, Line, Reason, WaitingRun
from kit.model.result import RunResult, RunsResult
from kit.model.run import RunRecord, ShownRun
from kit.model.secret import Secret
from kit.model.setup.result import Draft
from kit.model.text import CONTROLS
from kit.model.values import fields as value_fields
from kit.model.values import is_value

FORMAT = 1

_AS_TEXT = (ipaddress.IPv4Address, ipaddress.IPv4Interface, ipaddress.IPv4Network, PurePath)


def line(kind: str, value: Any, *, escaped: bool = False) -> str:
    """Return one object on one line: the value's fields, or the value under "value" if it has none.

    `escaped`: in ASCII, for a stream that cannot write every character.
    """
    plain = encode(value)
    fields = plain if isinstance(plain, dict) else {"value": plain}
    text = json.dumps({"kit": FORMAT, "kind": kind, **fields}, ensure_ascii=escaped)
    # JSON escapes C0 only. A terminal acts on more.
    return text if text.isprintable() else CONTROLS.sub(lambda match: json.dumps(match[0])[1:-1], text)


def encode(value: Any) -> Any:
    """Return a value as what JSON knows. A Secret becomes its digest and size."""
    match value:
        case Secret():
            return {"secret": True, "sha256": value.digest(), "size": len(value.reveal())}
        case Mapping():
            return {str(key): encode(item) for key, item in value.items()}
        case list() | tuple():
            return [encode(item) for item in value]
        case set() | frozenset():
            return sorted(encode(item) for item in value)
        case _ if is_value(value):
            return _plan(value) if isinstance(value, Plan) else _fields(value)
        case _:
            return _scalar(value)


def _fields(value: Any) -> dict[str, Any]:
    """Return the fields, and the properties of the class whose values are plain."""
    fields: dict[str, Any] = {}
    if isinstance(value, Step):
        # A plan has steps of several kinds, and a reader must be able to tell them apart.
        fields["step"] = value.kind
    # JSON has no bytes: those of a line stay out.
    names = [name for name in value_fields(value) if name != "raw" or not isinstance(value, OutputLine)]
    fields |= {name: encode(getattr(value, name)) for name in names}
    if isinstance(value, RunRecord):
        fields |= {"started": moment(value.started), "ended": moment(value.ended)}
    elif isinstance(value, WaitingRun):
        fields["queued"] = moment(value.queued)
    elif isinstance(value, Reason | Cordon):
        fields["at"] = moment(value.at)
        if isinstance(value, Reason):
            fields["about"] = moment(value.about)
    elif isinstance(value, Line | HostRows | RunsResult):
        fields["now"] = moment(value.now)
    for name, attribute in vars(type(value)).items():
        if isinstance(attribute, property) and isinstance(result := getattr(value, name), str | int | float | bool):
            fields[name] = _scalar(result)
    return fields


def moment(seconds: float | None) -> str | None:
    """Return a time in UTC as RFC 3339 writes it: 2026-11-21T10:15:00.123Z."""
    if not seconds:
        return None
    whole, thousandths = divmod(round(seconds * 1000), 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole))}.{thousandths:03}Z"


def run(record: RunRecord, result: RunResult | None = None) -> dict[str, Any]:
    """Return a run in the one shape that kit run, attach, wait and stop print.

    Only kit run knows the plan, the lines that it did not print, and whether it was interrupted.
    """
    took = record.ended - record.started if record.ended and record.started else None
    return {
        **_fields(record),
        "attempts": max(record.attempt, 1),
        "seconds": result.seconds if result else took,
        "folded": result.folded if result else 0,
        "interrupted": bool(result and result.interrupted),
        "plan": encode(result.plan) if result else None,
        **_why(record),
    }


def _why(record: RunRecord) -> dict[str, Any]:
    """Return which rank failed and how (`headline`), and the known cause with its fix, as text has them."""
    if record.failure is None or record.stopped:
        return {"headline": None, "cause": None}
    # Few runs fail, and these are all causes that kit knows.
    from kit.plan.run import diagnose  # noqa: PLC0415

    return {
        "headline": diagnose.headline(record.failure),
        "cause": encode(diagnose.cause(record.failure, record.id)),
    }


def shown_run(value: ShownRun) -> dict[str, Any]:
    """Return a run as `run` does, with the place of its files and the difference of its code."""
    more = {name: getattr(value, name) for name in ("head", "log", "work", "checkpoints", "diff_cut")}
    # JSON has no bytes, and a reader may refuse a lone surrogate.
    text = value.diff.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return {**run(value.record), **more, "diff": text}


def _plan(value: Plan) -> dict[str, Any]:
    """Return a plan in the shape of this format's first version, and the order of the rounds.

    `hosts` has the steps of all hosts up to the set-up; `before`, `rounds` and `after` have the others. `order` names
    every round with its hosts, and says what it needs of earlier rounds.
    """
    steps: dict[str, list[Step]] = {name: [] for name in value.hosts}
    for part in value.rounds:
        if part.name in (SHIP, PULL, SET_UP):
            for host in part.hosts:
                steps[host.host] += host.steps
    others = [part for part in value.rounds if part.name not in (TAKE_OFF, SHIP, PULL, SET_UP, VERIFY)]
    return {
        "cluster": value.cluster,
        "hosts": [{"host": name, "steps": encode(steps[name])} for name in value.hosts],
        "after": _hosts_of(value, VERIFY),
        "before": _hosts_of(value, TAKE_OFF),
        "rounds": [{"name": part.name, "hosts": encode(part.hosts)} for part in others],
        "order": [_place(part) for part in value.rounds],
        "empty": value.empty,
    }


def _hosts_of(plan: Plan, name: str) -> Any:
    return [encode(host) for part in plan.rounds if part.name == name for host in part.hosts]


def _place(part: Round) -> dict[str, Any]:
    return {"name": part.name, "needs": part.needs, "hosts": [host.host for host in part.hosts]}


def _scalar(value: Any) -> Any:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"sha256": hashlib.sha256(value).hexdigest(), "size": len(value)}
    if isinstance(value, _AS_TEXT):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        # A benchmark may print NaN. JSON has neither that nor infinity, and readers refuse them.
        return None
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def setup_plan(draft: Draft) -> dict[str, Any]:
    """Return the plan of kit setup in the shape of every plan, with what waits for a reboot and the remarks."""
    return {**_plan(draft.plan), "waiting": encode(draft.waiting), "remarks": encode(draft.remarks)}


def error(problem: KitError) -> dict[str, Any]:
    """Return an error as fields. `failures` has one such object a host, `problems` one for each line of a file."""
    fields: dict[str, Any] = {
        "message": problem.message,
        "hint": problem.hint,
        "host": problem.host,
        "exit_code": problem.exit_code,
        "failures": [error(failure) for failure in problem.failures] if isinstance(problem, HostsFailed) else [],
    }
    if isinstance(problem, InputErrors):
        fields["problems"] = [error(fault) for fault in problem.problems]
    elif isinstance(problem, InputError):
        fields |= {"file": problem.file, "line": problem.line}
    return fields


class JsonLines:
    """Prints a job's whole lines as objects on stdout, and passes everything else to the progress reporter."""

    def __init__(self, terminal: Terminal, progress: Progress) -> None:
        self._terminal = terminal
        self._progress = progress

    def report(self, event: Event) -> None:
        if isinstance(event, OutputLine):
            self._terminal.say(line("line", event, escaped=not self._terminal.writes_unicode))
        elif not isinstance(event, UnfinishedLine):
            self._progress.report(event)

    def close(self) -> None:
        self._progress.close()
