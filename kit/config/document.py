"""A kit.yaml that was read: its values, and the place of each value in the text."""

from __future__ import annotations

from bisect import bisect_left
from functools import cached_property

from msgspec import Struct

from kit.errors import InputError

Path = tuple[str | int, ...]


class Document(Struct, kw_only=True, dict=True):
    """The values of a file, the index of each in `text`, its text as written, and the problems so far."""

    source: str
    text: str
    data: dict[str, object] = {}
    places: dict[Path, int] = {}
    written: dict[Path, str] = {}
    problems: list[InputError] = []

    def line(self, index: int) -> int:
        """Return the 1-based line of an index, at most the last line of the text."""
        last = max(1, len(self._newlines) + (not self.text.endswith("\n")))
        return min(bisect_left(self._newlines, index) + 1, last)

    @cached_property
    def _newlines(self) -> list[int]:
        """The index of each newline: a file may have thousands of problems, and each one needs its line."""
        return [index for index, character in enumerate(self.text) if character == "\n"]

    def line_of(self, path: Path) -> int:
        """Return the line of a value, or of the nearest section around it that the file has."""
        while path and path not in self.places:
            path = path[:-1]
        return self.line(self.places.get(path, 0))

    def add_problem(self, index: int, message: str, hint: str) -> None:
        self.problems.append(InputError(message, hint=hint, file=self.source, line=self.line(index)))
