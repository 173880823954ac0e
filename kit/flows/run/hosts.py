"""kit hosts add, kit hosts drop: change the hosts of a living elastic run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kit.config.selection import select_hosts
from kit.errors import InputError, NotReadyError
from kit.events import Warned
from kit.flows.context import Context
from kit.flows.run import past
from kit.flows.run.answers import run_of, runs_of
from kit.flows.run.attach import open_door
from kit.flows.run.code import Stored
from kit.flows.run.listing import unknown_run
from kit.model.host import Host
from kit.model.launch import ClusterRecord, Node
from kit.model.names import LATEST
from kit.model.run import RunRecord
from kit.plan.cluster.record import from_text, nodes_for_runs
from kit.plan.run import elastic, leases, owners
from kit.plan.run.cores import EXCLUSIVE
from kit.plan.run.records import find, several
from kit.remote.machine.operator import operator
from kit.remote.run.door import Door


class _Addition(NamedTuple):
    """Hosts that can come to a run: `fields` are those of its record, and `places` what it gets.

    `new` are the nodes that it does not have. On others it has a place, from which its ranks are to leave.
    """

    record: RunRecord
    fields: Mapping[str, Any]
    cluster: ClusterRecord
    new: Sequence[str]
    places: Sequence[Mapping[str, Any]]


def add_hosts(context: Context, run: str | None, hosts: str) -> RunRecord:
    """Add all free slots of these hosts to a run, which gets ranks there at its next commit.

    They get its code and its data sets first.
    """
    door = open_door(context)
    try:
        addition = _addition(context, door, run, hosts)
        if addition.new and addition.record.data and _staged(context, addition.record, addition.new):
            # That may have taken minutes, and what the head said of its runs is out of date.
            door.close()
            door = open_door(context)
            addition = _addition(context, door, addition.record.id, hosts)
        record, new = addition.record, addition.new
        code = dict(addition.fields.get("code") or {})
        if new and code.get("digest"):
            Stored(record.id, code).bring(context, door, addition.cluster, new, ask=True)
        changed = _change(door, record, add=addition.places, drop=[])
        most = elastic.limit_reached(addition.fields)
        if new and most is not None:
            names = ",".join(new)
            text = f"run {record.id} has --max-np {most}: no rank starts on {names} until other ranks leave"
            hint = f"the run holds these slots meanwhile; to give them back: kit hosts drop {names}"
            context.reporter.report(Warned(text=text, hint=hint))
        return changed
    finally:
        door.close()


def _addition(context: Context, door: Door, run: str | None, hosts: str) -> _Addition:
    """Return what can be added to the run, by what the head says now.

    Raises if the run is not elastic or has these hosts, and if they are cordoned or their slots are taken.
    """
    living = runs_of(door.host, list(door.living))
    record = _chosen(context, living, run, f"kit hosts add {shlex.quote(hosts)}")
    cluster = from_text(door.record)
    there = {place.node for place in record.places}
    nodes = [_node_of(host, cluster) for host in select_hosts(context.inventory, hosts).hosts]
    new = [node for node in nodes if node.name not in there]
    fields: Mapping[str, Any] = next((run for run in door.living if run.get("id") == record.id), {})
    names = {node.name for node in nodes}
    # As the head has them, with the host's own GPUs and CPUs: its ranks may have left before the head gets the request.
    back = [place for place in fields.get("places") or () if place.get("leaving") and place["node"] in names]
    if not new and not back:
        raise InputError(f"run {record.id} has these hosts already", hint="see: kit runs")
    # The head would refuse both, but only after data sets and code have gone to the hosts.
    if not isinstance(fields.get("elastic"), dict):
        raise _unchanged(door, record, _not_elastic(record))
    # Dropped hosts with ranks keep them if they come back. Without one, a cordoned host would hold slots for none.
    empty = [*(node.name for node in new), *(str(place["node"]) for place in back if place.get("out"))]
    if cordoned := {name: door.cordons[name] for name in empty if door.cordons and name in door.cordons}:
        raise past.refusal(len(cordoned), door, {"cordoned": cordoned})
    exclusive = cluster.settings.get("cpus", context.spec.cpus) == EXCLUSIVE
    share = elastic.gpus_of_rank(fields)
    elastic.check_addresses(new)
    elastic.check_added(new, record, share)
    free = leases.places_on(new, living, share)
    places = elastic.words(context.spec, new, free, exclusive=exclusive, cpus=record.cpus)
    _check_words(door, places)
    return _Addition(record, fields, cluster, [node.name for node in new], [*places, *back])


def _check_words(door: Door, places: Sequence[Mapping[str, Any]]) -> None:
    """Raise NotReadyError if an older launcher would give the ranks of a host the GPUs or CPUs of other runs."""
    partly = [str(place["node"]) for place in places if any(place["env"].values())]
    if partly and not door.takes_words:
        raise NotReadyError(
            "the cluster's image cannot give these ranks a part of the host",
            hint="add a host that no run uses; the image of the next kit deploy can",
            host=partly[0],
        )


def _staged(context: Context, record: RunRecord, hosts: Sequence[str]) -> bool:
    """Stage the run's data sets (--data) on these hosts. Return whether one was missing."""
    from kit.flows.data.missing import stage_missing  # noqa: PLC0415  (only for runs with --data)

    return stage_missing(context, record.data, hosts)


