"""A session and its samples as JSON text, and back: what the files of a session's folder hold."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields
from typing import Any

from kit.errors import InputError
from kit.model.bench import SAMPLES, Case, Sample, Session

FORMAT = 1


def session_text(session: Session) -> str:
    return json.dumps(asdict(session), indent=1, ensure_ascii=False) + "\n"


def session_of(text: str, file: str) -> Session:
    """Raises InputError where the text is not a session of this kit's format. `file` is for the message."""
    try:
        data = json.loads(text)
        # An older or newer format may have other fields, too: told before they are.
        if isinstance(data, dict) and data.get("format", FORMAT) != FORMAT:
            raise InputError(
                f"its format is {data['format']}, and this kit reads {FORMAT}",
                hint="read it with the kit that wrote it",
                file=file,
            )
        _fits(Session, data)
        return Session(**{**data, "cases": tuple(_case(each) for each in data["cases"])})
    except ValueError as error:
        raise InputError(
            f"is not a session of kit bench: {error}",
            hint="give the folder of another session, or move this one's away",
            file=file,
        ) from error


def _case(data: Any) -> Case:
    _fits(Case, data)
    try:
        env = tuple((str(name), str(value)) for name, value in data.get("env", ()))
    except (ValueError, TypeError) as error:
        raise ValueError("env holds something else than pairs of a name and a value") from error
    if not data["command"] or not all(isinstance(word, str) for word in data["command"]):
        raise ValueError("command is not a list of words")
    return Case(**{**data, "command": tuple(data["command"]), "env": env})


# By a field's type, as it is written in kit.model.bench: what JSON has for it, and the word for that. Others are texts.
_JSON: Mapping[str, tuple[tuple[type, ...], str]] = {
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "bool": ((bool,), "true or false"),
    "int | None": ((int, type(None)), "a whole number or null"),
    "str | None": ((str, type(None)), "a text or null"),
    "int | str": ((int, str), "a whole number or a text"),
    "Mapping[str, Any]": ((dict,), "an object"),
    "Mapping[str, str]": ((dict,), "an object"),
}


def _fits(kind: type[Session | Case | Sample], data: Any) -> None:
    """Raises ValueError, in words for a reader, where these are not the fields of that class."""
    if not isinstance(data, dict):
        raise ValueError(f"{json.dumps(data)[:40]} is not an object")
    known = {field.name: field for field in fields(kind)}
    for name, field in known.items():
        if name not in data:
            if field.default is MISSING and field.default_factory is MISSING:
                raise ValueError(f"{name} is missing")
            continue
        word = str(field.type)
        types, told = ((list,), "a list") if word.startswith("tuple[") else _JSON.get(word, ((str,), "a text"))
        # To Python, and to it alone, true is a number.
        if not isinstance(data[name], types) or (isinstance(data[name], bool) and bool not in types):
            raise ValueError(f"{name} is {json.dumps(data[name])[:40]}, and not {told}")
    if other := [name for name in data if name not in known]:
        raise ValueError(f"it has no field '{other[0]}'")


def sample_line(sample: Sample) -> str:
    return json.dumps(asdict(sample), ensure_ascii=False) + "\n"


def samples_of(text: str, file: str = SAMPLES) -> tuple[Sample, ...]:
    """A sample a line. A last line without its end was being written when kit was killed, and is not there.

    Of a repeat that was done again (it failed, and the session was resumed) the last line counts.
    """
    whole, _, _ = text.rpartition("\n")
    known = {field.name for field in fields(Sample)}
    found: dict[tuple[str, int, bool], Sample] = {}
    for number, line in enumerate(whole.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            data = json.loads(line)
            if isinstance(data, dict):
                data = {name: value for name, value in data.items() if name in known}
            _fits(Sample, data)
            sample = Sample(**data)
        except ValueError as error:
            raise InputError(
                f"is not a sample of kit bench: {error}", hint="take the line out", file=file, line=number
            ) from error
        key = (sample.case, sample.repeat, sample.warmup)
        found.pop(key, None)
        found[key] = sample
    return tuple(found.values())


def last_object(lines: list[str]) -> Mapping[str, Any]:
    """The last line that is one JSON object, as every measuring program ends with; {} where there is none."""
    for line in reversed(lines):
        text = line.strip()
        if text.startswith("{") and text.endswith("}"):
            try:
                value = json.loads(text)
            except ValueError:
                continue
            if isinstance(value, dict):
                return value
    return {}
