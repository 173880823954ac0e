"""The JSON schema of kit.yaml, for editors. Made from the model."""

from __future__ import annotations

import json

from kit.config.fields import settings
from kit.model.spec import ClusterSpec


def schema_text() -> str:
    """JSON Schema, draft 2020-12, with one object for the whole file."""
    schema = ClusterSpec.model_json_schema()
    for name, field in schema["properties"].items():
        # pydantic leaves out what the section says of itself, and an editor shows the field.
        field.setdefault("description", settings()[name].description)
    for section in (schema, *schema.get("$defs", {}).values()):
        for field in section.get("properties", {}).values():
            field.pop("env", None)  # how the environment's table names a field is no word of the schema
            _allow_empty(field)
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "kit.yaml",
        "description": "A cluster of kit: the image, how its VMs are reached, and what runs on them.",
    }
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _allow_empty(field: dict[str, object]) -> None:
    """A key with nothing behind it counts as not written, so null is good wherever a field stands."""
    kinds = ("$ref", "anyOf", "type", "enum", "items", "additionalProperties", "minimum", "maximum", "minLength")
    shape = {kind: field.pop(kind) for kind in kinds if kind in field}
    branches = shape["anyOf"] if isinstance(shape.get("anyOf"), list) else [shape]
    assert isinstance(branches, list)  # noqa: S101  (for the type checker; the line above makes it one)
    if {"type": "null"} not in branches:
        branches = [*branches, {"type": "null"}]
    field["anyOf"] = branches
