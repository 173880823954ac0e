"""Puts settings into the text of a kit.yaml, as lines of their own, and leaves every other byte as a person wrote it.

Not by a YAML library: to kit every plain word is text (010, 1.10), and a library would write its own idea of it. What
comes out is read again, and must say what it said before and the new settings, or it is refused.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kit.config.fields import as_yaml
from kit.config.yaml import load_spec, read
from kit.errors import InputError

# The line before a setting that kit tune wrote, and may write anew; what has none of it is a person's.
MARK = "# kit tune: "
_MORE = "#   "
_WIDTH = 116


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """`section.key`, its value and the reason that stands before it; with '' for a section a key at the top."""

    section: str
    key: str
    value: str
    reason: str


def tuned(text: str) -> frozenset[str]:
    """The places (env.OMP_NUM_THREADS, network) that kit tune wrote, and nobody took its line away from."""
    lines = text.splitlines()
    found = set()
    section = ""
    for number, line in enumerate(lines):
        if top := re.match(r"([A-Za-z_]+)\s*:", line):
            section = top[1]
            if _comment(lines, number) < number:
                found.add(section)
        elif (inner := re.match(r"\s+([A-Za-z_][A-Za-z0-9_]*)\s*:", line)) and _comment(lines, number) < number:
            found.add(f"{section}.{inner[1]}")
    return frozenset(found)


def value_of(text: str, path: str, *, source: str) -> object:
    """What the text has at the place, None for nothing. Raises InputErrors where it is no YAML."""
    section, _, key = path.rpartition(".")
    data = read(text, source=source).data
    inside = data.get(section) if section else data
    return inside.get(key) if isinstance(inside, Mapping) else None


def edited(text: str, entries: Sequence[Entry], *, source: str) -> str:
    """The text with the entries in it. Raises InputError where the file is written in a way that this cannot add to."""
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = text.replace("\r\n", "\n").split("\n")
    if lines[-1] == "":
        lines.pop()
    # From the last to the first: each is put at the top of its section.
    for entry in reversed(entries):
        _put(lines, entry, source)
    changed = newline.join(lines) + newline if lines else ""
    _check(text, changed, entries, source)
    return changed


def _put(lines: list[str], entry: Entry, source: str) -> None:
    if entry.section:
        _put_inside(lines, entry, source)
    elif not _put_over(lines, entry, 0, len(lines), ""):
        lines += ["", *_words(entry, "")] if lines and lines[-1].strip() else _words(entry, "")


def _put_inside(lines: list[str], entry: Entry, source: str) -> None:
    """At the top of its section, which is made at the end where there is none."""
    top = next((n for n, line in enumerate(lines) if re.match(rf"{entry.section}\s*:", line)), None)
    if top is None:
        lines += [""] if lines and lines[-1].strip() else []
        lines.append(f"{entry.section}:")
        top = len(lines) - 1
    rest = re.sub(r"(^|\s)#.*", "", lines[top].partition(":")[2]).strip()
    if rest in ("{}", "null", "~"):
        lines[top] = f"{entry.section}:"
    elif rest:
        raise InputError(
            f"{entry.section} is written on one line, and kit tune adds lines only",
            hint=f"write it as lines, {entry.section}: and below it KEY: VALUE, and tune again",
            file=source,
            line=top + 1,
        )
    end = next((n for n in range(top + 1, len(lines)) if re.match(r"[^\s#]", lines[n])), len(lines))
    inner = [line for line in lines[top + 1 : end] if line.strip() and not line.lstrip().startswith("#")]
    indent = re.match(r"\s*", inner[0])[0] if inner else "  "  # type: ignore[index]
    if not _put_over(lines, entry, top + 1, end, indent):
        lines[top + 1 : top + 1] = _words(entry, indent)


def _put_over(lines: list[str], entry: Entry, start: int, end: int, indent: str) -> bool:
    """In the place of what the key has between `start` and `end`; False where it does not stand there."""
    at = next((n for n in range(start, end) if re.match(rf"{indent}{entry.key}\s*:", lines[n])), None)
    if at is None:
        return False
    after = at + 1
    while after < end and re.match(rf"{indent}(\s|- )\s*[^\s#]", lines[after]):
        after += 1
    lines[_comment(lines, at) : after] = _words(entry, indent)
    return True


def _words(entry: Entry, indent: str) -> list[str]:
    """The reason as a comment, and the setting."""
    reason = textwrap.wrap(f"{MARK}{entry.reason}", _WIDTH, subsequent_indent=_MORE, break_on_hyphens=False)
    return [indent + line for line in reason] + [f"{indent}{entry.key}: {as_yaml(entry.value)}"]


def _comment(lines: Sequence[str], number: int) -> int:
    """Where kit tune's own comment on the line begins; the line itself where it has none."""
    first = number
    while first and lines[first - 1].lstrip().startswith(_MORE):
        first -= 1
    return first - 1 if first and lines[first - 1].lstrip().startswith(MARK) else number


def _check(before: str, after: str, entries: Sequence[Entry], source: str) -> None:
    """It must mean what it meant, with the entries; and be a kit.yaml."""
    wanted = {name: dict(v) if isinstance(v, dict) else v for name, v in read(before, source=source).data.items()}
    for entry in entries:
        if not entry.section:
            wanted[entry.key] = entry.value
            continue
        section = wanted.get(entry.section) or {}
        wanted[entry.section] = {**section, entry.key: entry.value} if isinstance(section, dict) else section
    found = read(after, source=source).data
    if found != wanted:
        told = ", ".join(f"{entry.section}.{entry.key}".lstrip(".") + f": {entry.value}" for entry in entries)
        raise InputError("kit tune cannot add to this file safely", hint=f"add by hand: {told}", file=source)
    load_spec(after, source=source)
