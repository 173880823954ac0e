"""kit top: look at the hosts again and again, and at the ranks of a run. It changes nothing and needs no cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from msgspec import Struct

from kit.config.selection import select_hosts
from kit.errors import NotReadyError
from kit.flows.context import Context
from kit.flows.run.answers import run_of
from kit.flows.run.attach import open_door
from kit.flows.run.listing import unknown_run
from kit.model.run import RunRecord
from kit.model.values import replace
from kit.model.watch import Seen
from kit.plan.run.numbering import was_reset
from kit.remote.run.door import Door
from kit.remote.watch.lastlines import LAST, LastLines
from kit.remote.watch.watchers import Watchers, answered, given_up

# From the start of ssh to a first reading, which may wait for a driver.
FIRST_S = 30.0


class Watching(Struct, frozen=True, kw_only=True):
    """Hosts that kit watches. `run` is the run that was wanted, if one was."""

    cluster: str
    watchers: Watchers
    run: RunRecord | None = None
    lines: LastLines | None = None

    def now(self) -> tuple[Seen, ...]:
        return self.watchers.now()

    def last(self) -> Mapping[int, str]:
        """Return the last line of each rank of the run."""
        return self.lines.now() if self.lines is not None else {}

    @property
    def over(self) -> bool:
        """Whether the run has ended."""
        if self.run is None:
            return False
        return self.run.state != "running" or (self.lines is not None and self.lines.ended)

    def wait(self) -> tuple[Seen, ...]:
        """Wait until each host has a reading or an error, at most FIRST_S, and return what is known then.

        Of a run that has ended, the last lines are known then, too, if they can be had.
        """
        self.watchers.wait(answered, FIRST_S)
        if self.lines is not None and self.over:
            self.lines.wait(FIRST_S)
        return self.watchers.now()

    def once(self) -> tuple[Seen, ...]:
        """Wait as `wait` does, for the only look at the hosts: a host that has given nothing by then has an error."""
        return given_up(self.wait(), FIRST_S)


@contextmanager
def watching(
    context: Context, *, hosts: str | None = None, run: str | None = None, every: float = 1.0, count: int = 0
) -> Iterator[Watching]:
    """Yield hosts that are watched: those that are named, those of the run, or all.

    `run` is a run's id, its beginning, or '' for the latest. `every` and `count` are those of Watchers. Raises the
    errors of kit attach if there is no such run.
    """
    with ExitStack() as stack:
        record, lines = None, None
        if run is not None:
            door, record, fields = _attached(context, run)
            wanted = record.id
            lines = LastLines(door, lambda: _attached(context, wanted)[0], renumbered=was_reset(record, fields))
            stack.enter_context(lines)
        inventory = context.inventory
        if hosts:
            inventory = select_hosts(inventory, hosts)
        elif record is not None:
            places = {place.node for place in record.places}
            mine = tuple(host for host in inventory.hosts if host.name in places)
            inventory = replace(inventory, hosts=mine or inventory.hosts)
        watchers = stack.enter_context(Watchers(inventory.hosts, context.connect, every=every, count=count))
        yield Watching(cluster=context.spec.name, watchers=watchers, run=record, lines=lines)


def _attached(context: Context, run: str) -> tuple[Door, RunRecord, Mapping[str, Any]]:
    """Return a door through which the last part of the run's log comes, the run, and the fields of its record."""
    door = open_door(context)
    try:
        answer = door.ask({"op": "attach", "id": run, "offset": 0, "last": LAST, "follow": True})
        if "queued" in answer:
            raise NotReadyError(f"run {run} waits in line, so it has no ranks yet", hint="see why it waits: kit queue")
        if answer.get("attached") is None:
            raise unknown_run(context, run)
        fields = answer["attached"]
        return door, run_of(door.host, fields, answer.get("ending"), live=bool(answer.get("alive"))), fields
    except BaseException:
        door.close()
        raise
