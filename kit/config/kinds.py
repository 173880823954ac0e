"""The kinds of values that a field of kit.yaml accepts. Each reads a plain value and says what it accepts.

A plain value is text, a number, true or false, a list, or a mapping: what YAML, a variable or a flag gives.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from msgspec import Struct, field

from kit.config.words import listed, variable_name
from kit.model import quantity

Shape = dict[str, Any]

_WHOLE = re.compile(r"[+-]?[0-9]+(?:_[0-9]+)*(?:\.0+)?", re.ASCII)
_ZERO_FIRST = re.compile(r"[+-]?0[0-9_]*[1-9][0-9_]*", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_CPUS = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,20})?", re.ASCII)
# What a shell takes unchanged.
_QUOTED = re.compile(r"""'[^']*'|"(?:\\.|[^"\\])*"|\\.""")
_REDIRECTION = re.compile(r"[0-9&]?(?:>>?|<<?)(?:&[0-9])?", re.ASCII)
GIVE_TO_A_SHELL = "give it to a shell: [sh, -c, 'cd /data && python3 train.py']"
_TRUE = frozenset({"true", "t", "yes", "y", "on", "1"})
_FALSE = frozenset({"false", "f", "no", "n", "off", "0"})
_TEXT_OR_NUMBER: Shape = {"type": ["string", "number"]}


class WrongKindError(ValueError):
    """A value of another kind than the field accepts."""


class FieldError(ValueError):
    """A value that a rule refuses.

    The message may start with "is", "has" or "holds"; the value is then put before it. `write` says what to write
    instead. `key` is the key at fault if a rule of a whole section refuses; a tuple leads to a value inside of it.
    """

    def __init__(self, message: str, *, write: str | None = None, key: str | tuple[str, ...] | None = None) -> None:
        super().__init__(message)
        self.write = write
        self.key = key


class WrongItemsError(ValueError):
    """Some items of a list or mapping that are wrong: index or key → the item and its error.

    The error may be another WrongItemsError, about values inside of the item.
    """

    def __init__(self, items: Mapping[int | str, tuple[object, ValueError]]) -> None:
        super().__init__()
        self.items = items


class Kind(Protocol):
    """A kind of value."""

    @property
    def wants(self) -> str:
        """Return the words that complete "write …"."""

    @property
    def choices(self) -> tuple[str, ...]:
        """Return the words to choose from, or nothing."""

    @property
    def is_word(self) -> bool:
        """Return whether one environment variable can hold such a value."""

    def read(self, value: object) -> object:
        """Return the model's value. Raises WrongKindError, FieldError or WrongItemsError."""

    def shapes(self) -> list[Shape]:
        """Return the alternatives of the JSON schema."""


class Text(Struct, frozen=True):
    """One piece of text of at least `shortest` characters.

    `of_digits`: it is often a number, such as a UID, so that the schema allows one.
    """

    shortest: int = 0
    of_digits: bool = False
    wants: str = "text"
    choices: tuple[str, ...] = ()
    is_word: bool = True

    def read(self, value: object) -> str:
        if not isinstance(value, str) or len(value) < self.shortest:
            raise WrongKindError
        if "\0" in value:
            raise FieldError("has a NUL character in it, and no program accepts one", write="remove it")
        return value

    def shapes(self) -> list[Shape]:
        if self.of_digits:
            return [{"type": ["string", "integer"]}]
        return [{"type": "string", "minLength": self.shortest} if self.shortest else {"type": "string"}]


class Choice(Struct, frozen=True):
    """One of some words. `instead` maps words that people write instead to what they should write.

    `truths` maps true or false to the word that YAML reads as it: `off` is false to YAML.
    """

    choices: tuple[str, ...]
    is_word: bool = True
    instead: Mapping[str, str] = field(default_factory=dict)
    truths: Mapping[bool, str] = field(default_factory=dict)

    @property
    def wants(self) -> str:
        return listed(self.choices)

    def read(self, value: object) -> str:
        if isinstance(value, str) and value.lower() in self.instead:
            raise FieldError(f"is not {self.wants}", write=self.instead[value.lower()])
        if isinstance(value, bool) and value in self.truths:
            return self.truths[value]
        if not isinstance(value, str) or value not in self.choices:
            raise WrongKindError
        return value

    def shapes(self) -> list[Shape]:
        # An editor's reader of YAML may take the word for a truth value, too.
        truths = [{"type": "boolean", "enum": list(self.truths)}] if self.truths else []
        return [{"type": "string", "enum": list(self.choices)}, *truths]


