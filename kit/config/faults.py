"""Says what is wrong with a value of kit.yaml: where it is, what the file has there, and what to write instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from kit.config import data
from kit.config.document import Document, Path
from kit.config.fields import keys_of, settings
from kit.config.kinds import Command, FieldError, Items, Variables
from kit.config.problems import MOST_PROBLEMS, limited
from kit.config.setting import Setting, as_text, as_yaml
from kit.config.words import listed, near, plain, shown, spaced, variable_name
from kit.errors import InputError
from kit.model.logins import without_logins

_LONGEST = 300
_VMS = "list the VMs in the file hosts beside kit.yaml, one on each line: 10.0.0.11"
_AT_TOP = "at the top level"
# Keys that people write at the top level, and what to write instead.
_INSTEAD = {
    **dict.fromkeys(("hosts", "nodes", "workers", "machines", "inventory", "head"), _VMS),
    "environment": "did you mean env?",
    "gpus": "kit finds the GPUs; write slots: 8 to start another number of ranks on each host",
    "np": "give it on the command line, kit run --np 8; slots: sets the ranks that fit on a host",
    "privileged": "kit keeps containers fenced in; security: names what a workload needs (docs/nodes.md)",
    "cap_add": "write the names below security:, capabilities: [SYS_PTRACE]",
    "services": "this is not a Compose file: kit compose prints the one that kit writes",
}


class Override(Struct, frozen=True, kw_only=True):
    """A value that replaces the file's value. `source` is its variable or flag: KIT_NETWORK or --network."""

    value: object
    source: str


class UnknownKeyError(ValueError):
    """A key that its section does not have."""


class Fault(Struct, frozen=True, kw_only=True):
    """A value that its field, or a rule of its section, refuses."""

    value: object
    error: ValueError


def problems(faults: Mapping[Path, Fault], document: Document, over: Mapping[str, Override]) -> list[InputError]:
    """Return the problems of the document and those of its values. A line has problems of one of the two kinds."""
    errors = list(document.problems)
    lines = {problem.line for problem in errors}
    written = more = 0
    for place in sorted(faults, key=lambda place: _line(place, document, over) or 0):
        if _line(place, document, over) in lines:
            continue
        # Each message looks for similar words, which takes long for thousands of problems.
        if written > MOST_PROBLEMS:
            more += 1
            continue
        written += 1
        errors.append(_problem(place, faults[place], document, over))
    return limited(errors, more=more)


def _line(place: Path, document: Document, over: Mapping[str, Override]) -> int | None:
    """Return the line of a value in the file, or None if a flag or a variable replaces it."""
    path = _dotted(place)
    known = path in settings() or path.partition(".")[0] in settings()
    return None if known and _override(path, over) is not None else document.line_of(place)


def _dotted(place: Path) -> str:
    return ".".join(str(part) for part in place if isinstance(part, str))


def _setting_at(place: Path) -> Setting | None:
    """Return the setting that a value belongs to: its own, or that of the list or mapping around it."""
    if place[0] == "data" and len(place) == 3 and place[2] in data.FIELDS:
        return data.FIELDS[str(place[2])]
    path = _dotted(place)
    return settings().get(path) or settings().get(path.partition(".")[0])


def _problem(place: Path, fault: Fault, document: Document, over: Mapping[str, Override]) -> InputError:
    path = _dotted(place)
    override = _override(path, over)
    setting = _setting_at(place)
    if isinstance(fault.error, UnknownKeyError) or setting is None:
        message, hint = _unknown(place, fault.value)
        return InputError(message, hint=without_logins(hint), file=document.source, line=document.line_of(place))
    text = _text_at(place, fault.value, document) if override is None else shown(_text(fault.value))
    if isinstance(setting.kind, Command):
        text = _without_assignments(text)
    message, advice = _complaint(fault, text, setting, place)
    if override is not None:
        hint = advice or _hint(setting, _sample(setting, override.source))
        return InputError(_cut(f"{override.source}: {message}"), hint=without_logins(hint))
    if advice is None and isinstance(place[-1], int) and isinstance(setting.kind, Items) and not setting.choices:
        advice = _one_text(setting, place)
    hint = advice or _hint(setting, f"{setting.key}: {as_yaml(setting.example)}")
    if place[0] == "env" and len(place) > 1:
        path = f"env.{variable_name(str(place[1]))}"
    where = path if not isinstance(place[-1], int) else f"{path}, item {place[-1] + 1}"
    line = document.line_of(place)
    return InputError(_cut(f"{plain(where)}: {message}"), hint=without_logins(hint), file=document.source, line=line)


def _override(path: str, over: Mapping[str, Override]) -> Override | None:
    if path in over:
        return over[path]
    # If a whole section is at fault, its override is the likely cause.
    return next((override for other, override in over.items() if other.startswith(path + ".")), None)


def _complaint(fault: Fault, text: str, setting: Setting, place: Path) -> tuple[str, str | None]:
    """Return what is wrong with a value, and what to write if the setting's example does not say it."""
    value = fault.value
    if isinstance(fault.error, FieldError):
        message = str(fault.error)
        needs_value = message.startswith(("is ", "has ", "holds ", "looks "))
        return (f"{text} {message}" if needs_value else message), fault.error.write
    in_list = isinstance(place[-1], int)
    of_one = (in_list and not setting.choices) or (isinstance(setting.kind, Variables) and len(place) > 1)
    wants = listed(setting.choices) if in_list and setting.choices else setting.wants
    message, advice = f"{text} is not {wants}", None
    if isinstance(value, bool) and "true or false" not in setting.wants:
        message, advice = _not_text(value, text, setting, place)
    elif setting.wants == "text" or of_one:
        message, advice = f"{text} is not one piece of text", _one_text(setting, place) if of_one else None
    elif setting.path == "env" and isinstance(value, str):
        right = spaced(value, ())
        advice = f"write a space after the colon, and the variable on a line below env: {right}" if right else None
    elif isinstance(value, str):
        advice = _near_value(value, setting, in_list=in_list)
    return message, advice


