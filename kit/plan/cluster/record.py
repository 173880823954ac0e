"""cluster.json: the record that deploy leaves on the head, where every run reads it."""

from __future__ import annotations

import json
from dataclasses import fields

from kit.errors import NotReadyError
from kit.model.launch import ClusterRecord, Node

VERSION = 1


# The scalars of one node, a line each, below two levels.
_node_fields = json.JSONEncoder(separators=(",\n   ", ": ")).encode


def to_text(record: ClusterRecord) -> str:
    """Return the record as JSON with an indent of 1, written faster than json does for 10,000 nodes."""
    values = {field.name: getattr(record, field.name) for field in fields(record)}
    text = json.dumps({"kit": VERSION, **values, "nodes": []}, indent=1) + "\n"
    if not record.nodes:
        return text
    names = [field.name for field in fields(Node)]
    lines = (_node_fields({name: getattr(node, name) for name in names})[1:-1] for node in record.nodes)
    nodes = (f"  {{\n   {line}\n  }}" for line in lines)
    # A text in JSON never holds a raw newline, so only the field itself can match.
    return text.replace('\n "nodes": []', '\n "nodes": [\n' + ",\n".join(nodes) + "\n ]")


def from_text(text: str) -> ClusterRecord:
    """Return the record in a text. Raises NotReadyError if another version of kit wrote it, or if it is broken."""
    try:
        data = json.loads(text)
        if data.pop("kit") != VERSION:
            raise NotReadyError("the cluster was deployed by another version of kit", hint="run: kit deploy")
        nodes = tuple(Node(**node) for node in data.pop("nodes"))
        return ClusterRecord(**data, nodes=nodes)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise NotReadyError("the cluster's record on the head cannot be read", hint="run: kit deploy") from error