class Whole(Struct, frozen=True):
    """A whole number. Text with a leading zero is refused: some readers of YAML take 010 for 8, others for 10."""

    low: int
    high: int
    choices: tuple[str, ...] = ()
    is_word: bool = True

    @property
    def wants(self) -> str:
        return f"a whole number from {self.low} to {self.high}"

    def read(self, value: object) -> int:
        if isinstance(value, str):
            text = value.strip()
            _refuse_zero_first(text)
            # A longer number is out of every range, and slow to convert.
            value = int(text.partition(".")[0]) if len(text) < 50 and _WHOLE.fullmatch(text) else None
        if not isinstance(value, int) or isinstance(value, bool) or not self.low <= value <= self.high:
            raise WrongKindError
        return value

    def shapes(self) -> list[Shape]:
        return [{"type": "integer", "minimum": self.low, "maximum": self.high}]


class Cpus(Struct, frozen=True):
    """A number of CPUs of at least 0.01 with at most two decimals, or the word exclusive."""

    most: int
    choices: tuple[str, ...] = ("exclusive",)
    is_word: bool = True

    @property
    def wants(self) -> str:
        return f"exclusive or a number of CPUs above 0, up to {self.most}"

    def read(self, value: object) -> float | str:
        if value == "exclusive":
            return "exclusive"
        if isinstance(value, str) and _CPUS.fullmatch(value.strip()):
            _refuse_zero_first(value.strip())
            value = float(value)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= self.most:
            raise WrongKindError
        if round(value, 2) != value:
            raise FieldError("has more than two decimals", write=f"write {max(value, 0.01):.2f}")
        return float(value)

    def shapes(self) -> list[Shape]:
        return [
            {"type": "string", "const": "exclusive"},
            {"type": "number", "exclusiveMinimum": 0, "maximum": self.most},
        ]


