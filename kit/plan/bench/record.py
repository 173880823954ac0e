"""Converts a session and its samples to the JSON text of the session's folder, and back."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from typing import Any

from kit.errors import InputError
from kit.model.bench import RUNGS, SAMPLES, Case, Sample, Session
from kit.model.values import asdict

FORMAT = 1
# How deep a session or a result may be nested.
MOST_DEEP = 40
# More repeats of a case, and cases, than anybody measures; and the largest number of a field.
MOST_REPEATS, MOST_CASES, MOST_NUMBER = 1000, 10_000, 2**53


def session_text(session: Session) -> str:
    return json.dumps(asdict(session), indent=1, ensure_ascii=False) + "\n"


def session_of(text: str, file: str, *, whole: bool = False) -> Session:
    """Parse a session. Raises InputError, which names `file`, if the text is not a session of this kit's format.

    A newer kit may have written fields that this kit does not know. They are ignored, or refused if `whole`: without
    them, cases would be measured in another way than before.
    """
    try:
        data = _loaded(text)
        # Check the format first: another format may have other fields.
        if isinstance(data, dict) and data.get("format", FORMAT) != FORMAT:
            raise InputError(
                f"its format is {data['format']}, but this kit reads {FORMAT}",
                hint="read it with the version of kit that wrote it",
                file=file,
            )
        _fits(Session, data)
        if len(data["cases"]) > MOST_CASES:
            raise ValueError(f"it has more than {MOST_CASES} cases")
        session = Session(**{**_known(Session, data), "cases": tuple(_case(case) for case in data["cases"])})
    except ValueError as error:
        raise InputError(
            f"is not a session of kit bench: {error}",
            hint="give the folder of another session, or move this folder away",
            file=file,
        ) from error
    newer = [*_newer(Session, data), *(name for case in data["cases"] for name in _newer(Case, case))]
    if whole and newer:
        raise InputError(
            f"this kit does not know its field '{newer[0]}': a newer kit began the session",
            hint="update kit on this machine, or start a new session",
            file=file,
        )
    return session


def _known(kind: type[Session | Case | Sample], data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of that class."""
    names = {field.name for field in fields(kind)}
    return {name: value for name, value in data.items() if name in names}


def _newer(kind: type[Session | Case], data: Mapping[str, Any]) -> list[str]:
    """Return the fields that are not of that class."""
    return [name for name in data if name not in _known(kind, data)]


def _loaded(text: str) -> Any:
    """Return the value of a JSON text. NaN is a number, as programs print it. Raises ValueError."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    level = [value]
    for _ in range(MOST_DEEP):
        level = [part for outer in level for part in _parts(outer)]
        if not level:
            return value
    raise ValueError("it is nested too deeply")


def _parts(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _case(data: Any) -> Case:
    _fits(Case, data)
    try:
        env = tuple((str(name), str(value)) for name, value in data.get("env", ()))
    except (ValueError, TypeError) as error:
        raise ValueError("env is not a list of name and value pairs") from error
    if not data["command"] or not all(isinstance(word, str) for word in data["command"]):
        raise ValueError("command is not a list of words")
    for name, words in _WORDS.items():
        if data.get(name, words[0]) not in words:
            raise ValueError(f"{name} is not one of {', '.join(words)}")
    for name in ("repeats", "warmup"):
        if not 0 <= data.get(name, 0) <= MOST_REPEATS:
            raise ValueError(f"{name} is not between 0 and {MOST_REPEATS}")
    if data.get("np", 1) < 1:
        raise ValueError("np is less than 1")
    return Case(**{**_known(Case, data), "command": tuple(data["command"]), "env": env})


# A field's type as written in kit.model.bench → its JSON types, and their name. Other fields are text.
_JSON: Mapping[str, tuple[tuple[type, ...], str]] = {
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "bool": ((bool,), "true or false"),
    "int | None": ((int, type(None)), "a whole number or null"),
    "str | None": ((str, type(None)), "a text or null"),
    "int | str": ((int, str), "a whole number or a text"),
    "Mapping[str, Any]": ((dict,), "an object"),
    "Mapping[str, Any] | None": ((dict, type(None)), "an object or null"),
    "Mapping[str, str]": ((dict,), "an object"),
}


# The fields whose text is one of some words.
_WORDS: Mapping[str, tuple[str, ...]] = {
    "rung": RUNGS,
    "launcher": ("mpi", "ps"),
    "network": ("host", "bare", "bridge", "overlay"),
}


def _fits(kind: type[Session | Case | Sample], data: Any) -> None:
    """Raise ValueError with a readable reason if `data` does not have the fields of that class."""
    if not isinstance(data, dict):
        raise ValueError(f"{json.dumps(data)[:40]} is not an object")
    known = {field.name: field for field in fields(kind)}
    for name, field in known.items():
        if name not in data:
            if field.default is MISSING and field.default_factory is MISSING:
                raise ValueError(f"{name} is missing")
            continue
        word = str(field.type)
        types, expected = ((list,), "a list") if word.startswith("tuple[") else _JSON.get(word, ((str,), "a text"))
        # In Python, true is a number; in JSON it is not.
        if not isinstance(data[name], types) or (isinstance(data[name], bool) and bool not in types):
            raise ValueError(f"{name} is {json.dumps(data[name])[:40]}, not {expected}")
        # NaN is not within them, either.
        if isinstance(data[name], int | float) and not -MOST_NUMBER <= data[name] <= MOST_NUMBER:
            raise ValueError(f"{name} is not between {-MOST_NUMBER} and {MOST_NUMBER}")


def sample_line(sample: Sample) -> str:
    """Return the line of a sample. Numbers that JSON does not have, as a benchmark may print them, become null."""
    return json.dumps(_finite(asdict(sample)), ensure_ascii=False) + "\n"


def _finite(value: Any) -> Any:
    """Return the value with null for NaN and infinity."""
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def samples_of(text: str, file: str = SAMPLES) -> tuple[Sample, ...]:
    """Parse samples, one a line. An incomplete last line is ignored: kit was killed while writing it.

    If a repeat was measured again (kit bench --resume after a failure), its last line counts.
    """
    whole, _, _ = text.rpartition("\n")
    latest: dict[tuple[str, int, bool], Sample] = {}
    for number, line in enumerate(whole.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            data = _loaded(line)
            _fits(Sample, data)
            sample = Sample(**_known(Sample, data))
        except ValueError as error:
            raise InputError(
                f"is not a sample of kit bench: {error}", hint="remove the line", file=file, line=number
            ) from error
        key = (sample.case, sample.repeat, sample.warmup)
        latest.pop(key, None)
        latest[key] = sample
    return tuple(latest.values())


def last_object(lines: list[str]) -> Mapping[str, Any]:
    """Return the last line that is a JSON object, which every benchmark program prints last, or {}."""
    for line in reversed(lines):
        text = line.strip()
        if text.startswith("{") and text.endswith("}"):
            try:
                value = _loaded(text)
            except ValueError:
                continue
            if isinstance(value, dict):
                return value
    return {}
