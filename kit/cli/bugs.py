"""A bug in kit, written to a file: users see no traceback, and the person who fixes the bug needs one."""

from __future__ import annotations

import os
import platform
import re
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

import kit
from kit.remote.machine.cache import cache

_VALUE = re.compile(r"^(-x)?([A-Za-z_][A-Za-z0-9_]*)=.*", re.DOTALL)


def write(error: BaseException, words: Sequence[str], environ: Mapping[str, str]) -> Path | None:
    """Write the details to a file that only you can read. Return its path, or None if no folder can be written.

    The values of variables on the command line are left out: they may be passwords.
    """
    shown = [_VALUE.sub(r"\1\2=…", word) for word in words]
    text = (
        f"kit {kit.__version__}, Python {platform.python_version()}, {platform.platform()}\n"
        f"words: {shown!r}\n\n{''.join(traceback.format_exception(error))}"
    )
    for folder in _folders(environ):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(prefix="kit-bug-", suffix=".txt", dir=folder)
            with os.fdopen(handle, "w", errors="backslashreplace") as file:
                file.write(text)
        except OSError:
            continue
        return Path(name)
    return None


def _folders(environ: Mapping[str, str]) -> list[Path]:
    """Return your cache, then the machine's temporary folder for when the cache cannot be written."""
    own = cache(environ)
    return [*([own] if own else []), Path(tempfile.gettempdir())]
