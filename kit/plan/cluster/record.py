"""cluster.json: the record that deploy leaves on the head, where every run reads it."""

from __future__ import annotations

import json
from dataclasses import asdict

from kit.errors import NotReadyError
from kit.model.launch import ClusterRecord, Node

VERSION = 1


def to_text(record: ClusterRecord) -> str:
    return json.dumps({"kit": VERSION, **asdict(record)}, indent=1) + "\n"


def from_text(text: str) -> ClusterRecord:
    """Raises NotReadyError when the text was not written by a kit that this one understands."""
    try:
        data = json.loads(text)
        if data.pop("kit") != VERSION:
            raise NotReadyError("the cluster was deployed by another version of kit", hint="run: kit deploy")
        nodes = tuple(Node(**node) for node in data.pop("nodes"))
        return ClusterRecord(**data, nodes=nodes)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise NotReadyError("the cluster's record on the head cannot be read", hint="run: kit deploy") from error