class Days(Struct, frozen=True):
    """A time in days: a number, or with units. Above 0, up to `most` days."""

    most: int
    choices: tuple[str, ...] = ()
    is_word: bool = True

    @property
    def wants(self) -> str:
        return f"a number of days above 0, up to {self.most}, or a time such as 36h or 2w"

    def read(self, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise WrongKindError
        _refuse_zero_first(str(value).strip())
        try:
            days = float(value)
        except OverflowError:
            raise WrongKindError from None
        except ValueError:
            days = self._with_units(str(value))
        if not 0 < days <= self.most:
            raise WrongKindError
        return days

    def _with_units(self, text: str) -> float:
        try:
            return quantity.seconds(text) / 86400
        except ValueError:
            raise WrongKindError from None

    def shapes(self) -> list[Shape]:
        units = {"type": "string", "pattern": "^([0-9]+([.][0-9]+)?(w|d|h|min|m|s))+$"}
        return [{"type": "number", "exclusiveMinimum": 0, "maximum": self.most}, units]


class Truth(Struct, frozen=True):
    """true or false, or one of the words that YAML and shells use for them."""

    wants: str = "true or false"
    choices: tuple[str, ...] = ()
    is_word: bool = True

    def read(self, value: object) -> bool:
        word = value.lower() if isinstance(value, str) else str(int(value)) if isinstance(value, int) else ""
        if word in _TRUE or word in _FALSE:
            return word in _TRUE
        raise WrongKindError

    def shapes(self) -> list[Shape]:
        return [{"type": "boolean"}]


class Auto(Struct, frozen=True):
    """The word auto, or a value of another kind."""

    kind: Kind
    choices: tuple[str, ...] = ("auto",)
    is_word: bool = True

    @property
    def wants(self) -> str:
        return listed(["auto", *self.kind.wants.split(" or ")])

    def read(self, value: object) -> object:
        return value if value == "auto" else self.kind.read(value)

    def shapes(self) -> list[Shape]:
        return [{"type": "string", "const": "auto"}, *self.kind.shapes()]


class Items(Struct, frozen=True):
    """A list of one kind."""

    kind: Kind
    is_word: bool = False

    @property
    def choices(self) -> tuple[str, ...]:
        return self.kind.choices

    @property
    def wants(self) -> str:
        return f"a list of {listed(self.choices)}" if self.choices else "a list"

    def read(self, value: object) -> tuple[object, ...]:
        if not isinstance(value, list | tuple):
            raise WrongKindError
        return tuple(_read_all(enumerate(value), self.kind.read).values())

    def shapes(self) -> list[Shape]:
        return [{"type": "array", "items": self.kind.shapes()[0]}]


class Command(Struct, frozen=True):
    """A command: a list of words, or one line that is split as a POSIX shell splits it, without expansion."""

    wants: str = "a command on one line, or a list of its words"
    choices: tuple[str, ...] = ()
    is_word: bool = True

    def read(self, value: object) -> tuple[object, ...]:
        return Items(Text()).read(_split(value) if isinstance(value, str) else value)

    def shapes(self) -> list[Shape]:
        return [{"type": "string"}, {"type": "array", "items": _TEXT_OR_NUMBER}]


class Variables(Struct, frozen=True):
    """A mapping from the names of environment variables to text. A number becomes its text."""

    wants: str = "NAME: VALUE lines, indented"
    choices: tuple[str, ...] = ()
    is_word: bool = False

    def read(self, value: object) -> dict[int | str, object]:
        if not isinstance(value, Mapping):
            raise WrongKindError
        for name in value:
            if not isinstance(name, str) or not _VARIABLE.fullmatch(name):
                raise FieldError(
                    f"'{variable_name(str(name))}' is not the name of a variable",
                    write="use letters, digits and _, and start with no digit",
                    key=name if isinstance(name, str) else None,
                )
        return _read_all(value.items(), lambda item: Text().read(_as_text(item)))

    def shapes(self) -> list[Shape]:
        return [{"type": "object", "additionalProperties": _TEXT_OR_NUMBER}]


def _refuse_zero_first(text: str) -> None:
    if _ZERO_FIRST.fullmatch(text):
        sign = "-" if text.startswith("-") else ""
        number = text.lstrip("+-0_")[:20]
        raise FieldError("has a leading zero, which some read as octal", write=f"write {sign}{number}")


def _read_all(items: Any, read: Callable[[object], object]) -> dict[int | str, object]:
    values: dict[int | str, object] = {}
    wrong: dict[int | str, tuple[object, ValueError]] = {}
    for place, item in items:
        try:
            values[place] = read(item)
        except (WrongKindError, FieldError) as error:
            wrong[place] = (item, error)
    if wrong:
        raise WrongItemsError(wrong)
    return values


def checked_items(items: tuple[str, ...], check: Callable[[Any], object]) -> tuple[Any, ...]:
    """Return what `check` returns for each item. Raises WrongItemsError with every item that it refuses."""
    return tuple(_read_all(enumerate(items), check).values())


def _as_text(value: object) -> object:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _split(line: str) -> list[str]:
    import shlex  # noqa: PLC0415  (only for a command on one line)

    bare = _QUOTED.sub("_", line.strip())
    if "\n" in bare:
        raise FieldError("has several lines, and no shell reads this command", write=GIVE_TO_A_SHELL)
    for word in bare.split():
        if word.endswith(";") or _REDIRECTION.fullmatch(word):
            # What is before the ; may be a secret.
            sign = ";" if word.endswith(";") else word
            raise FieldError(f"no shell reads this command, so {sign} has no meaning in it", write=GIVE_TO_A_SHELL)
    try:
        return shlex.split(line)
    except ValueError as error:
        raise FieldError(
            "has a quote or a backslash that is never closed",
            write="close it, or write the command as a list: [python3, train.py]",
        ) from error
