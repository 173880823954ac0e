"""Decodes what another machine answers: limited in size, checked against a type, and if odd, an error of that host.

An answer comes from a VM, an engine, a registry or a container. None of them is trusted: a value that does not fit its
type must not end kit, and its text must not reach a terminal as it came.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, overload

from kit.errors import AnswerError, NotReadyError

T = TypeVar("T")

# The largest answer of a protocol that names no limit, in bytes.
MOST_BYTES = 16 * 2**20
# The largest number: what a 64-bit kernel or engine counts, and JSON can hold exactly.
MOST = 2**53
# How many bytes of an odd answer a message shows.
_SHOWN = 60
# How long a decoder's own message may be, in characters.
_MESSAGE = 200
# The escapes of JSON, with both halves of a pair as one.
_ESCAPE = rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[dD][89a-fA-F][0-9a-fA-F]{2}|.)"
# The length of the escape of one half.
_HALF = 6
# The forms whose fields msgspec has read, and the lock to read others.
_ready: set[Any] = set()
_preparing = threading.Lock()


class OddAnswer(ValueError):
    """An answer, or a part of one, that does not fit. The text says what is odd and how the answer begins, escaped."""

    def __init__(self, what: str, answer: bytes | str = b"") -> None:
        # A decoder's own message may quote the answer.
        super().__init__(f"{_escaped(what)}: {beginning(answer)}" if answer else _escaped(what))


def decode(answer: bytes | str, form: type[T] | Any, *, most: int = MOST_BYTES) -> T:
    """Return one JSON value as `form`: a dataclass, a msgspec.Struct, or types such as dict[str, int].

    Numbers and text are not converted into each other, and unknown keys are ignored. `most` is in bytes.

    Raises OddAnswer.
    """
    import msgspec  # noqa: PLC0415  (scripts/gpu-check uses this module where msgspec is missing)

    if len(answer) > most:
        raise OddAnswer(f"it has more than {most} bytes", answer)
    _prepare(form)
    try:
        value: T = msgspec.json.decode(whole(answer), type=form)
    except RecursionError:
        raise OddAnswer("it is nested too deeply", answer) from None
    except (msgspec.MsgspecError, ValueError) as error:
        raise OddAnswer(str(error), answer) from None
    return value


def whole(answer: bytes | str) -> bytes | str:
    """Return a JSON text that msgspec reads: with a backslash before each escape that is half of a surrogate pair.

    Python writes these for the bytes of names and words that are not UTF-8. Only their text is shown.
    """
    data = answer.encode() if isinstance(answer, str) else answer
    if b"\\ud" not in data:
        return answer
    import re  # noqa: PLC0415  (few answers need it)

    return re.sub(_ESCAPE, lambda match: b"\\" * (len(match[0]) == _HALF) + match[0], data)


@overload
def convert(value: object, form: type[T]) -> T: ...
@overload
def convert(value: object, form: Any) -> Any: ...
def convert(value: object, form: Any) -> Any:
    """Return a decoded JSON value as `form`, by the rules of `decode`. Raises OddAnswer."""
    import msgspec  # noqa: PLC0415  (as in decode)

    _prepare(form)
    try:
        return msgspec.convert(value, type=form)
    except RecursionError:
        raise OddAnswer("it is nested too deeply") from None
    except (msgspec.MsgspecError, ValueError, OverflowError) as error:
        raise OddAnswer(str(error)) from None


def _prepare(form: Any) -> None:
    """Let msgspec read a form's fields, in one thread at a time.

    msgspec puts what it reads on the class before all is there. Another thread that uses it then crashes the process.
    """
    if form in _ready:
        return
    import msgspec  # noqa: PLC0415  (as in decode)

    with _preparing:
        msgspec.json.Decoder(form)
        _ready.add(form)


def within(value: float, least: float, most: float, what: str) -> None:
    """Raise OddAnswer if a number is not between these limits. `what` names it in the message."""
    if not least <= value <= most:
        raise OddAnswer(f"{what} is not between {least} and {most}")


def number(word: str, *, least: int = 0, most: int = MOST) -> int:
    """Return a decimal number of ASCII digits. Raises OddAnswer for anything else, and outside the limits."""
    digits = word.removeprefix("-") if least < 0 else word
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 20):
        raise OddAnswer("it is not a number", word)
    value = int(word)
    if not least <= value <= most:
        raise OddAnswer(f"the number is not between {least} and {most}", word)
    return value


def other_version(message: str, theirs: object, ours: int, *, host: str | None = None) -> NotReadyError:
    """Return the error for a part of the cluster whose version is not this kit's. `message` is for an older one."""
    if isinstance(theirs, int) and theirs > ours:
        return NotReadyError("a newer kit deployed the cluster", hint="update kit on this machine", host=host)
    return NotReadyError(message, hint="run: kit deploy", host=host)


def beginning(answer: bytes | str) -> str:
    """Return the first bytes of an answer in quotes, with everything escaped that a terminal could act on."""
    cut = answer[:_SHOWN]
    text = cut if isinstance(cut, str) else cut.decode("utf-8", "backslashreplace")
    return f"'{_escaped(text)}'{'…' if len(answer) > _SHOWN else ''}"


def _escaped(text: str) -> str:
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text[:_MESSAGE])


@contextmanager
def answer_of(host: str, what: str) -> Iterator[None]:
    """Turn an OddAnswer inside into that host's AnswerError. `what` names the answer: "its list of runs"."""
    try:
        yield
    except OddAnswer as odd:
        raise AnswerError(
            f"kit cannot read {what}: {odd}",
            hint=f"another program may answer there, or another version of one; look: kit ssh {host}",
            host=host,
        ) from None
