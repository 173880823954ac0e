"""In which order the hosts of a run have its ranks. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kit.model.run import Place, RunRecord
from kit.plan.timeline import joined


def by_rank(record: RunRecord, fields: Mapping[str, Any]) -> Sequence[Place]:
    """Return the places of a run in the order of its ranks. `fields` are those of record.json.

    mpirun numbers hosts in the order of the places. torchrun does so in that of their addresses, as text. An elastic
    run begins as mpirun does, and may lose the ranks of a place. Its resets mostly keep the order of the others.
    """
    if (fields.get("options") or {}).get("launcher") == "torchrun":
        return sorted(record.places, key=lambda place: place.address)
    there = joined.hosts(record, fields)
    return [place for place in record.places if place.node in there] or record.places
