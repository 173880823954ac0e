"""What kit asks about the hosts of a living elastic run, through kit-launch (kitrun.front).

{"op": "hosts", "id", "add": [places], "drop": [names]}
    {"changed": record}, {"cordoned": {host: cordon}} if somebody cordoned a host to add, {"held": [records]} if other
    runs hold a slot, {"reserved": {...}} if one is reserved for a run in line (kitqueue.gate), {"failed": why}, or
    {"over": record}

The run's record has its places, and so its leases. Where the present world has no rank, because a host is new or lost,
a place has "out": true. One that is to leave has "leaving": true until no rank is there. Then the supervisor removes it
(kitrun.elastic). "env" of a place that came later has the host's own values of the variables by which ranks choose
their GPUs and CPUs. Those of the first hosts are in the variables of the run.
"""

from typing import Any, Collection, Container, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from kitqueue import gate
from kitrun import cores, devices, leases, store

Places = List[Dict[str, Any]]
# The variables of which each host has its own value. '': its ranks do not get the variable.
WORDS = (devices.HELD, cores.SLOTS)


def change(run: store.Run, request: Mapping[str, Any], root: Optional[str] = None) -> Dict[str, Any]:
    """Add and drop hosts. Raises KeyError, TypeError or ValueError for a request that lacks a part, and OSError."""
    add, drop = [place_of(place) for place in request["add"]], [str(name) for name in request["drop"]]
    with leases.starting(root):
        record = run.record
        if record is None or not run.alive:
            return {"over": record or {"id": run.id}, "ending": run.ending}
        elastic = record.get("elastic")
        if not isinstance(elastic, dict):
            return {"failed": "run %s is not elastic" % run.id}
        there = {place["node"] for place in record["places"]}
        new = [place for place in add if place["node"] not in there]
        # A host that was dropped and has no rank any more would hold its slots, and get none while it is cordoned.
        names = {place["node"] for place in add}
        back = [
            place["node"]
            for place in record["places"]
            if place["node"] in names and place.get("leaving") and place.get("out")
        ]
        cordoned = gate.cordoned_of(back, root or store.ROOT)
        if cordoned:
            return {"cordoned": cordoned}
        # Nobody knows when the run ends, so it would delay a run in line for whom these slots are reserved.
        against = gate.against({"places": new, "helpers": (), "policy": {}}, root or store.ROOT, now=False)
        if against is not None:
            return _refused(against)
        places, why = changed(record["places"], add, drop, least=int(elastic.get("min_np") or 1))
        if why:
            return {"failed": why}
        return {"changed": run.change_places(places)}


def _refused(against: gate.Against) -> Dict[str, Any]:
    if against.cordoned:
        return {"cordoned": against.cordoned}
    if against.held:
        return {"held": list(against.held)}
    return {"reserved": gate.shown(against.first)}


def place_of(value: Mapping[str, Any]) -> Dict[str, Any]:
    """Return a place with nothing else in it. Raises KeyError, TypeError or ValueError.

    Ranks with GPUs for themselves can be more than the slots that they hold.
    """
    slots = [int(slot) for slot in value["slots"]]
    ranks = int(value["ranks"])
    of = int(value.get("of") or 0)
    if not slots or not 0 < ranks <= max(len(slots), of):
        raise ValueError("a place has as many slots as ranks")
    place = {"node": str(value["node"]), "address": str(value["address"]), "ranks": ranks, "slots": slots}
    if of:
        place["of"] = of
    if value.get("env"):
        place["env"] = {name: str(value["env"][name]) for name in WORDS if name in value["env"]}
    return place


def changed(
    places: Sequence[Mapping[str, Any]], add: Sequence[Mapping[str, Any]], drop: Sequence[str], *, least: int
) -> Tuple[Places, str]:
    """Return the run's places after a change, or why it cannot be.

    Hosts without a rank do not count for those that must stay: they do not have the training's state.
    """
    there = {str(place["node"]) for place in places}
    missing = sorted(set(drop) - there)
    if missing:
        return [], "%s: not a host of the run" % ", ".join(missing)
    new: Set[str] = {str(place["node"]) for place in add}
    result = []
    for place in places:
        kept = dict(place)
        if place["node"] in new:
            # It comes back before its last rank has left. It keeps the slots that it holds.
            kept.pop("leaving", None)
        if place["node"] in drop:
            kept["leaving"] = True
        result.append(kept)
    result += [dict(place, out=True) for place in add if place["node"] not in there]
    left = sum(place["ranks"] for place in result if not place.get("leaving") and not place.get("out"))
    leave = [place["node"] for place in result if place.get("leaving") and not place.get("out")]
    if left < least and set(leave) & set(drop):
        return [], "%d slots with ranks would be left, and --min-np is %d" % (left, least)
    return result, ""


def in_world(places: Sequence[Mapping[str, Any]], hosts: Collection[str]) -> Places:
    """Return the run's places when its ranks are on these hosts: without those that were to leave."""
    result = []
    for place in places:
        known = {name: place[name] for name in place if name != "out"}
        if place["node"] in hosts:
            result.append(known)
        elif not place.get("leaving"):
            result.append(dict(known, out=True))
    return result


def are_gone(places: Sequence[Mapping[str, Any]], lost: Container[str]) -> List[str]:
    """Return the hosts that were dropped, and on which nothing of the run is: no rank of its world, and they are lost.

    Guards have ended what was there. On a host that answers, the driver may just start a rank.
    """
    leaving = [place["node"] for place in places if place.get("leaving") and place.get("out")]
    return [name for name in leaving if name in lost]
