"""A bug in kit, kept in a file of the user's: nobody is shown a traceback, and whoever mends it needs one."""

from __future__ import annotations

import os
import platform
import re
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

import kit

_VALUE = re.compile(r"^(-x)?([A-Za-z_][A-Za-z0-9_]*)=.*", re.DOTALL)


def write(error: BaseException, words: Sequence[str], environ: Mapping[str, str]) -> Path | None:
    """Write the details, readable by the user alone; the file's path, or None when no folder takes it.

    Values of variables on the command line are left out: they may be passwords.
    """
    told = [_VALUE.sub(r"\1\2=…", word) for word in words]
    text = (
        f"kit {kit.__version__}, Python {platform.python_version()}, {platform.platform()}\n"
        f"words: {told!r}\n\n{''.join(traceback.format_exception(error))}"
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
    """The user's cache, and where that cannot be written to, the machine's temporary folder."""
    cache = environ.get("XDG_CACHE_HOME") or (environ["HOME"] + "/.cache" if environ.get("HOME") else None)
    return [*([Path(cache, "kit")] if cache else []), Path(tempfile.gettempdir())]
