"""Ranks of kit's Horovod as files show them: counters in memory, a control file, and a timeline for it."""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Sequence
from pathlib import Path

NONE, WRITING, WRITTEN, REFUSED, FAILED = range(5)
_NAMES = (
    "opened",
    "operations",
    "tensors",
    "wait",
    "operation",
    "bytes",
    "last",
    "enqueued",
    "enqueued_at",
    "id",
    "state",
    "tail",
    "steps",
)


def counters(rank: int, **values: int) -> bytes:
    """Return the file of a rank, in the layout of images/horovod/kit_watch.h."""
    numbers = (values.get(name, 0) for name in _NAMES)
    return struct.pack(
        "<8siiii13q", b"KITREADY", 1, rank, values.get("size", 4), values.get("pid", 7), *numbers
    )  # fmt: skip


# (tensor, enqueued, begun, ended) in µs
Operation = tuple[str, int, int, int]


def written(epoch_us: int, operations: Sequence[Operation]) -> bytes:
    """Return what a rank writes of these all-reduces, as Horovod writes it."""
    tensors = {name: at for at, name in enumerate(dict.fromkeys(name for name, *_ in operations), start=1)}
    events: list[dict[str, object]] = [
        {"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": epoch_us}},
        {"name": "process_sort_index", "ph": "M", "pid": 0, "args": {"sort_index": 0}},
    ]
    events += [{"name": "process_name", "ph": "M", "pid": at, "args": {"name": name}} for name, at in tensors.items()]
    for name, enqueued, begun, ended in operations:
        pid = tensors[name]
        events += [
            {"ph": "B", "name": "WAIT", "ts": enqueued, "pid": pid},
            {"ph": "E", "ts": begun, "pid": pid},
            {"ph": "B", "name": "ALLREDUCE", "ts": begun, "pid": pid},
            {"ph": "B", "name": "MPI_ALLREDUCE", "ts": begun + 1, "pid": pid},
            {"ph": "E", "ts": ended - 1, "pid": pid},
            {"ph": "E", "ts": ended, "pid": pid, "args": {"dtype": "float32", "shape": "[4]"}},
        ]
    return ("[\n" + ",".join(map(json.dumps, events)) + "]").encode()


class Rank:
    """A rank that counts in `folder`, and writes `data` for the control file. `ends` is the state that it reaches.

    Without `data`, it begins and ends as a rank of a run that ends: its counters are gone.
    """

    def __init__(self, folder: Path, rank: int, *, size: int, data: bytes | None = b"", ends: int = WRITTEN) -> None:
        self._folder, self._rank, self._size, self._data, self._ends = folder, rank, size, data, ends
        self._path = folder / f"{rank}.7"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow)
        self._count(0, NONE)

    def __enter__(self) -> Rank:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _count(self, number: int, state: int) -> None:
        part = self._folder / f".{self._rank}"
        part.write_bytes(counters(self._rank, size=self._size, opened=1, id=number, state=state))
        part.rename(self._path)

    def _follow(self) -> None:
        control = self._folder / "control"
        while not control.exists() and not self._stop.wait(0.01):
            pass
        if self._stop.is_set():
            return
        number, _, _, where = control.read_text().split()
        if self._ends in (REFUSED, NONE):
            self._count(int(number) if self._ends else 0, self._ends)
            return
        self._count(int(number), WRITING)
        if self._data is not None:
            (Path(where) / f"{self._rank}.7.json").write_bytes(self._data)
            self._count(int(number), self._ends)
        else:
            self._path.unlink()
