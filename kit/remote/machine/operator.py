"""The name of the person who runs kit, for the lock, the audit and the records of runs."""

from __future__ import annotations

import getpass
import os


def operator() -> str:
    """Return user@machine as one printable word."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        user = str(os.getuid())
    return "".join(c for c in f"{user}@{os.uname().nodename}" if c.isprintable() and not c.isspace())
