"""kit deploy: move the line of waiting runs from an earlier head to the new one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, Protocol

from kit.errors import StepError
from kit.flows.context import Context
from kit.model import names
from kit.model.answer import answer_of, convert
from kit.model.host import Host
from kit.remote.run.door import Door

Entry = dict[str, Any]


class Asks(Protocol):
    """A head, over one connection for each request."""

    host: str

    def ask(self, request: Mapping[str, Any]) -> Mapping[str, Any]: ...


class _Head:
    """The launcher in a host's node."""

    def __init__(self, door: Callable[[], Door], host: str) -> None:
        self.host, self._door = host, door

    def ask(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        with closing(self._door()) as door:
            door.open()
            return door.ask(request)


def move_line(context: Context, old: Host) -> int:
    """Move the runs in line on an earlier head, which is a node by now, and its cordons.

    Return how many runs. Raises KitErrors.
    """
    name = context.spec.name
    head = context.inventory.head
    return move(
        _Head(lambda: Door(context.login(old), names.container(name, names.NODE)), old.name),
        _Head(lambda: Door(context.login(head), names.container(name, names.HEAD)), head.name),
    )


def move(old: Asks, new: Asks) -> int:
    """Move the line in parts. A part is removed from the earlier head only when the new one has it."""
    count = 0
    while True:
        given = old.ask({"op": "give"})
        with answer_of(old.host, "its line of runs"):
            entries = convert(given.get("entries"), list[Entry])
            cordons = convert(given.get("cordons", {}), dict[str, Any])
            diffs = convert(given.get("diffs", []), list[Any])
        if not entries and not cordons:
            return count
        part = {"op": "take", "entries": entries, "diffs": diffs, "cordons": cordons, "head": new.host}
        taken = _ids(new, new.ask(part), "taken")
        # Cordons that stay there would come back with a later deploy, also those that somebody has ended meanwhile.
        forgotten = _ids(old, old.ask({"op": "forget", "ids": taken, "cordons": [*cordons]}), "forgotten")
        if not entries:
            return count
        if not forgotten:
            raise StepError("its runs in line cannot be removed", host=old.host)
        count += len(forgotten)


def _ids(head: Asks, answer: Mapping[str, Any], name: str) -> list[str]:
    if name not in answer:
        raise StepError(
            f"its line of runs did not change: {answer.get('failed', 'its launcher gave no reason')}",
            hint=f"check whether its disk is full: kit ssh {head.host} -- df -h",
            host=head.host,
        )
    with answer_of(head.host, "its answer about the line"):
        return convert(answer[name], list[str])
