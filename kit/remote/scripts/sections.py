"""Starts the sections of a look, each with its mark. kit.remote.scripts puts this before observe.py."""

import os

# A program that does not know the mark cannot start a section. No program that this one starts gets it.
MARK = os.environ.pop("KIT_LOOK", "")


def section(name: str) -> str:
    """Return the line that starts a section."""
    return "@@ %s %s" % (MARK, name) if MARK else "@@ " + name
