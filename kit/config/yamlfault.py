"""What YAML's own parser says when it cannot read a file, in plain sentences."""

from __future__ import annotations

import yaml
from yaml.reader import ReaderError

_QUOTE_IT = "put the value in quotes if it holds a ':', '#' or begins with a sign"
# What the parser's words contain → what is wrong, what to write. The first that fits is told.
_SENTENCES = (
    (
        "mapping values are not allowed",
        "there is a second ': ' on this line, or the line above is indented less",
        "write one KEY: VALUE a line, and put a value that holds ': ' in quotes",
    ),
    ("could not find expected ':'", "a key has no ':' behind it", "write KEY: VALUE, with a blank after the colon"),
    ("end of stream", "a quote is opened here and never closed", "close the quote"),
    ("document indicator", "a quote is opened here and never closed", "close the quote"),
    ("expected ',' or ']'", "a list that begins with [ is not closed", "close it: [tensorflow, mxnet]"),
    ("expected ',' or '}'", "a group that begins with { is not closed", "close it, or write KEY: VALUE lines"),
    (
        "did not find expected key",
        "this line does not fit those above it",
        "indent the keys of one section alike, and close every quote",
    ),
    (
        "expected <block end>",
        "this line does not fit those above it",
        "indent the keys of one section alike, and close every quote",
    ),
    ("expected '-' indicator", "this line is not an item like those above it", "begin each item of a list with '- '"),
    ("block sequence entries", "a '- ' may not stand here", "put the list on lines of its own, below the key"),
    ("expected node content", "a value is missing here", "write one, or close the list: [tensorflow, mxnet]"),
    ("escape", "a backslash in double quotes begins nothing that YAML knows", "use single quotes, or write \\\\"),
    ("tag", "a word that begins with ! is not taken here", "put it in quotes"),
    ("anchor or alias", "& and * have a meaning of their own in YAML", "put the value in quotes"),
    ("expected alphabetic", "& and * have a meaning of their own in YAML", "put the value in quotes"),
    ("block scalar", "after | or > the text begins on the next line", "put the text on the next line, indented"),
    ("directive", "a line that begins with % has a meaning of its own in YAML", "put the value in quotes"),
)
# Those of them that are found late, at the end of what was begun.
_BEGUN_EARLIER = (
    "could not find expected ':'",
    "end of stream",
    "document indicator",
    "expected ',' or ']'",
    "expected ',' or '}'",
)


def fault_of(error: Exception, text: str) -> tuple[int, str, str]:
    """Where (an index into the text), what is wrong, and what to write."""
    if isinstance(error, ReaderError):
        return _unprintable(text)
    if not isinstance(error, yaml.MarkedYAMLError):
        return 0, "this is not YAML that kit can read", "begin again from the kit.yaml of `kit init`"
    mark = error.problem_mark or error.context_mark
    index = mark.index if mark is not None else 0
    if _tab_before(text, index):
        return index, "a tab stands where YAML takes blanks only", "indent with blanks, two for each step"
    problem = error.problem or ""
    if "cannot start any token" in problem and index < len(text):
        return index, f"a value may not begin with {text[index]!r}", "put the value in quotes"
    for words, message, hint in _SENTENCES:
        if words in problem:
            # What was begun and not ended is mended where it began.
            opened = error.context_mark if words in _BEGUN_EARLIER else None
            return (opened.index if opened is not None else index), message, hint
    return index, f"YAML cannot read this line: {problem}", _QUOTE_IT


def _tab_before(text: str, index: int) -> bool:
    line = text[text.rfind("\n", 0, index) + 1 : index + 1]
    indent = line[: len(line) - len(line.lstrip())]
    return "\t" in indent


def _unprintable(text: str) -> tuple[int, str, str]:
    index = next((i for i, c in enumerate(text) if not c.isprintable() and c not in "\t\n\x85\u2028\u2029"), 0)
    code = ord(text[index]) if text else 0
    return index, f"the character U+{code:04X} may not stand in YAML", "take it out, or is this the right file?"
