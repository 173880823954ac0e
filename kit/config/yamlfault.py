"""Translates the errors of the YAML parser into plain sentences."""

from __future__ import annotations

from collections.abc import Collection

import yaml
from yaml.reader import ReaderError

from kit.config.fields import keys_of, settings
from kit.config.words import spaced

NO_SPACE = "there is no space after the colon"
_QUOTE_IT = "put the value in quotes if it contains a ':' or '#', or starts with a sign"
# Part of the parser's message → the problem, and what to write. The first match wins.
_SENTENCES = (
    (
        "mapping values are not allowed",
        "there is a second ': ' on this line, or the line above is indented less",
        "write one KEY: VALUE on each line, and put a value that contains ': ' in quotes",
    ),
    ("could not find expected ':'", "a key has no ':' after it", "write KEY: VALUE, with a space after the colon"),
    ("end of stream", "the quote that starts here is never closed", "close the quote"),
    ("document indicator", "the quote that starts here is never closed", "close the quote"),
    ("expected ',' or ']'", "a list that starts with [ is not closed", "close it: [tensorflow, mxnet]"),
    ("expected ',' or '}'", "a group that starts with { is not closed", "close it, or write KEY: VALUE lines"),
    (
        "did not find expected key",
        "this line does not fit those above it",
        "indent all keys of a section equally, and close every quote",
    ),
    (
        "expected <block end>",
        "this line does not fit those above it",
        "indent all keys of a section equally, and close every quote",
    ),
    ("expected '-' indicator", "this line is not an item like those above it", "start each item of a list with '- '"),
    ("block sequence entries", "a '- ' is not allowed here", "put the list on separate lines below the key"),
    ("expected node content", "a value is missing here", "write one, or close the list: [tensorflow, mxnet]"),
    ("escape", "YAML does not know this backslash sequence", "use single quotes, or write \\\\"),
    ("tag", "a word that starts with ! is not allowed here", "put it in quotes"),
    ("anchor or alias", "& and * have a special meaning in YAML", "put the value in quotes"),
    ("expected alphabetic", "& and * have a special meaning in YAML", "put the value in quotes"),
    ("block scalar", "after | or > the text starts on the next line", "put the text on the next line, indented"),
    ("directive", "a line that starts with % has a special meaning in YAML", "put the value in quotes"),
)
# The parser notices these at the end of something that started earlier.
_STARTED_EARLIER = (
    "could not find expected ':'",
    "end of stream",
    "document indicator",
    "expected ',' or ']'",
    "expected ',' or '}'",
)
# What the parser may complain of on the line after a key whose colon has no space.
_AFTER_NO_SPACE = (
    "mapping values are not allowed",
    "could not find expected ':'",
    "did not find expected key",
    "did not find expected <document start>",
)


def fault_of(error: Exception, text: str) -> tuple[int, str, str]:
    """Return the index of the problem in the text, the problem, and what to write."""
    if isinstance(error, ReaderError):
        return _unprintable(text)
    if not isinstance(error, yaml.MarkedYAMLError):
        return 0, "this is not YAML that kit can read", "start again from the kit.yaml of `kit init`"
    mark = error.problem_mark or error.context_mark
    index = mark.index if mark is not None else 0
    if _tab_before(text, index):
        return index, "there is a tab where YAML allows spaces only", "indent with spaces, two for each level"
    problem = error.problem or ""
    unspaced = _unspaced(text, index) if any(words in problem for words in _AFTER_NO_SPACE) else None
    indented = _indented(text) if "<document start>" in problem else None
    return unspaced or indented or _sentence(error, problem, text, index)


def _sentence(error: yaml.MarkedYAMLError, problem: str, text: str, index: int) -> tuple[int, str, str]:
    if "cannot start any token" in problem and index < len(text):
        return index, f"a value cannot start with {text[index]!r}", "put the value in quotes"
    for words, message, hint in _SENTENCES:
        if words in problem:
            # Report the place where it started.
            opened = error.context_mark if words in _STARTED_EARLIER else None
            return (opened.index if opened is not None else index), message, hint
    return index, f"YAML cannot read this line: {problem}", _QUOTE_IT


def _unspaced(text: str, index: int) -> tuple[int, str, str] | None:
    """Return the problem of a colon without a space. The parser notices it only on the next line."""
    end = text.find("\n", index)
    lines = text[: len(text) if end < 0 else end].splitlines(keepends=True)
    place = sum(map(len, lines))
    contents = 0
    for line in reversed(lines):
        place -= len(line)
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        right = spaced(line.rstrip("\n"), _keys_there(line, text[:place]))
        if right:
            return place, NO_SPACE, f"write {right}"
        contents += 1
        if contents == 2:
            break
    return None


def _keys_there(line: str, above: str) -> Collection[str]:
    """Return the settings that the line may have: those of the section that it is in."""
    indent = len(line) - len(line.lstrip())
    if not indent:
        return keys_of("")
    for other in reversed(above.splitlines()):
        content = other.strip()
        if content and not content.startswith("#") and len(other) - len(other.lstrip()) < indent:
            section = content.partition("#")[0].rstrip().removesuffix(":")
            return keys_of(section) if section in settings() and settings()[section].is_section else ()
    return ()


def _indented(text: str) -> tuple[int, str, str] | None:
    """Return the problem of a first key with spaces before it. The parser notices it only on a later line."""
    place = 0
    for line in text.splitlines(keepends=True):
        if line.strip() and not line.lstrip().startswith("#") and line.rstrip() != "---":
            if not line.startswith(" "):
                return None
            message = "this line is indented, and a later one is not"
            return place, message, "start each key at the top level without spaces before it"
        place += len(line)
    return None


def _tab_before(text: str, index: int) -> bool:
    line = text[text.rfind("\n", 0, index) + 1 : index + 1]
    indent = line[: len(line) - len(line.lstrip())]
    return "\t" in indent


def _unprintable(text: str) -> tuple[int, str, str]:
    index = next((i for i, c in enumerate(text) if not c.isprintable() and c not in "\t\n\x85\u2028\u2029"), 0)
    code = ord(text[index]) if text else 0
    return index, f"YAML does not allow the character U+{code:04X}", "remove it; or is this the right file?"
