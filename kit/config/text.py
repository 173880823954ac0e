"""Reads the files that you write, such as hosts and kit.yaml: at most 8 MiB, and never waiting for long."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

from kit.config.words import shown
from kit.errors import InputError

_MOST_BYTES = 8 * 1024 * 1024
# How long a pipe may take to write it all, such as that of kit --hosts <(COMMAND).
_PATIENCE_S = 30.0


class _LateError(Exception):
    """A pipe did not end in time."""


def text_of(path: Path, *, patience_s: float = _PATIENCE_S) -> str | None:
    """Return the text of a file, or None if there is no file. Raises InputError if it is not a readable text file.

    The file may be a pipe, which must end within `patience_s`.
    """
    try:
        content = _content(path, patience_s)
    except FileNotFoundError:
        return None
    except IsADirectoryError:
        raise InputError("this is a folder, not a file", hint="name the file in it", file=str(path)) from None
    except _LateError:
        raise InputError(
            f"is a pipe or a device that did not end within {patience_s:g} s",
            hint="name a file",
            file=str(path),
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "this is not a possible file name"
        raise InputError(
            f"cannot be read: {reason}", hint=f"look at it with: ls -l {shown(str(path))}", file=str(path)
        ) from error
    return decoded(content, source=str(path))


def decoded(content: bytes, *, source: str) -> str:
    """Return the text of a file's bytes. `source` is its path, for messages. Raises InputError."""
    if len(content) > _MOST_BYTES:
        raise InputError(
            f"has more than {_MOST_BYTES >> 20} MiB",
            hint="is this the right file? It should be a short text",
            file=source,
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"is not text in UTF-8: byte 0x{content[error.start]:02x}",
            hint="save it as UTF-8; or is this the right file?",
            file=source,
            line=content.count(b"\n", 0, error.start) + 1,
        ) from error


def _content(path: Path, patience_s: float) -> bytes:
    """Return the bytes of the file, but at most one more than allowed."""
    # Without O_NONBLOCK, opening a named pipe waits for somebody to write into it.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with open(descriptor, "rb", buffering=0) as file:  # noqa: PTH123  (a descriptor)
        is_regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        deadline = time.monotonic() + patience_s
        content = bytearray()
        while len(content) <= _MOST_BYTES:
            if not is_regular:
                _wait(descriptor, deadline)
            data = file.read(_MOST_BYTES + 1 - len(content))
            if data is None:  # another process took what there was
                continue
            if not data:
                break
            content += data
    return bytes(content)


def _wait(descriptor: int, deadline: float) -> None:
    """Wait until a pipe or a device has bytes, or has ended. Raises _LateError at the deadline."""
    import select  # noqa: PLC0415  (files need none)

    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        raise _LateError
