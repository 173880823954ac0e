"""Who runs kit, for others to read: in the lock, the audit and the records of runs."""

from __future__ import annotations

import getpass
import os


def operator() -> str:
    """user@machine, in one printable word."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        user = str(os.getuid())
    return "".join(c for c in f"{user}@{os.uname().nodename}" if c.isprintable() and not c.isspace())
