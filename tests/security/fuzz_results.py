"""What the reader answers on a host that somebody broke into: lists, runs, files in frames. `read` raises KitError."""

from __future__ import annotations

import contextlib
import hashlib
import json
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from kit.errors import KitError
from kit.model.host import Host
from kit.model.results import Entry, Wanted
from kit.plan.run import pulling
from kit.remote.results import far, fetch, give
from kit.remote.results.store import Store
from kit.remote.ssh.transport import Completed, Live

RUN = "20261121-101500-3fa2"
TEXT = b"what a rank wrote\n" * 20


def _frame(kind: bytes, value: object) -> bytes:
    payload = value if isinstance(value, bytes) else json.dumps(value).encode()
    return struct.pack(">cI", kind, len(payload)) + payload


FRAMES = (
    _frame(b"H", {"at": 0, "size": len(TEXT), "time": 1_700_000_000_000_000_000, "mode": 0o755})
    + _frame(b"D", TEXT[:100])
    + _frame(b"D", TEXT[100:])
    + _frame(b"E", {"sha256": hashlib.sha256(TEXT).hexdigest(), "changed": False})
    + _frame(b"H", {"error": "Permission denied"})
)
SAMPLES: tuple[bytes, ...] = (
    b'{"top": "/opt/kit/mine/var", "live": true, "unsettled": false}\n'
    b'["d", "output", 493]\n["f", "output/model.h5", 12345, 1700000000000000000, false]\n'
    b'["l", "output/best", "model.h5"]\n["s", "output/socket"]\n["e", "output/deep", "Permission denied"]\n'
    b'["f", "log", 99, 1700000000000000000, false]\n{"end": true}\n',
    b'{"id": "20261121-101500-3fa2", "live": false, "files": 3, "output": 5, "checkpoints": 3, "work": 0, "log": 5, '
    b'"began": "20261121-101500"}\n{"end": true}\n',
    b'{"id": "20261121-101500-3fa2", "live": true}\n{"end": true}\n',
    b'{"id": "20261121-101500-3fa2", "removed": 12}\n{"end": true}\n',
    b'{"id": "20261121-101500-3fa2", "error": "Device or resource busy"}\n{"end": true}\n',
    b'{"path": "/data/model.h5", "count": 1}\n',
    b'{"top": "/mnt/ckpt", "there": true, "store": "10.0.0.5:/export /ckpt"}\n'
    b'["f", "epoch-1.h5", 12345, 1700000000000000000, false, 9007199254740993]\n["l", "best", "epoch-1.h5"]\n'
    b'["e", "lost+found", "Permission denied"]\n{"others": 12, "size": 345678}\n{"end": true}\n',
    b'{"now": 1700000000000000000}\n{"end": true}\n',
    FRAMES,
)


class _Host:
    """A host that answers everything with the same bytes."""

    def __init__(self, answer: bytes) -> None:
        self.host = Host(name="bad", address="bad")
        self._answer = answer

    def run(self, argv: Any, *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
        return Completed(code=0, stdout=self._answer, stderr=self._answer[:1000])

    def stream(self, argv: Any, live: Live) -> int:
        for at in range(0, len(self._answer), 50_000):
            live.out(self._answer[at : at + 50_000])
        return 0


def read(answer: bytes) -> None:
    """Give the answer to each of kit's readers, and raise the last error."""
    host = cast(Any, _Host(answer))
    failure: KitError | None = None
    with tempfile.TemporaryDirectory() as folder:
        for reader in _readers(host, Path(folder)):
            try:
                reader()
            except KitError as error:
                failure = error
        inside = [path for path in Path(folder).rglob("*") if path.is_file()]
        if sum(path.stat().st_size for path in inside) > 2 * len(answer) + 100:
            raise AssertionError("it wrote more than came")
    if failure is not None:
        raise failure


def _readers(host: Any, folder: Path) -> tuple[Callable[[], object], ...]:
    (folder / "given").write_bytes(b"mine")
    source = give.Source(folder / "given")
    return (
        lambda: far.survey(host, "mine"),
        lambda: far.runs(host, "mine"),
        lambda: far.remove(host, "mine", [RUN]),
        lambda: _list(host),
        lambda: _shared(host),
        lambda: pulling.clock_offset(far.clock(host), far.clock(host)),
        lambda: _fetch(host, folder),
        lambda: give.give(host, source, "/data", far.argv),
    )


def _list(host: Any) -> None:
    listing = far.run_files(host, "mine", RUN)
    good = pulling.sorted_out(listing.entries, (), ("output", "log")).entries
    for file in pulling.layout({"bad": good, "good": good[:1]})["bad"]:
        if file.target.startswith("/") or ".." in file.target.split("/"):
            raise AssertionError(f"a file goes out of its folder: {file.target!r}")


def _shared(host: Any) -> None:
    listing = far.shared_files(host, "/mnt/ckpt", pulling.ALWAYS, far.argv, prefix="checkpoints/")
    pulling.others({"bad": listing, "good": listing})
    kept = pulling.once({"bad": listing, "good": listing})
    good = pulling.sorted_out(kept["bad"], (), ("checkpoints",)).entries
    for file in pulling.layout({"bad": good, "good": good[:1]})["bad"]:
        if not file.target.startswith(("checkpoints/", "bad/checkpoints/")) or ".." in file.target.split("/"):
            raise AssertionError(f"a file goes out of its folder: {file.target!r}")


def _fetch(host: Any, folder: Path) -> None:
    store = Store(folder / "here")
    with contextlib.suppress(OSError):
        (folder / "here" / ".kit-pull").mkdir(parents=True)
    times = (1_700_000_000_000_000_000, 5)
    files = [
        Wanted(entry=Entry(path=f"output/{name}", size=len(TEXT), time=time), target=f"output/{name}")
        for name, time in zip("ab", times, strict=True)
    ]

    def keep(part: Path, file: Wanted, header: fetch.Header) -> None:
        store.keep(part, file.target, time=header.time, mode=header.mode)

    fetch.fetch(host, "top", "below", files, store, keep=keep, progress=lambda done, whole: None)
