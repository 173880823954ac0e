"""The JSON schema of kit.yaml, for editors."""

from __future__ import annotations

import json

from kit.config.fields import fields_of
from kit.config.kinds import Shape
from kit.config.setting import NULL, Setting


def schema_text() -> str:
    """Return a JSON Schema (draft 2020-12) with one object for the whole file."""
    sections = [setting for setting in fields_of("").values() if setting.is_section]
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$defs": {_name(section): _object(section.key, section.description) for section in sections},
        **_object("", "A cluster of kit: the image, how kit reaches the VMs, and what runs on them."),
        "title": "kit.yaml",
    }
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _object(section: str, description: str) -> Shape:
    properties = {key: _property(setting) for key, setting in fields_of(section).items()}
    return {"type": "object", "additionalProperties": False, "description": description, "properties": properties}


def _property(setting: Setting) -> Shape:
    if setting.is_section:
        return {"description": setting.description, "anyOf": [{"$ref": f"#/$defs/{_name(setting)}"}, NULL]}
    return setting.shape()


def _name(section: Setting) -> str:
    return type(section.default).__name__
