"""Which hosts of a run have ranks, and in which order. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kit.model.run import Place, RunRecord


def hosts_with_ranks(record: RunRecord, fields: Mapping[str, Any]) -> list[str]:
    """Return the hosts with ranks. `fields` are those of record.json: a host of an elastic run may have none now."""
    out = {place.get("node") for place in fields.get("places") or () if place.get("out")}
    return list(dict.fromkeys(place.node for place in record.places if place.ranks and place.node not in out))


def was_reset(record: RunRecord, fields: Mapping[str, Any]) -> bool:
    """Return whether a reset of an elastic run surely gave ranks other numbers. `fields` are those of record.json.

    Hosts have left, or came later. A host that left and came back leaves no trace there.
    """
    changed = any(place.get("out") or place.get("env") for place in fields.get("places") or ())
    return bool(fields.get("elastic")) and (changed or record.np < record.most_np)


def by_rank(record: RunRecord, fields: Mapping[str, Any]) -> Sequence[Place]:
    """Return the places of a run in the order of its ranks. `fields` are those of record.json.

    mpirun numbers hosts in the order of the places. torchrun does so in that of their addresses, as text. An elastic
    run begins as mpirun does, and may lose the ranks of a place. Its resets mostly keep the order of the others.
    """
    if (fields.get("options") or {}).get("launcher") == "torchrun":
        return sorted(record.places, key=lambda place: place.address)
    there = hosts_with_ranks(record, fields)
    return [place for place in record.places if place.node in there] or record.places
