"""The fields of ClusterSpec as a table made from the model: path, what it takes, example, variable and flag."""

from __future__ import annotations

import functools
import json
import re
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo

from kit.config.words import listed
from kit.model.spec import ClusterSpec

_PLAIN = re.compile(r"[A-Za-z0-9~./_-][A-Za-z0-9~./_=+@ -]*(?::[A-Za-z0-9~./_=+@-]+)*", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One field. `path` is dotted (ssh.user); `wants` completes "write …"; `variable` is None where none sets it."""

    path: str
    wants: str
    description: str
    default: object
    example: object
    choices: tuple[str, ...]
    is_section: bool
    variable: str | None

    @property
    def key(self) -> str:
        return self.path.rpartition(".")[2]

    @property
    def flag(self) -> str:
        word = (self.variable or "KIT_" + self.path.upper().replace(".", "_")).removeprefix("KIT_")
        return "--" + word.lower().replace("_", "-")


@functools.cache
def settings() -> Mapping[str, Setting]:
    """Every field by its path, in the order of the model; a section stands before its own fields."""
    return {setting.path: setting for setting in _walk(ClusterSpec, "")}


def keys_of(section: str) -> tuple[str, ...]:
    """The keys that a section takes; '' is the whole file."""
    return tuple(s.key for s in settings().values() if s.path.rpartition(".")[0] == section)


def as_yaml(value: object) -> str:
    """A value of the model (text, number, list, dict, None) on one line of YAML, as kit.yaml takes it."""
    if isinstance(value, tuple | list):
        return "[" + ", ".join(as_yaml(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {as_yaml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, str) and _PLAIN.fullmatch(value) and not value.endswith(" "):
        return value
    return json.dumps(value, ensure_ascii=False)


def as_text(value: object) -> str:
    """A value as one word of the environment or the command line; a command is quoted as a shell wants it."""
    if isinstance(value, tuple | list):
        import shlex  # noqa: PLC0415  (only for a message)

        return shlex.join(str(word) for word in value)
    return value if isinstance(value, str) else json.dumps(value)


def _walk(model: type[BaseModel], prefix: str) -> Iterator[Setting]:
    for name, info in model.model_fields.items():
        path = prefix + name
        section = _model(info.annotation)
        default = info.get_default(call_default_factory=True)
        example = info.examples[0] if info.examples else default
        if section is not None:
            key, first = next(iter(section.model_fields.items()))
            example = {key: first.examples[0] if first.examples else first.get_default(call_default_factory=True)}
        yield Setting(
            path=path,
            wants=_wants(info.annotation, info.metadata),
            description=info.description or "",
            default=default,
            example=example,
            choices=tuple(_choices(info.annotation)),
            is_section=section is not None,
            variable=_variable(path, info),
        )
        if section is not None:
            yield from _walk(section, path + ".")


def _model(annotation: Any) -> type[BaseModel] | None:
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _variable(path: str, info: FieldInfo) -> str | None:
    """The variable that sets the field: for what one word can say, and for commands."""
    own = info.json_schema_extra
    if isinstance(own, dict) and "env" in own:
        return str(own["env"])
    origin = get_origin(info.annotation) or info.annotation
    if _model(info.annotation) or origin is dict or (origin is tuple and not _is_split(info.metadata)):
        return None
    return "KIT_" + path.upper().replace(".", "_")


def _is_split(metadata: list[Any]) -> bool:
    return any(isinstance(item, BeforeValidator) for item in metadata)


def _choices(annotation: Any) -> Iterator[str]:
    if get_origin(annotation) is Literal:
        yield from (str(choice) for choice in get_args(annotation))
    elif get_origin(annotation) is not None:
        for part in get_args(annotation):
            yield from _choices(part)


def _wants(annotation: Any, metadata: list[Any]) -> str:
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _wants(args[0], list(args[1:]))
    if origin in (Union, types.UnionType):
        parts = (part for part in args if part is not type(None))
        return listed(word for part in parts for word in _wants(part, metadata).split(" or "))
    if origin is Literal:
        return listed(str(choice) for choice in args)
    if origin is tuple:
        return _wants_list(annotation, metadata)
    return _wants_plain(annotation, metadata)


def _wants_list(annotation: Any, metadata: list[Any]) -> str:
    if _is_split(metadata):
        return "a command on one line, or a list of its words"
    choices = tuple(_choices(annotation))
    return f"a list of {listed(choices)}" if choices else "a list"


def _wants_plain(annotation: Any, metadata: list[Any]) -> str:
    if _model(annotation):
        return "KEY: VALUE lines, indented"
    if get_origin(annotation) is dict:
        return "NAME: VALUE lines, indented"
    if annotation is bool:
        return "true or false"
    bounds = {name: value for item in _flat(metadata) for name, value in _bound(item)}
    if annotation is int:
        return f"a whole number from {bounds['ge']} to {bounds['le']}"
    if annotation is float:
        return f"a number above {bounds['gt']}, up to {bounds['le']}"
    return "text"


def _flat(metadata: list[Any]) -> Iterator[Any]:
    for item in metadata:
        if isinstance(item, FieldInfo):
            yield from item.metadata
        else:
            yield item


def _bound(item: Any) -> Iterator[tuple[str, int]]:
    for name in ("gt", "ge", "le"):
        value = getattr(item, name, None)
        if value is not None:
            yield name, value
