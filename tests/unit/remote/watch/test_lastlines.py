"""The last lines of ranks whose numbers change: resets of an elastic run."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from kit.remote.run.door import Door
from kit.remote.watch.lastlines import LastLines

LONG_S = 60.0


def record(rank: str, kind: str, body: bytes) -> bytes:
    return b"\x1e1795472731087 %s %s . %d\n" % (rank.encode(), kind.encode(), len(body)) + body


def out(rank: int, text: str) -> bytes:
    return record(str(rank), "o", f"{text}\n".encode())


def event(name: str, **fields: Any) -> bytes:
    return record("-", "k", json.dumps({"event": name, **fields}).encode())


class Log:
    """A door that sends this log of a run that has ended."""

    host = "gpu1"

    def __init__(self, *records: bytes) -> None:
        self._data: list[bytes | None] = [b"".join(records), event("ended")]

    def read(self, _within_s: float) -> bytes | None:
        return self._data.pop(0)

    def close(self, *, ended: bool = False) -> None:
        assert ended


FORMED = event("formed", hosts=[["gpu1", 1], ["gpu2", 1]], np=2)
RESET = event("reset", hosts=[["gpu2", 1]], np=1)
OLD, NEW = [out(0, "old 0"), out(1, "old 1")], [out(0, "was rank 1")]


@pytest.mark.parametrize(
    ("records", "renumbered", "expected"),
    [
        ([FORMED, *OLD], False, {0: "old 0", 1: "old 1"}),
        ([FORMED, *OLD, RESET], False, {}),
        ([FORMED, *OLD, RESET, *NEW], False, {}),
        ([*NEW], True, {}),
        ([*NEW], False, {0: "was rank 1"}),
        ([FORMED, RESET, *NEW, FORMED, *OLD], False, {0: "old 0", 1: "old 1"}),
        ([*NEW, FORMED, *OLD], True, {0: "old 0", 1: "old 1"}),
    ],
    ids=["no reset", "reset", "later lines", "before what is read", "not elastic", "retry", "retry after a reset"],
)
def test_no_rank_has_the_line_of_another_one(records: list[bytes], renumbered: bool, expected: dict[int, str]) -> None:
    door = cast("Door", Log(*records))
    with LastLines(door, lambda: door, renumbered=renumbered) as lines:
        assert lines.wait(LONG_S)
        assert lines.ended
        assert lines.now() == expected
