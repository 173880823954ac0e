"""The words of the command line as data: Option, Operand and Verb, and how the text of a value becomes a value."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

CommandForm = Literal["none", "rest", "dashes"]

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, kw_only=True, slots=True)
class Option:
    """A flag. `value` names its value in the help, and is None for a switch. The last flag names the attribute.

    `kind` turns the text into the value, and raises ValueError with what to write. `many` collects into a list.
    `valued`, for a switch that people give a value: the words to write before that value instead. `means`: the switch
    is short for this word.
    """

    flags: tuple[str, ...]
    help: str
    value: str | None = None
    kind: Callable[[str], object] = str
    choices: tuple[str, ...] = ()
    many: bool = False
    to: str | None = None
    valued: str = ""
    means: str = ""

    @property
    def dest(self) -> str:
        return self.to or self.flags[-1].lstrip("-").replace("-", "_")


@dataclass(frozen=True, kw_only=True, slots=True)
class Operand:
    """A word with a place instead of a flag."""

    name: str
    help: str
    optional: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Verb:
    """One thing that a person can ask for. `handler` names a function of kit.cli.verbs.cluster (`module.function`:
    of that module of kit.cli.verbs), which --help need not load.

    `command` says how a command of the person's own is given. rest: from the first plain word or `--` on.
    dashes: after `--` only. It is taken verbatim either way. `needs_command`: whether it may be left out.
    """

    words: tuple[str, ...]
    purpose: str
    handler: str
    group: str
    operands: tuple[Operand, ...] = ()
    options: tuple[Option, ...] = ()
    command: CommandForm = "none"
    needs_command: bool = False
    notes: str = ""
    examples: tuple[str, ...] = ()
    exits: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        return " ".join(self.words)

    @property
    def usage(self) -> str:
        operands = [f"[{o.name}]" if o.optional else o.name for o in self.operands]
        command = {
            "none": [],
            "rest": ["[--]", "[command …]"],
            "dashes": ["--", "command …"] if self.needs_command else ["[-- command …]"],
        }[self.command]
        return " ".join(["kit", self.name, "[options]", *operands, *command])


def count(text: str) -> int:
    """A whole number from 1 on."""
    # int() alone would take ' 1_0 ' as well.
    if not re.fullmatch(r"[0-9]{1,9}", text, re.ASCII) or int(text) < 1:
        raise ValueError(f"'{text}' is not a whole number from 1 on")
    return int(text)


def lines(text: str) -> int:
    """A whole number from 0 on."""
    if not re.fullmatch(r"[0-9]{1,9}", text, re.ASCII):
        raise ValueError(f"'{text}' is not a whole number")
    return int(text)


def port(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", text, re.ASCII) or not 1 <= int(text) <= 65535:
        raise ValueError(f"'{text}' is not a port from 1 to 65535")
    return int(text)


def positive(text: str) -> float:
    """A number above 0, such as 290 or 0.5."""
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,20})?", text, re.ASCII) or float(text) <= 0:
        raise ValueError(f"'{text}' is not a number above 0, such as 290 or 0.5")
    return float(text)


def rate(text: str) -> str:
    """A rate as tc takes it: 200mbit, 1gbit."""
    if not re.fullmatch(r"[1-9][0-9]{0,5}(k|m|g)bit", text, re.ASCII):
        raise ValueError(f"'{text}' is not a rate such as 200mbit or 1gbit")
    return text


def span(text: str) -> float:
    """A time as people write it, in seconds: 90, 90s, 10m, 8h, 2d."""
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)(s|m|h|d)?", text, re.ASCII)
    if not found:
        raise ValueError(f"'{text}' is not a time such as 90s, 10m or 8h")
    return float(found[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[found[2] or "s"]


def words(text: str) -> str:
    """Any text but an empty one."""
    if not text.strip():
        raise ValueError("the value is empty")
    return text


def variable(text: str) -> tuple[str, str | None]:
    """`VAR=value`, or `VAR` alone (None: its value is taken from this shell)."""
    name, equals, value = text.partition("=")
    if not _VARIABLE.fullmatch(name) or not name.isascii():
        raise ValueError(f"'{text}' is not VAR or VAR=value")
    return (name, value if equals else None)
