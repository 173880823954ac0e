"""A bug in kit, written to a file: users see no traceback, and the person who fixes the bug needs one.

You may send this file to somebody. So it has no words of your command, no value of a variable, and no login of a URL,
neither on the command line nor in the exceptions' messages.
"""

from __future__ import annotations

import os
import platform
import re
import tempfile
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import kit
from kit.remote.machine.cache import cache, make

_HIDDEN = "…"
# NAME=VALUE and --name=VALUE, also behind the letter of an option (-xNAME=VALUE).
_ASSIGNMENT = re.compile(r"(?P<name>-*[A-Za-z_][\w.-]*=).+", re.DOTALL)
_LOGIN = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)[^/\s@]*(?:@[^/\s@]*)*@")
_QUERY = re.compile(r"(://[^\s?#]*\?)[^\s#'\"]+")
# What software prints of a secret: password=x, "token": "x", --api-key x, Authorization: Basic x.
_SECRET = re.compile(
    r"((?:pass(?:word|wd|phrase)?|secret|token|credentials?|api[_-]?key|access[_-]?key|authorization)['\"]?"
    r"(?:\s*[=:]\s*|\s+)(?:(?:basic|bearer)\s+)?)(?:'[^']*'|\"[^\"]*\"|[^\s,;)'\"]+)",
    re.IGNORECASE,
)
_SECRET_NAME = re.compile(r"PASS|SECRET|TOKEN|KEY|CRED|AUTH|LOGIN", re.IGNORECASE)
# Shorter values and words are in every text. A short password is not, so its limit is lower.
_SHORTEST, _SHORTEST_SECRET = 6, 3


def write(error: BaseException, words: Sequence[str], environ: Mapping[str, str]) -> Path | None:
    """Write the details to a file that only you can read. Return its path, or None if no folder can be written."""
    text = (
        f"kit {kit.__version__}, Python {platform.python_version()}, {platform.platform()}\n"
        f"words: {shown(words)!r}\n\n{''.join(_traceback(error, words, environ))}"
    )
    for folder in _folders(environ):
        try:
            make(folder)
            handle, name = tempfile.mkstemp(prefix="kit-bug-", suffix=".txt", dir=folder)
            with os.fdopen(handle, "w", errors="backslashreplace") as file:
                file.write(text)
        except OSError:
            continue
        return Path(name)
    return None


def shown(words: Sequence[str]) -> list[str]:
    """Return kit's own words without values that may be secret, and the number of the others."""
    own = _own(words)
    count = len(words) - len(own)
    return [*map(_shown, own), *([f"({count} more words)"] if count else [])]


def _own(words: Sequence[str]) -> Sequence[str]:
    """Return kit's own words. If they cannot be read, return only those before the first option."""
    from kit.cli.walk import Walk  # noqa: PLC0415  (slow to import, and only needed here)

    try:
        command = Walk().words(words).command or ()
    except Exception:  # the bug may be there
        first = next((n for n, word in enumerate(words) if word.startswith("-")), len(words))
        return words[: min(first, 2)]
    return words[: len(words) - len(command)]


def _shown(word: str) -> str:
    if match := _ASSIGNMENT.fullmatch(word):
        return match["name"] + _HIDDEN
    return _without_logins(word)


def _without_logins(text: str) -> str:
    """Return the text without the logins and the queries of URLs."""
    return _QUERY.sub(rf"\g<1>{_HIDDEN}", _LOGIN.sub(rf"\g<1>{_HIDDEN}@", text))


def _traceback(error: BaseException, words: Sequence[str], environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of the code unchanged, and the messages without values, for the error and what led to it."""
    hidden = dict(_values(words, environ))
    for one in _chain(error):
        yield from ["Traceback (most recent call last):\n", *traceback.format_tb(one.__traceback__)]
        message = "".join(traceback.format_exception_only(one))
        for value in sorted(hidden, key=len, reverse=True):
            message = message.replace(value, hidden[value])
        yield _SECRET.sub(rf"\g<1>{_HIDDEN}", _without_logins(message)) + "\n"


def _chain(error: BaseException) -> list[BaseException]:
    """Return the errors that led to this one, the first of them first, and the error itself."""
    chain: list[BaseException] = []
    one: BaseException | None = error
    while one is not None and not any(one is known for known in chain):
        chain.append(one)
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
    return chain[::-1]


def _values(words: Sequence[str], environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each value that no message may have, and what to write instead."""
    for name, value in environ.items():
        if len(value) >= (_SHORTEST_SECRET if _SECRET_NAME.search(name) else _SHORTEST):
            yield value, f"${name}"
    for word in words[len(_own(words)) :]:
        if len(word) >= _SHORTEST:
            yield word, _HIDDEN
    for word in words:
        value = word.partition("=")[2]
        if len(value) >= _SHORTEST_SECRET:
            yield value, _HIDDEN


def _folders(environ: Mapping[str, str]) -> list[Path]:
    """Return your cache, then the machine's temporary folder for when the cache cannot be written."""
    own = cache(environ)
    return [*([own] if own else []), Path(tempfile.gettempdir())]
