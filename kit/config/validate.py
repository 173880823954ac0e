"""Plain values → ClusterSpec, and pydantic's complaints in words: where, what was found, what to write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from kit.config.document import Document, Path
from kit.config.fields import Setting, as_text, as_yaml, keys_of, settings
from kit.config.words import listed, near, plain, shown
from kit.errors import InputError, InputErrors
from kit.model.spec import ClusterSpec, FieldError

_LONGEST = 300


@dataclass(frozen=True, kw_only=True)
class Override:
    """A value that beats the file's. `said_as` is how a person said it: KIT_NETWORK or --network."""

    value: object
    said_as: str


def validate(document: Document, overrides: Mapping[str, Override] | None = None) -> ClusterSpec:
    """The spec of the file with the overrides (by dotted path) laid over it. Raises InputErrors."""
    over = overrides or {}
    data = _laid_over(document.data, over)
    problems = list(document.problems)
    try:
        spec = ClusterSpec.model_validate(data)
    except ValidationError as error:
        told = {problem.line for problem in problems}
        problems.extend(p for p in _problems(error, document, over) if p.line is None or p.line not in told)
    else:
        if not problems:
            return spec
    raise InputErrors(sorted(problems, key=lambda problem: problem.line or 0))


def _laid_over(data: Mapping[str, object], over: Mapping[str, Override]) -> dict[str, object]:
    merged: dict[str, object] = {k: dict(v) if isinstance(v, dict) else v for k, v in data.items()}
    for path, override in over.items():
        section, _, key = path.rpartition(".")
        if not section:
            merged[key] = override.value
            continue
        inside = merged.setdefault(section, {})
        if isinstance(inside, dict):
            inside[key] = override.value
    return merged


def _problems(error: ValidationError, document: Document, over: Mapping[str, Override]) -> list[InputError]:
    """One problem for each place; a union tells several there, and the one of our own validators is the best."""
    by_place: dict[Path, Any] = {}
    for item in error.errors(include_url=False):
        place = _place(item["loc"])
        if place not in by_place or item["type"] == "value_error":
            by_place[place] = item
    return [_problem(place, item, document, over) for place, item in by_place.items()]


def _place(loc: tuple[int | str, ...]) -> Path:
    """The error's place without the names of a union's branches, which pydantic adds at the end."""
    known, dotted = 0, ""
    for part in loc:
        dotted = f"{dotted}.{part}" if known else str(part)
        if dotted not in settings():
            break
        known += 1
    if known == 0:
        return loc[:1]
    setting = settings()[".".join(str(part) for part in loc[:known])]
    if setting.is_section or isinstance(setting.default, dict):
        return loc[: known + 1]
    rest = loc[known : known + 1]
    return loc[:known] + tuple(part for part in rest if isinstance(part, int))


def _problem(place: Path, item: Any, document: Document, over: Mapping[str, Override]) -> InputError:
    path = ".".join(str(part) for part in place if isinstance(part, str))
    override = _override(path, over)
    setting = settings().get(path) or settings().get(path.partition(".")[0])
    if item["type"] == "extra_forbidden" or setting is None:
        message, hint = _unknown(place)
        return InputError(message, hint=hint, file=document.source, line=document.line_of(place))
    found = _found(place, item["input"], document) if override is None else shown(_text(item["input"]))
    message, advice = _complaint(item, found, setting, place)
    if override is not None:
        hint = advice or _hint(setting, _sample(setting, override.said_as))
        return InputError(_cut(f"{override.said_as}: {message}"), hint=hint)
    hint = advice or _hint(setting, f"{setting.key}: {as_yaml(setting.example)}")
    said = path if not isinstance(place[-1], int) else f"{path}, item {place[-1] + 1}"
    return InputError(_cut(f"{plain(said)}: {message}"), hint=hint, file=document.source, line=document.line_of(place))


def _override(path: str, over: Mapping[str, Override]) -> Override | None:
    if path in over:
        return over[path]
    # A complaint about a whole section: what was laid over it is the likely cause.
    return next((override for other, override in over.items() if other.startswith(path + ".")), None)


def _complaint(item: Any, found: str, setting: Setting, place: Path) -> tuple[str, str | None]:
    cause = item.get("ctx", {}).get("error")
    if isinstance(cause, FieldError):
        text = str(cause)
        return (f"{found} {text}" if text.startswith(("is ", "has ", "holds ")) else text), cause.write
    in_list = isinstance(place[-1], int)
    wants = listed(setting.choices) if in_list and setting.choices else setting.wants
    if isinstance(item["input"], bool) and "true or false" not in setting.wants:
        word = str(item["input"]).lower()
        bare = found.strip("'")
        read = f"YAML reads {found} as {word}, which is no text" if bare != word else f"{found} is not text to YAML"
        if setting.choices or "number" in setting.wants:
            return f"{found} is not {setting.wants}", None
        return read, f'put it in quotes: "{bare}"' if in_list else f'put it in quotes: {place[-1]}: "{bare}"'
    if setting.wants == "text":
        return f"{found} is not one piece of text", None
    similar = near(item["input"], setting.choices) if isinstance(item["input"], str) else ()
    if similar:
        return f"{found} is not {wants}", f"did you mean {listed(similar)}?"
    return f"{found} is not {wants}", None


def _unknown(place: Path) -> tuple[str, str]:
    key, section = str(place[-1]), ".".join(str(part) for part in place[:-1])
    where = f" in {section}" if section else ""
    message = f"there is no setting {shown(key)}{where}"
    ideas = list(near(key, keys_of(section), most=1))
    for path, setting in settings().items():
        if setting.key == key.lower():
            outer = path.rpartition(".")[0]
            ideas.append(f"{setting.key} below {outer}:" if outer else f"{setting.key} at the margin")
    if ideas:
        return message, f"did you mean {listed(ideas)}?"
    return message, f"known here: {', '.join(keys_of(section))}"


def _hint(setting: Setting, sample: str) -> str:
    if setting.wants == "text":
        return f"write it so: {sample}"
    if setting.choices:
        return f"write one of these, such as {sample}"
    return f"write {setting.wants}, such as {sample}"


def _found(place: Path, value: object, document: Document) -> str:
    return document.written.get(place) or shown(_text(value))


def _text(value: object) -> str:
    try:
        return as_text(value)
    except (TypeError, ValueError):
        return repr(value)


def _sample(setting: Setting, said_as: str) -> str:
    example = as_text(setting.example)
    return f"{said_as} {example}" if said_as.startswith("-") else f"{said_as}={example}"


def _cut(text: str) -> str:
    one_line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    return one_line if len(one_line) <= _LONGEST else one_line[: _LONGEST - 1] + "…"
