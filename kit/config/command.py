"""Checks a command that a user typed: words that only a shell understands are no command."""

from __future__ import annotations

import re
import shlex
from collections.abc import Container, Sequence

from kit.config.words import shown
from kit.errors import InputError

_LONGEST = 200
# No shell reads the words of a command, so these have no meaning there.
_FOR_A_SHELL = re.compile(r"[|&;<>$`*]")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=", re.ASCII)


def check_command(words: Sequence[str], *, verb: str, in_shell: bool = False) -> None:
    """Raise InputError for a command that names no program: "", "a && b" in one word, or A=1 before the program.

    `verb` is what comes before the command: kit run. `in_shell`: the login shell of a VM reads the words.
    """
    if words and not words[0]:
        raise InputError(
            "the name of the program is an empty word",
            hint="if it is a variable of your shell, set it; a word after -- begins the command",
        )
    assignment = _ASSIGNMENT.match(words[0]) if len(words) > 1 and not in_shell else None
    if assignment:
        raise InputError(
            f"{assignment[0]}… would be the name of a program, because no shell reads the command",
            hint=f"write env before it: {verb} -- env {assignment[0]}…",
        )
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
