"""The patterns of `.gitignore`, which are those of `.kitignore`, as git reads them: byte by byte.

Of all patterns that fit an entry of a folder, the last one decides about it. A pattern that fits a folder says nothing
about what is in the folder, except that git does not look into a folder that is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec import Struct

# Takes the path of an entry, that of a folder with a slash at its end, and returns whether it is left out.
Ignored = Callable[[bytes], bool]

_BOM = b"\xef\xbb\xbf"
_CLASSES = {
    b"alnum": b"0-9A-Za-z", b"alpha": b"A-Za-z", b"blank": b" \\t", b"cntrl": b"\\x00-\\x1f\\x7f", b"digit": b"0-9",
    b"graph": b"\\x21-\\x7e", b"lower": b"a-z", b"print": b"\\x20-\\x7e", b"punct": b"\\x21-\\x2f:-@\\[-`{-~",
    b"space": b"\\s", b"upper": b"A-Z", b"xdigit": b"0-9A-Fa-f",
}  # fmt: skip
_SPECIAL, _PART_ENDS = re.compile(rb"[*?\[\\]|\Z"), re.compile(rb"\\?/|\Z")
_CLASS = re.compile(rb"\[:([a-z]*):\]")


class _Pattern(Struct, frozen=True, kw_only=True):
    """`matches` tests the name of an entry, or, if `path`, its path. `folder`: only folders fit."""

    matches: Callable[[bytes], object]
    path: bool
    folder: bool
    leaves_out: bool


def ignored(text: bytes) -> Ignored:
    """Return the test of a file with these patterns, a pattern a line. Raises ValueError for an odd line."""
    lines = text.removeprefix(_BOM).split(b"\n")
    patterns = [pattern for line in lines if (pattern := _pattern(line.removesuffix(b"\r")))][::-1]

    def test(path: bytes) -> bool:
        folder = path.endswith(b"/")
        path = path.removesuffix(b"/")
        name = path.rpartition(b"/")[2]
        for pattern in patterns:
            if (folder or not pattern.folder) and pattern.matches(path if pattern.path else name):
                return pattern.leaves_out
        return False

    return test


def _pattern(line: bytes) -> _Pattern | None:
    """Return the pattern of a line, or None if nothing fits it."""
    text = _trimmed(line)
    if not text or text.startswith(b"#"):
        return None
    leaves_out = not text.startswith(b"!")
    words = text if leaves_out else text[1:]
    folder = words.endswith(b"/")
    words = words.removesuffix(b"/")
    if not words:
        if leaves_out:
            # A single slash, which fits nothing.
            return None
        raise ValueError(f"{line.decode(errors='backslashreplace')} has nothing after the !")
    try:
        expression = re.compile(_expression(words.removeprefix(b"/")), re.DOTALL)
    except _NoMatch:
        return None
    return _Pattern(matches=expression.fullmatch, path=b"/" in words, folder=folder, leaves_out=leaves_out)


def _trimmed(line: bytes) -> bytes:
    """Return the line without the spaces at its end, unless a backslash is before them."""
    text = line.rstrip(b" ")
    slashes = len(text) - len(text.rstrip(b"\\"))
    return line[: len(text) + 1] if slashes % 2 else text


class _NoMatch(Exception):
    """No path fits the pattern."""


def _expression(pattern: bytes) -> bytes:
    """Return the regular expression of a pattern. Raises _NoMatch."""
    # What is between stars that go across slashes, each split at its other stars.
    parts: list[list[bytes]] = [[b""]]
    across: list[bytes] = []
    at = 0
    # git compares the letters before the first special one, and then forgets that they were there.
    special = _SPECIAL.search(pattern)
    plain = special.start() if special else len(pattern)
    while at < len(pattern):
        byte = pattern[at : at + 1]
        if byte == b"*":
            end = at
            while pattern[end : end + 1] == b"*":
                end += 1
            # Two stars or more that are all of a part of the path go across slashes.
            begins = at == plain or pattern[at - 1 : at] == b"/"
            if end - at == 1 or not begins or not _PART_ENDS.match(pattern, end):
                parts[-1].append(b"")
            else:
                is_folder = pattern[end : end + 1] == b"/"
                across.append(b"(?:.*?/)??" if is_folder else b".*?")
                parts.append([b""])
                end += is_folder
            at = end
        elif byte == b"[":
            part, at = _bracket(pattern, at + 1)
            parts[-1][-1] += part
        elif byte == b"?":
            parts[-1][-1] += b"[^/]"
            at += 1
        else:
            at += byte == b"\\"
            if at == len(pattern):
                raise _NoMatch
            parts[-1][-1] += re.escape(pattern[at : at + 1])
            at += 1
    return _joined(parts, across)


def _joined(parts: list[list[bytes]], across: list[bytes]) -> bytes:
    """Return the expression of a pattern that was split at its stars.

    The first place where a part fits is as good as any later one, because the next star takes what is left. So only the
    last one is tried again (?>…): a repository could make kit try all combinations, for years.
    """
    out = b""
    for number, (first, *others) in enumerate(parts):
        is_last = number == len(parts) - 1
        text = first + b"".join(b"(?>[^/]*?" + part + b")" for part in (others[:-1] if is_last else others))
        if is_last and others:
            text += b"[^/]*" + others[-1]
        if number:
            text = across[number - 1] + text
        out += text if is_last or not number else b"(?>" + text + b")"
    return out


def _bracket(pattern: bytes, at: int) -> tuple[bytes, int]:
    """Return the expression of what is in brackets from `at` on, and where it ends. Raises _NoMatch."""
    negated = pattern[at : at + 1] in (b"!", b"^")
    at += negated
    start, before = at, b""
    parts: list[bytes] = []
    while at == start or pattern[at : at + 1] != b"]":
        named = _CLASS.match(pattern, at)
        if named:
            if named[1] not in _CLASSES:
                raise _NoMatch
            parts.append(_CLASSES[named[1]])
            at, before = named.end(), b""
        elif pattern[at : at + 1] == b"-" and before and pattern[at + 1 : at + 2] not in (b"", b"]"):
            last, at = _letter(pattern, at + 1)
            if before <= last:
                parts.append(re.escape(before) + b"-" + re.escape(last))
            before = b""
        else:
            before, at = _letter(pattern, at)
            parts.append(re.escape(before))
    inside = b"".join(parts)
    # A slash fits no bracket.
    return b"(?!/)[" + (b"^" if negated else b"") + inside + b"]", at + 1


def _letter(pattern: bytes, at: int) -> tuple[bytes, int]:
    at += pattern[at : at + 1] == b"\\"
    if at >= len(pattern):
        raise _NoMatch
    return pattern[at : at + 1], at + 1
