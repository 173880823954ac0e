"""One file from the timelines of all ranks: the Trace Event Format, which Perfetto and chrome://tracing open.

A rank is a process. Its first track has all its operations; the others are its tensors.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from msgspec import Struct

from kit.model.timeline import WAIT, RankTime, Slice, Trace

# The name of the track of all tensors of a rank.
_ALL = "all tensors"

Event = dict[str, Any]


class RankTrace(Struct, frozen=True, kw_only=True):
    """What a rank wrote. `offset_us` is how far its host's clock is ahead of the common one."""

    rank: int
    host: str
    trace: Trace
    offset_us: float

    def at(self, us: float) -> float:
        """Return a moment of the trace on the common clock, in µs since 1970."""
        return self.trace.epoch_us + us - self.offset_us


def merged(
    ranks: Sequence[RankTrace], *, run: str, clock_error_us: float, missed: Mapping[int, str] | None = None
) -> Iterator[bytes]:
    """Yield the file in pieces. Its µs count from the first slice of any rank.

    `missed` says by rank why it is missing or shorter. Only the events of one rank are in memory at a time: those of
    all may take gigabytes.
    """
    import msgspec  # noqa: PLC0415  (as in kit.model.answer)

    first = _span(ranks)[0]
    # Perfetto may take threads of two processes that have the same number as one, and a thread that has the number of a
    # process as its main thread.
    numbers = count(max((rank.rank for rank in ranks), default=0) + 1)
    yield b'{"traceEvents":['
    for at, rank in enumerate(ranks):
        yield (b"," if at else b"") + msgspec.json.encode(list(_events(rank, first, numbers)))[1:-1]
    rest = {
        "displayTimeUnit": "ms",
        "otherData": {
            "run": run,
            "begin": f"{first / 1e6:.6f} s since 1970",
            "clocks": f"within {clock_error_us:.0f} us of each other",
            **{f"rank {rank}": why for rank, why in sorted((missed or {}).items())},
        },
    }
    yield b"]," + msgspec.json.encode(rest)[1:]


def seconds(ranks: Sequence[RankTrace]) -> float:
    """Return the time from the first slice to the end of the last one."""
    first, last = _span(ranks)
    return (last - first) / 1e6


def rank_times(ranks: Sequence[RankTrace]) -> tuple[RankTime, ...]:
    """Return the shares of each rank.

    They are shares of the rank's recording, which may begin later or be cut: the rank must not seem to wait less then.
    """
    times = []
    for rank in ranks:
        first, last = _span([rank])
        length = max(1.0, last - first)
        every = overview(rank.trace)
        waits = [piece.end - piece.start for piece in every if piece.name == WAIT]
        operations = [piece.end - piece.start for piece in every if piece.name != WAIT]
        times.append(
            RankTime(
                rank=rank.rank,
                host=rank.host,
                operations=len(operations),
                waited=sum(waits) / length,
                operated=sum(operations) / length,
            )
        )
    return tuple(times)


def overview(trace: Trace) -> tuple[Slice, ...]:
    """Return a rank's operations in their order, and before each the time in which it had given all and waited.

    One operation may fuse several tensors. They begin at the same moment: the end of their WAIT.
    """
    top = sorted((piece for piece in trace.slices if piece.depth == 0), key=lambda piece: (piece.start, piece.end))
    begins: dict[float, list[Slice]] = defaultdict(list)
    began: dict[str, float] = {}
    pieces: dict[float, list[Slice]] = defaultdict(list)
    for piece in sorted(top, key=lambda piece: (piece.end if piece.name == WAIT else piece.start, piece.name != WAIT)):
        if piece.name == WAIT:
            begins[piece.end].append(piece)
            began[piece.tensor] = piece.end
        elif piece.tensor in began and not piece.name.startswith("NEGOTIATE"):
            pieces[began.pop(piece.tensor)].append(piece)
    slices: list[Slice] = []
    at = float("-inf")
    for begin in sorted(pieces):
        names = sorted({piece.name for piece in pieces[begin]})
        args = (("tensors", str(len(pieces[begin]))),)
        # Operations of one rank run one after the other, and a wait overlaps none.
        waited = max((piece.start for piece in begins[begin]), default=begin)
        waited = max(at, min(waited, begin))
        if waited < begin:
            slices.append(Slice(tensor="", name=WAIT, start=waited, end=begin, args=args))
        start, end = max(at, begin), max(piece.end for piece in pieces[begin])
        if start <= end:
            slices.append(Slice(tensor="", name=" ".join(names), start=start, end=end, args=args))
        at = max(at, end)
    return tuple(slices)


def _span(ranks: Sequence[RankTrace]) -> tuple[float, float]:
    moments = [rank.at(us) for rank in ranks for piece in rank.trace.slices for us in (piece.start, piece.end)]
    return min(moments, default=0.0), max(moments, default=0.0)


def _events(rank: RankTrace, first: float, numbers: Iterator[int]) -> Iterator[Event]:
    tensors = sorted({piece.tensor for piece in rank.trace.slices})
    # The overview has no tensor.
    tracks = {name: next(numbers) for name in ("", *tensors)}
    yield _named(rank.rank, None, "process_name", {"name": f"rank {rank.rank} ({rank.host})"})
    yield _named(rank.rank, None, "process_sort_index", {"sort_index": rank.rank})
    for name, at in tracks.items():
        yield _named(rank.rank, at, "thread_name", {"name": name or _ALL})
        yield _named(rank.rank, at, "thread_sort_index", {"sort_index": at})
    # Of two slices that begin at the same moment, Perfetto takes the first one as the outer one.
    for piece in (*overview(rank.trace), *sorted(rank.trace.slices, key=lambda one: (one.start, one.depth, -one.end))):
        yield {
            "ph": "X",
            "name": piece.name,
            "cat": _category(piece.name),
            "pid": rank.rank,
            "tid": tracks[piece.tensor],
            "ts": round(rank.at(piece.start) - first, 3),
            "dur": round(piece.end - piece.start, 3),
            **({"args": dict(piece.args)} if piece.args else {}),
        }


def _named(pid: int, tid: int | None, name: str, args: Mapping[str, Any]) -> Event:
    return {"ph": "M", "pid": pid, **({} if tid is None else {"tid": tid}), "name": name, "args": dict(args)}


def _category(name: str) -> str:
    if name == WAIT or name.startswith("NEGOTIATE"):
        return "wait"
    return "memory" if "MEMCPY" in name or "BUFFER" in name else "operation"
