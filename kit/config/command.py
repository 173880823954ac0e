"""Checks a command that a user typed: one word that only a shell understands is no command."""

from __future__ import annotations

import re
import shlex
from collections.abc import Container, Sequence

from kit.config.words import shown
from kit.errors import InputError

_LONGEST = 200
# No shell reads the words of a command, so these have no meaning there.
_FOR_A_SHELL = re.compile(r"[|&;<>$`*]")


def check_command(words: Sequence[str], *, verb: str) -> None:
    """Raise InputError if the command is a whole command line in one word, as in kit run "a && b".

    `verb` is what comes before the command: kit run.
    """
    if len(words) != 1 or not re.search(r"[\s|&;<>]", words[0].strip()):
        return
    line = words[0].strip()
    raise InputError(
        f"{shown(line)} is one word, so it would be the name of a program",
        hint=f"write: {verb} -- {_rewritten(line)}",
    )


def flag_among(words: Sequence[str], flags: Container[str]) -> str | None:
    """Return the first argument of the command that is one of kit's own flags, as --np 2 or --np=2, or None."""
    names = (word.partition("=")[0] for word in words[1:])
    return next((name for name in names if name in flags), None)


def _rewritten(line: str) -> str:
    if not line.isprintable() or len(line) > _LONGEST:
        return "sh -c '…'"
    plain_words = not _FOR_A_SHELL.search(line) and "=" not in line.split(maxsplit=1)[0]
    return line if plain_words else f"sh -c {shlex.quote(line)}"