def _not_text(value: bool, text: str, setting: Setting, place: Path) -> tuple[str, str | None]:
    """Return the complaint about a word that YAML reads as true or false."""
    word = str(value).lower()
    bare = text.strip("'")
    if setting.choices or "number" in setting.wants:
        return f"{text} is not {setting.wants}", None
    message = f"YAML reads {text} as {word}, which is not text" if bare != word else f"{text} is not text to YAML"
    if setting.path == "code" and not value:
        return message, "write code: none for no code"
    key = "" if isinstance(place[-1], int) else f"{place[-1]}: "
    return message, f'put it in quotes: {key}"{bare}"'


def _one_text(setting: Setting, place: Path) -> str | None:
    """Return what to write for an item or a variable that is a list or a group."""
    if not isinstance(place[-1], int):
        return f"write {place[-1]}: VALUE"
    if not isinstance(setting.example, list | tuple):
        return None
    example = as_yaml(setting.example[0])
    return f"write SOURCE:TARGET, such as {example}" if setting.path == "volumes" else f"write, for example: {example}"


def _near_value(value: str, setting: Setting, *, in_list: bool) -> str | None:
    """Return what to write for text that is near to a value that the setting accepts."""
    if setting.kind is None:
        # The tag of an image follows a colon, too.
        if setting.path == "image" and not near(value.partition(":")[0], keys_of("image")):
            return _image(value)
        right = spaced(value, keys_of(setting.path))
        return f"write a space after the colon: {right}" if right else None
    if isinstance(setting.kind, Items) and not in_list:
        words = _as_list(value, setting.choices)
        return f"write {setting.key}: {as_yaml(words)}" if words else None
    similar = near(value, setting.choices)
    return f"did you mean {listed(similar)}?" if similar else None


def _image(text: str) -> str:
    """Return what to write for a flavor, or the name of an image, that somebody wrote after `image:`."""
    own = f"image: {as_yaml({'flavour': 'ssh-layer', 'base': text})}, which adds kit's layer to your image"
    if {"/", ":"} & set(text):
        return f"write {own}"
    near_flavor = near(text, settings()["image.flavour"].choices, most=1)
    if near_flavor:
        return f"write image: {{flavour: {near_flavor[0]}}}"
    # Such as ubuntu: Docker knows images by one word, too.
    return "write image: {flavour: auto}" + (f"; or {own}" if text.isidentifier() else "")


def _as_list(text: str, choices: Sequence[str]) -> list[str]:
    """Return the list that somebody wrote as text, with the nearest choices. Empty if a word has none."""
    if not choices:
        return [text] if text else []
    words = [near(word.strip(), choices, most=1) for word in text.split(",")]
    return [word[0] for word in words] if all(words) else []


def _unknown(place: Path, value: object) -> tuple[str, str]:
    key, section = str(place[-1]), ".".join(str(part) for part in place[:-1])
    where = f" in {section}" if section else ""
    # A variable that is not indented below env: is here, too.
    message = f"there is no setting '{variable_name(key)}'{where}"
    if not section and key.lower() in _INSTEAD:
        return message, _INSTEAD[key.lower()]
    if not section and "." in key:
        hint = _nested(key, value)
        if hint is not None:
            return message, hint
    known = keys_of(section)
    ideas = [key.lower()] if key.lower() in known else list(near(key, known, most=1))
    for setting in settings().values():
        if setting.key == key.lower() and setting.section != section:
            ideas.append(f"{setting.key} below {setting.section}:" if setting.section else f"{setting.key} {_AT_TOP}")
    if ideas:
        return message, f"did you mean {listed(ideas)}?"
    return message, f"known settings: {', '.join(known)}"


def _nested(key: str, value: object) -> str | None:
    """Return how to write a key such as ssh.port. None if no section has such a setting."""
    dotted = {path: setting for path, setting in settings().items() if setting.section}
    setting = dotted.get(key.lower())
    if setting is None:
        similar = near(key, dotted, most=1)
        return f"did you mean {dotted[similar[0]].key} below {dotted[similar[0]].section}:?" if similar else None
    text = as_yaml(setting.example if value is None else value)
    return f"write it on two lines:\n{setting.section}:\n  {setting.key}: {plain(text)}"


def _hint(setting: Setting, sample: str) -> str:
    if setting.wants == "text":
        return f"write, for example: {sample}"
    if setting.choices:
        return f"write one of these, such as {sample}"
    return f"write {setting.wants}, such as {sample}"


def _text_at(place: Path, value: object, document: Document) -> str:
    """Return a value for a message. Those of variables may be secrets: return other words for them."""
    written = document.written.get(place)
    if place[0] == "env" and not isinstance(value, bool):
        return written if written and isinstance(value, list | dict) else "this value"
    return written or shown(_text(value))


def _without_assignments(text: str) -> str:
    """Return a command in quotes without what follows its first NAME=, which may be a secret."""
    before, equals, _ = text.partition("=")
    return f"{before}=…'" if equals else text


def _text(value: object) -> str:
    try:
        return as_text(value)
    except (TypeError, ValueError):
        return repr(value)


def _sample(setting: Setting, source: str) -> str:
    example = as_text(setting.example)
    return f"{source} {example}" if source.startswith("-") else f"{source}={example}"


def _cut(text: str) -> str:
    one_line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in without_logins(text))
    return one_line if len(one_line) <= _LONGEST else one_line[: _LONGEST - 1] + "…"
