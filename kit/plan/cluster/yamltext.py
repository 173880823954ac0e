"""Writes plain data as block YAML, faster than a full emitter (scripts/measure).

It knows what a Compose file is made of: mappings, lists, text, integers and booleans. A test reads it with PyYAML.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

# Text that every YAML reader takes as text without quotes. Everything else is quoted as JSON, which is also YAML.
_BARE = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*")
_HALVES = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_RESERVED = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})


def dump(document: dict[str, Any]) -> str:
    """Return the document's text, which ends with a newline. Raises TypeError for a value of another kind."""
    return "\n".join(_mapping(document, "")) + "\n"


def _mapping(items: dict[str, Any], indent: str) -> Iterator[str]:
    for key, value in items.items():
        name = f"{indent}{scalar(key)}:"
        if isinstance(value, dict) and value:
            yield name
            yield from _mapping(value, indent + "  ")
        elif isinstance(value, list | tuple) and value:
            yield name
            yield from _sequence(value, indent + "  ")
        else:
            yield f"{name} {_leaf(value)}"


def _sequence(items: list[Any] | tuple[Any, ...], indent: str) -> Iterator[str]:
    for item in items:
        if isinstance(item, dict | list | tuple) and item:
            # The first line of the inner value goes beside the dash.
            nested = list(_mapping(item, "") if isinstance(item, dict) else _sequence(item, ""))
            yield f"{indent}- {nested[0]}"
            yield from (f"{indent}  {line}" for line in nested[1:])
        else:
            yield f"{indent}- {_leaf(item)}"


def _leaf(value: Any) -> str:
    if isinstance(value, dict):
        return "{}"
    if isinstance(value, list | tuple):
        return "[]"
    return scalar(value)


def scalar(value: Any) -> str:
    """Return one text, integer or boolean as YAML. Raises TypeError for a value of another kind."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    raise TypeError(f"a Compose file holds no {type(value).__name__}")


@lru_cache(maxsize=1024)
def _text(value: str) -> str:
    if _BARE.fullmatch(value) and value.lower() not in _RESERVED:
        return value
    # JSON writes a character beyond the first plane as two halves; YAML needs it whole.
    return _HALVES.sub(_whole, json.dumps(value))


def _whole(pair: re.Match[str]) -> str:
    character = json.loads(f'"{pair[0]}"')
    return f"\\U{ord(character):08X}"
