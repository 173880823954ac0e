"""kit hosts add, kit hosts drop: change the hosts of a living elastic run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from kit.config.selection import select_hosts
from kit.errors import InputError, NotReadyError
from kit.flows.context import Context
from kit.flows.run import past
from kit.flows.run.answers import run_of, runs_of
from kit.flows.run.attach import open_door
from kit.flows.run.code import Stored
from kit.flows.run.listing import unknown_run
from kit.flows.run.ready import node_of
from kit.model.run import RunRecord
from kit.plan.cluster.record import from_text
from kit.plan.run import leases
from kit.plan.run.records import find, several
from kit.remote.run.door import Door


def add_hosts(context: Context, run: str | None, hosts: str) -> RunRecord:
    """Add all free slots of these hosts to a run. It gets ranks there at its next commit."""
    door = open_door(context)
    try:
        living = runs_of(door.host, list(door.living))
        record = _chosen(context, living, run)
        cluster = from_text(door.record)
        there = {place.node for place in record.places}
        nodes = [node_of(host, cluster) for host in select_hosts(context.inventory, hosts).hosts]
        new = [node for node in nodes if node.name not in there]
        if not new:
            raise InputError(f"run {record.id} has these hosts already", hint="see: kit runs")
        places = leases.places_on(new, living)
        code = next((dict(fields.get("code") or {}) for fields in door.living if fields.get("id") == record.id), {})
        if code.get("digest"):
            Stored(record.id, code).bring(context, door, cluster, [node.name for node in new])
        return _change(door, record, add=[asdict(place) for place in places], drop=[])
    finally:
        door.close()


def drop_hosts(context: Context, run: str | None, hosts: str) -> RunRecord:
    """Take these hosts from a run. Their ranks end at its next commit."""
    door = open_door(context)
    try:
        record = _chosen(context, runs_of(door.host, list(door.living)), run)
        names = [host.name for host in select_hosts(context.inventory, hosts).hosts]
        return _change(door, record, add=[], drop=names)
    finally:
        door.close()


def _chosen(context: Context, living: Sequence[RunRecord], word: str | None) -> RunRecord:
    record = find(list(reversed(living)), word)
    if record is None:
        matches = [run.id for run in living if word and run.id.startswith(word)]
        raise several(word or "", matches) if len(matches) > 1 else unknown_run(context, word)
    return record


def _change(door: Door, run: RunRecord, *, add: Sequence[Mapping[str, Any]], drop: Sequence[str]) -> RunRecord:
    answer = door.ask({"op": "hosts", "id": run.id, "add": list(add), "drop": list(drop)})
    if "changed" in answer:
        return run_of(door.host, answer["changed"])
    if "cordoned" in answer or "reserved" in answer:
        raise past.refusal(sum(len(place["slots"]) for place in add), door, answer)
    if "held" in answer:
        raise leases.taken(sum(len(place["slots"]) for place in add), runs_of(door.host, answer["held"]))
    if "over" in answer or "missing" in answer:
        raise NotReadyError(f"run {run.id} has ended", hint=f"look at it: kit runs show {run.id}")
    why = answer.get("failed")
    raise NotReadyError(
        f"the hosts of run {run.id} stay the same: {why if isinstance(why, str) else 'its launcher gave no reason'}",
        hint="only a run that was started with --elastic can change its hosts; look: kit runs",
        host=door.host,
    )
