"""Reads the timeline that one rank of Horovod writes: events of the Trace Event Format, one process for each tensor."""

from __future__ import annotations

from functools import cache
from typing import Any

from msgspec import Struct, field

from kit.model.answer import MOST, OddAnswer, decode, within
from kit.model.text import printable
from kit.model.timeline import Slice, Trace

# The longest file of a rank that kit reads, in bytes.
MOST_BYTES = 256 << 20
_EPOCH = "start_time_since_epoch_in_micros"
# A name in the file of a viewer.
_MOST_NAME = 200


class _Event(Struct, frozen=True, kw_only=True):
    """An event as Horovod writes it: B and E are the begin and end of a slice, M names a tensor, X and i are points."""

    ph: str
    pid: int = 0
    name: str = ""
    ts: int = 0
    args: dict[str, Any] = field(default_factory=dict)


def read(data: bytes) -> Trace:
    """Return the slices of a rank's file. Raises OddAnswer.

    A slice without its begin or its end is left out: the timeline began or ended within it.
    """
    if not data:
        return Trace(epoch_us=0, slices=())
    events: list[_Event] = decode(_whole(data), list[_Event], most=MOST_BYTES)
    names: dict[int, str] = {}
    open_: dict[int, list[_Event]] = {}
    epoch = 0
    slices: list[Slice] = []
    # A file has few names and shapes, each very often.
    shown, shapes = cache(_name), dict[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]()
    for event in events:
        within(event.ts, -MOST, MOST, "a moment")
        match event.ph:
            case "M" if event.name == "process_name":
                epoch = _epoch(event.args, epoch)
                names[event.pid] = _name(event.args.get("name", ""))
            case "B":
                open_.setdefault(event.pid, []).append(event)
            case "E" if begun := open_.get(event.pid):
                begin = begun.pop()
                args = tuple((shown(key), shown(str(value))) for key, value in sorted(event.args.items())[:8])
                slices.append(
                    Slice(
                        tensor=names.get(event.pid, "?"),
                        name=shown(begin.name),
                        start=begin.ts,
                        end=max(begin.ts, event.ts),
                        depth=len(begun),
                        args=shapes.setdefault(args, args),
                    )
                )
    if not epoch:
        raise OddAnswer("the moment of its begin is missing", data[:60])
    return Trace(epoch_us=epoch, slices=tuple(slices), size=len(data))


def _epoch(args: dict[str, Any], before: int) -> int:
    value = args.get(_EPOCH, before)
    # From 1970 to 2242.
    if not isinstance(value, int) or not 0 <= value < 2**53:
        raise OddAnswer("its begin is no moment", str(value))
    return value


def _name(value: object) -> str:
    return printable(str(value))[:_MOST_NAME]


def _whole(data: bytes) -> bytes:
    """Return the file of a rank that was killed while it wrote without its last event."""
    data = data.rstrip()
    return data if data.endswith(b"}]") else data[: data.rfind(b"},{") + 1] + b"]"
