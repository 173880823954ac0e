"""What a run's record must have: text. Bytes that are not UTF-8 are no text, and JSON cannot carry them."""

from __future__ import annotations

from collections.abc import Sequence

from kit.errors import InputError
from kit.model.launch import RunRequest


def check(request: RunRequest, command: Sequence[str]) -> None:
    """Raise InputError for words that the record of the run shows, and that are not UTF-8."""
    for word in command:
        _check("a word of the command", word, "rename the file; or write the word in a script of the run's code")
    _check("--workdir", request.workdir, "rename the folder")
    for name, _ in request.env:
        _check("the name of a variable", name, "use another name; a value may have any bytes")


def shown(value: object) -> object:
    """Return a value of a record with `\\udce9` in place of each byte that is not UTF-8, such as in a folder's name."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {name: shown(part) for name, part in value.items()}
    return [shown(part) for part in value] if isinstance(value, (list, tuple)) else value


def _check(what: str, word: str, hint: str) -> None:
    if shown(word) != word:
        raise InputError(f"{what} is not UTF-8: {shown(word)}", hint=hint)
