"""One field of kit.yaml as a value: what it accepts, its default, its variable and its flag. And values as text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from kit.config.kinds import Kind, Shape
from kit.model.spec import ClusterSpec

_PLAIN = re.compile(r"[A-Za-z0-9~./_-][A-Za-z0-9~./_=+@ -]*(?::[A-Za-z0-9~./_=+@-]+)*", re.ASCII)
_DEFAULTS = ClusterSpec()
# Flags that are not the variable's name in lower case.
_FLAGS = {"setup.hugepages": "--hugepages", "ssh.keep": "--no-keep"}
NULL: Shape = {"type": "null"}


class Setting(Struct, frozen=True, kw_only=True):
    """One field, or a section of fields.

    `path` is dotted (ssh.user). `kind` is None for a section. `rule` checks a value of that kind. `variable` is None if
    no environment variable sets the field.
    """

    path: str
    description: str
    default: object
    example: object
    variable: str | None
    kind: Kind | None = None
    rule: Callable[[Any], object] | None = None

    @property
    def key(self) -> str:
        return self.path.rpartition(".")[2]

    @property
    def section(self) -> str:
        return self.path.rpartition(".")[0]

    @property
    def flag(self) -> str:
        if self.path in _FLAGS:
            return _FLAGS[self.path]
        word = (self.variable or "KIT_" + self.path.upper().replace(".", "_")).removeprefix("KIT_")
        return "--" + word.lower().replace("_", "-")

    @property
    def is_section(self) -> bool:
        return self.kind is None

    def shape(self) -> Shape:
        """Return the JSON schema of the field. null is always valid: a key without a value counts as not set."""
        if self.kind is None:
            raise ValueError(f"{self.path} is a section")
        shape: Shape = {"title": self.key.replace("_", " ").title(), "description": self.description}
        shape["default"] = self.default
        if self.example != self.default:
            shape["examples"] = [self.example]
        return {**shape, "anyOf": [*self.kind.shapes(), NULL]}

    @property
    def wants(self) -> str:
        """Return the words that complete "write …"."""
        return self.kind.wants if self.kind else "KEY: VALUE lines, indented"

    @property
    def choices(self) -> tuple[str, ...]:
        return self.kind.choices if self.kind else ()


def as_yaml(value: object) -> str:
    """Return a value of the model (text, number, list, dict, None) as kit.yaml accepts it on one line."""
    if isinstance(value, tuple | list):
        return "[" + ", ".join(as_yaml(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {as_yaml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, str) and _PLAIN.fullmatch(value) and not value.endswith(" "):
        return value
    return json.dumps(value, ensure_ascii=False)


def as_text(value: object) -> str:
    """Return a value as one word of the environment or the command line; a command is quoted for a shell."""
    if isinstance(value, tuple | list):
        import shlex  # noqa: PLC0415  (only for a message)

        return shlex.join(str(word) for word in value)
    return value if isinstance(value, str) else json.dumps(value)


def field(
    path: str,
    kind: Kind,
    description: str,
    *,
    example: object = None,
    variable: str = "",
    default: object = None,
    rule: Callable[[Any], object] | None = None,
) -> Setting:
    """Return a field. Its default comes from the model, and its variable from its path, unless they are given."""
    if default is None:
        default = _DEFAULTS
        for key in path.split("."):
            default = getattr(default, key)
    named = variable or "KIT_" + path.upper().replace(".", "_")
    return Setting(
        path=path,
        description=description,
        default=default,
        example=default if example is None else example,
        variable=named if kind.is_word else None,
        kind=kind,
        rule=rule,
    )


def section(path: str, description: str, example: Mapping[str, object]) -> Setting:
    """Return a section, which no variable sets."""
    default = getattr(_DEFAULTS, path)
    return Setting(path=path, description=description, default=default, example=example, variable=None)