def drop_hosts(context: Context, run: str | None, hosts: str) -> RunRecord:
    """Take these hosts from a run. Their ranks end at its next commit."""
    door = open_door(context)
    try:
        living = runs_of(door.host, list(door.living))
        record = _chosen(context, living, run, f"kit hosts drop {shlex.quote(hosts)}")
        names = [host.name for host in select_hosts(context.inventory, hosts).hosts]
        return _change(door, record, add=[], drop=names)
    finally:
        door.close()


def _chosen(context: Context, living: Sequence[RunRecord], word: str | None, command: str) -> RunRecord:
    """Return the run that is meant: by its id or the beginning of it, or else the latest, if you started it.

    Raises NotReadyError if somebody else started the latest run: `command` and an id change one.
    """
    if not word or word == LATEST:
        # A lost run also holds slots for a while. Who does not name it does not mean it.
        latest = owners.latest_of(living, operator(), command=f"{command} --run", verb="change", done="changed")
        if latest is None:
            hint = "start one: kit run --elastic -- python train.py"
            raise NotReadyError("no run is running, so none can change its hosts", hint=hint)
        return latest
    record = find(list(reversed(living)), word)
    if record is None:
        matches = [run.id for run in living if run.id.startswith(word)]
        raise several(word, matches) if len(matches) > 1 else unknown_run(context, word)
    return record


def _node_of(host: Host, cluster: ClusterRecord) -> Node:
    """Return a host as deploy recorded it. Raises NotReadyError for one without a node of the cluster."""
    try:
        return nodes_for_runs([host], cluster)[0]
    except NotReadyError as error:
        error.hint = f"deploy to it, which leaves the run alone: kit deploy; then: kit hosts add {host.name}"
        raise


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
    raise _unchanged(door, run, why if isinstance(why, str) else "its launcher gave no reason")


def _not_elastic(run: RunRecord) -> str:
    """Return the launcher's words for a run that cannot change its hosts."""
    return f"run {run.id} is not elastic"


def _unchanged(door: Door, run: RunRecord, why: str) -> NotReadyError:
    hint = f"see its hosts: kit runs show {run.id}; if too few would be left, add others first: kit hosts add HOST"
    if why == _not_elastic(run):
        hint = "only a run that was started with --elastic can change its hosts; look: kit runs"
    return NotReadyError(f"the hosts of run {run.id} stay the same: {why}", hint=hint, host=door.host)
