"""cluster.json: the record that deploy leaves on the head, where every run reads it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from msgspec import Struct

from kit.errors import NotReadyError
from kit.model.answer import OddAnswer, decode, other_version
from kit.model.host import Host
from kit.model.launch import MOST_SLOTS, ClusterRecord, Node
from kit.model.observed import HostFacts
from kit.model.values import fields, replace

VERSION = 1


# The scalars of one node, a line each, below two levels.
_node_fields = json.JSONEncoder(separators=(",\n   ", ": ")).encode


def to_text(record: ClusterRecord) -> str:
    """Return the record as JSON with an indent of 1, written faster than json does for 10,000 nodes."""
    values = {name: getattr(record, name) for name in fields(record)}
    text = json.dumps({"kit": VERSION, **values, "nodes": []}, indent=1) + "\n"
    if not record.nodes:
        return text
    names = fields(Node)
    lines = (_node_fields({name: getattr(node, name) for name in names})[1:-1] for node in record.nodes)
    nodes = (f"  {{\n   {line}\n  }}" for line in lines)
    # A text in JSON never holds a raw newline, so only the field itself can match.
    return text.replace('\n "nodes": []', '\n "nodes": [\n' + ",\n".join(nodes) + "\n ]")


class _Version(Struct, frozen=True, kw_only=True):
    kit: int


def from_text(text: str) -> ClusterRecord:
    """Return the record in a text. Raises NotReadyError if it is missing, of another version, or broken."""
    if not text:
        raise NotReadyError("the head has no record of this cluster, which kit deploy writes", hint="run: kit deploy")
    try:
        version: _Version = decode(text, _Version)
        if version.kit != VERSION:
            raise other_version("the cluster was deployed by another version of kit", version.kit, VERSION)
        record: ClusterRecord = decode(text, ClusterRecord)
        for node in record.nodes:
            if not (0 <= node.slots <= MOST_SLOTS and 0 <= node.cores <= MOST_SLOTS and 0 <= node.gpus <= MOST_SLOTS):
                raise OddAnswer(f"a node has more than {MOST_SLOTS} slots, cores or GPUs", node.name)
    except OddAnswer as odd:
        raise NotReadyError(f"the cluster's record on the head cannot be read: {odd}", hint="run: kit deploy") from None
    return record


def nodes_for_runs(hosts: Sequence[Host], cluster: ClusterRecord) -> tuple[Node, ...]:
    """Return the hosts as runs use them: as deploy recorded them, but slots in the hosts file win over recorded ones.

    Raises NotReadyError for a host that the cluster was deployed without.
    """
    by_name = {node.name: node for node in cluster.nodes}
    nodes = []
    for host in hosts:
        if host.name not in by_name:
            raise NotReadyError(
                f"the cluster {cluster.name} was deployed without this host", hint="run: kit deploy", host=host.name
            )
        node = by_name[host.name]
        nodes.append(replace(node, slots=host.slots or node.slots))
    return tuple(nodes)


def record_of(facts: HostFacts) -> ClusterRecord | None:
    """Return a head's record. Return None without one, if another version of kit wrote it, or if it is broken."""
    try:
        return from_text(facts.record) if facts.record else None
    except NotReadyError:
        return None


def deployed_record(observed: Iterable[HostFacts]) -> ClusterRecord | None:
    """Return the record of the last deploy, whichever of the hosts is its head."""
    head = next((facts for facts in observed if facts.record is not None), None)
    return record_of(head) if head is not None else None
