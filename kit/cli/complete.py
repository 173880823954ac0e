"""Completion: the words that may come next on a command line, and the scripts that bring them to the shells.

The shells' scripts call `kit __complete SHELL WORD…`, where the last word is the one under the cursor. It prints a
candidate a line, with a tab and a description behind it, or `:files` or `:folders` for the shell to complete a path.
It contacts no host, and never fails: without an answer it prints nothing.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kit.cli import candidates
from kit.cli.verbs.options import GLOBAL, HELP
from kit.cli.verbs.table import VERBS
from kit.cli.walk import Walk
from kit.config.paths import HOSTS_VARIABLE, environ_of_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kit.cli.verbs.grammar import Operand, Option

HIDDEN = "__complete"
SHELLS = ("bash", "zsh", "fish")

# A word that a shell or a terminal could take for something else is not offered.
_PLAIN = re.compile(r"[\w@%+=:,./\[\]-]+")
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})", re.ASCII)


def script(shell: str) -> str:
    """Return the script that makes this shell complete kit's words."""
    return (Path(__file__).parent / "completion" / f"kit.{shell}").read_text(encoding="utf-8").rstrip("\n")


def answer(shell: str, words: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return what `kit __complete` prints for these words; '' if nothing fits."""
    try:
        lines = list(_lines(shell, _joined(words), environ))
    except Exception:  # a shell that waits for a Tab can use no error
        return ""
    return "\n".join(lines)


def _lines(shell: str, words: Sequence[str], environ: Mapping[str, str]) -> Iterator[str]:
    *before, text = words or [""]
    text = _unquoted(text)
    if shell != "fish":  # which has taken the quotes off these
        before = [_unquoted(word) for word in before]
    walk = Walk()
    for word in before:
        walk.word(word)
    flag, equals, value = text.partition("=")
    if walk.command is not None:
        yield from candidates.FILES
    elif walk.pending is not None:
        yield from _values(walk.pending[0], text, walk, environ)
    elif equals and flag in walk.flags:
        # bash breaks words at =, and replaces what is behind it; the others replace the whole word.
        lead = "" if shell == "bash" else f"{flag}="
        for line in _values(walk.flags[flag], value, walk, environ):
            yield line if line in (*candidates.FILES, *candidates.FOLDERS) else f"{lead}{line}"
    elif text.startswith("-"):
        yield from _flags(text, walk)
    else:
        yield from _words(text, walk, environ)


def _unquoted(word: str) -> str:
    """Return a word without its quotes and backslashes. The quote around the last word may still be open."""
    if not any(mark in word for mark in "'\"\\"):
        return word
    import shlex  # noqa: PLC0415  (few words have quotes)

    for end in ("", "'", '"'):
        with suppress(ValueError):
            return "".join(shlex.split(word + end))
    return word


def _joined(words: Sequence[str]) -> list[str]:
    """Join --flag, = and VALUE, which an older script of ours for bash left apart."""
    joined: list[str] = []
    for word in words:
        if joined and joined[-1].startswith("--") and (word == "=" or joined[-1].endswith("=")):
            joined[-1] += word
        else:
            joined.append(word)
    return joined


def _flags(text: str, walk: Walk) -> Iterator[str]:
    options = (*(walk.verb.options if walk.verb else ()), *GLOBAL, HELP)
    for option in options:
        for flag in option.flags:
            if flag.startswith(text) and walk.flags[flag] is option:
                yield f"{flag}\t{option.help}"


def _words(text: str, walk: Walk, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the next word of a verb, then the values of the operand at this place."""
    offered: dict[str, str] = {}
    for verb in VERBS:
        words = verb.words[len(walk.path) :]
        if verb.words[: len(walk.path)] == walk.path and words and not walk.operands:
            offered.setdefault(words[0], verb.purpose if len(words) == 1 else f"kit {words[0]} …")
    yield from (f"{word}\t{purpose}" for word, purpose in offered.items() if word.startswith(text))
    operands = walk.verb.operands if walk.verb is not None else ()
    if len(walk.operands) < len(operands) or (operands and operands[-1].many):
        yield from _values(operands[min(len(walk.operands), len(operands) - 1)], text, walk, environ)
    elif walk.verb is not None and walk.verb.command == "rest":
        yield from candidates.FILES


def _values(part: Option | Operand, text: str, walk: Walk, environ: Mapping[str, str]) -> Iterator[str]:
    values = part.choices or (part.complete(_place(text, walk, environ)) if part.complete else ())
    for value in values:
        if value in (*candidates.FILES, *candidates.FOLDERS) or (value.startswith(text) and _PLAIN.fullmatch(value)):
            yield value


def _place(text: str, walk: Walk, environ: Mapping[str, str]) -> candidates.Place:
    given = {option.dest: _expanded(value or "", environ) for option, value in walk.given}
    folder = Path(given.get("folder") or ".").expanduser()
    environ = environ_of_files(given.get("folder"), environ)
    named = given.get("hosts_file") or environ.get(HOSTS_VARIABLE)
    hosts_file = Path(named).expanduser() if named else folder / "hosts"
    config_file = given.get("config_file")
    return candidates.Place(text=text, folder=folder, hosts_file=hosts_file, environ=environ, config_file=config_file)


def _expanded(path: str, environ: Mapping[str, str]) -> str:
    """Return a path with the values of variables, as the shell will read $HOME/vms."""
    return _VARIABLE.sub(lambda match: environ.get(match[1] or match[2], ""), path)
