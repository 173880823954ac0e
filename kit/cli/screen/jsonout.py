"""`--output json`: one object a line on stdout, each with "kit" (the version of this format) and "kind"."""

from __future__ import annotations

import dataclasses
import hashlib
import ipaddress
import json
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from kit.cli.screen.plain import Progress
from kit.cli.screen.terminal import Terminal
from kit.errors import HostsFailed, InputError, InputErrors, KitError
from kit.events import Event, OutputLine
from kit.model.plan import OwnStep
from kit.model.secret import Secret

FORMAT = 1

_AS_TEXT = (ipaddress.IPv4Address, ipaddress.IPv4Interface, ipaddress.IPv4Network, PurePath)


def line(kind: str, value: Any) -> str:
    """One object: the value's fields, or `value` itself under "value" when it has none."""
    plain = encode(value)
    fields = plain if isinstance(plain, dict) else {"value": plain}
    return json.dumps({"kit": FORMAT, "kind": kind, **fields}, ensure_ascii=False)


def encode(value: Any) -> Any:
    """A value of kit's as what JSON knows. Of a Secret only digest and size are told."""
    match value:
        case Secret():
            return {"secret": True, "sha256": value.digest(), "size": len(value.reveal())}
        case Mapping():
            return {str(key): encode(item) for key, item in value.items()}
        case list() | tuple():
            return [encode(item) for item in value]
        case set() | frozenset():
            return sorted(encode(item) for item in value)
        case _ if dataclasses.is_dataclass(value):
            return _fields(value)
        case _:
            return _scalar(value)


def _fields(value: Any) -> dict[str, Any]:
    """The fields, and what a class works out of them (a property), where that is a plain value."""
    fields: dict[str, Any] = {}
    if isinstance(value, OwnStep) or _is_of_swarm(value):
        # A plan's steps are of several types, and a reader must be able to tell them apart.
        fields["step"] = type(value).__name__
    fields |= {f.name: encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
    for name, attribute in vars(type(value)).items():
        if isinstance(attribute, property) and isinstance(found := getattr(value, name), str | int | float | bool):
            fields[name] = found
    return fields


def _scalar(value: Any) -> Any:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"sha256": hashlib.sha256(value).hexdigest(), "size": len(value)}
    if isinstance(value, _AS_TEXT):
        return str(value)
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def error(problem: KitError) -> dict[str, Any]:
    """An error as fields; `failures` holds one such object a host, `problems` one a line of a file."""
    fields: dict[str, Any] = {
        "message": problem.message,
        "hint": problem.hint,
        "host": problem.host,
        "exit_code": problem.exit_code,
        "failures": [error(each) for each in problem.failures] if isinstance(problem, HostsFailed) else [],
    }
    if isinstance(problem, InputErrors):
        fields["problems"] = [error(each) for each in problem.problems]
    elif isinstance(problem, InputError):
        fields |= {"file": problem.file, "line": problem.line}
    return fields


class JsonLines:
    """A job's output as objects on stdout; all else goes on to the reporter of progress."""

    def __init__(self, terminal: Terminal, progress: Progress) -> None:
        self._terminal = terminal
        self._progress = progress

    def report(self, event: Event) -> None:
        if isinstance(event, OutputLine):
            self._terminal.say(line("line", event))
        else:
            self._progress.report(event)

    def close(self) -> None:
        self._progress.close()


def _is_of_swarm(value: object) -> bool:
    # By name first: most verbs start without these.
    if type(value).__module__ != "kit.model.swarm":
        return False
    from kit.model.swarm import SwarmStep  # noqa: PLC0415

    return isinstance(value, SwarmStep)
