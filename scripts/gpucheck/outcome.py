"""What a part of gpu-check can end with, and what several parts need."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scripts.gpucheck.anonymous import Names

HERE = Path(__file__).parent


class Skipped(Exception):
    """The part cannot run here. The text says what is missing."""


class Failed(Exception):
    """The part ran and failed. The text says how, and `lines` are what it measured."""

    def __init__(self, text: str, lines: Sequence[str] = ()) -> None:
        super().__init__(text)
        self.lines = tuple(lines)


def cleaned(answer: str, names: Names, programs: Sequence[str]) -> str:
    """Return an answer without names. An answer that still has one is not kept."""
    clean = names.replace(answer, programs=programs)
    return "" if names.left(clean) else clean


def shown(value: object) -> str:
    return "?" if value is None else "%g" % value if isinstance(value, float) else str(value)


def last_json(text: str) -> dict[str, Any]:
    """Return the last line that is an object of JSON, or an empty one."""
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            try:
                answer = json.loads(line)
            except ValueError:
                continue
            return answer if isinstance(answer, dict) else {}
    return {}
