"""What an engine reports while it builds, pulls or pushes. The engine may be that of a host that somebody broke into.

Progress that does not fit counts as none, because engines differ. An event that is no object is an OddAnswer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kit.model.answer import MOST, OddAnswer

# The longest text of an event that goes into a message.
MOST_TEXT = 4000


def events(messages: Iterable[object]) -> Iterator[Mapping[str, Any]]:
    """Yield the events of a stream. Raises OddAnswer."""
    for message in messages:
        if not isinstance(message, dict):
            raise OddAnswer("an event is no object", repr(message)[:100])
        yield message


def failure(event: Mapping[str, Any]) -> str | None:
    """Return the error that an event reports, or None."""
    return str(event["error"])[:MOST_TEXT].strip() if "error" in event else None


def text(event: Mapping[str, Any], key: str) -> str:
    """Return a text of an event, or '' without one."""
    value = event.get(key)
    return value if isinstance(value, str) else ""


def part(event: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return an object in an event, or an empty one."""
    value = event.get(key)
    return value if isinstance(value, dict) else {}


def count(event: Mapping[str, Any], key: str) -> int | None:
    """Return a number of bytes in an event, or None without one."""
    value = event.get(key)
    return value if type(value) is int and 0 <= value <= MOST else None
