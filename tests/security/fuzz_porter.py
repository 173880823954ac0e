"""What a host sends to the operator and to other hosts: reports, requests and frames. `read` may raise KitError only.

The porter runs on VMs, so its own errors for a bad peer count as errors here, too.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import struct
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path

from kit.errors import KitError, StepError
from kit.model.answer import OddAnswer
from kit.remote.ship import faults, reports
from kit.remote.ship.cargo import CodeThere, source_cargo
from kit.remote.ship.porter import archive, engine, fetch, layers, wire

DATA = bytes(range(256)) * 30
NAME = hashlib.sha256(DATA).hexdigest()
CONFIG = json.dumps({"rootfs": {"type": "layers", "diff_ids": [f"sha256:{NAME}"]}})
FACTS = {
    "Architecture": "amd64", "Os": "linux", "Created": "2026-01-01T00:00:00Z", "Size": 7680,
    "Config": {"Env": ["A=1"], "Labels": {"a": "b"}}, "RootFS": {"Type": "layers", "Layers": [f"sha256:{NAME}"]},
}  # fmt: skip


def _frame(kind: bytes, payload: bytes = b"") -> bytes:
    return struct.pack(">cI", kind, len(payload)) + payload


def _header(at: int) -> bytes:
    return _frame(wire.HEADER, json.dumps({"layer": NAME, "size": len(DATA), "at": at}).encode())


SAMPLES: tuple[bytes, ...] = (
    *(
        json.dumps(report).encode() + b"\n"
        for report in (
            {"ready": {"port": 40123, "need": {NAME: 100}, "held": 2}},
            {"inspected": {"config": CONFIG, "layers": [NAME], "sizes": [5, 7], "size": 12}},
            {"packed": {"sha256": NAME, "size": 12}},
            {"ask": {NAME: 12}, "serial": 3},
            {"at": 123, "loaded": 1},
            {"lost": "Connection refused", "turn": 2},
            {"corrupt": NAME, "count": 1},
            {"received": True},
            {"waits": True},
            {"entered": True},
            {"done": True, "load_s": 1.5},
            {"failed": "no space left on device", "kind": "disk"},
            {"need": {NAME: 0}},
        )
    ),
    json.dumps(FACTS).encode(),
    json.dumps([{"Size": 12, "RepoTags": ["a:b"]}, {"Size": 0, "RepoTags": None}]).encode(),
    _header(0) + _frame(wire.KEEP) + _frame(wire.DATA, DATA[:500]) + _frame(wire.DATA, DATA[500:]) + _frame(wire.END),
    _header(0) + _frame(wire.PACKED, zlib.compress(DATA)) + _frame(wire.END),
)


def read(answer: bytes) -> None:
    """Give the answer to each reader, and raise the last error."""
    failure: KitError | None = None
    for reader in (_report, _request, _facts, _frames):
        try:
            reader(answer)
        except KitError as error:
            failure = error
        except OddAnswer as odd:
            failure = faults.odd("bad", odd)
        except (wire.Broken, engine.EngineError, fetch.Failed) as error:
            failure = StepError(str(error), host="bad")
    if failure is not None:
        raise failure


def _report(answer: bytes) -> None:
    report = reports.read(answer)
    if report.inspected is not None:
        source_cargo("kit:1", report.inspected)
    CodeThere(digest=NAME, store="/code").cargo(report)
    if report.failed is not None:
        raise faults.failed("bad", report.failed, report.kind, faults.IMAGE)


def _request(answer: bytes) -> None:
    wire.read_request(io.BytesIO(answer))


def _facts(answer: bytes) -> None:
    """Read the answer as one of an engine, on a VM and here."""
    engine.failure(answer)
    with contextlib.suppress(ValueError, RecursionError):
        value = json.loads(answer)
        if isinstance(value, dict):
            archive.part_config(archive.config_of(value), archive.layers_of(value), "mine")
            engine.size_of(value)
        engine.tags_of(value)
        engine.sizes_of(value)


def _frames(answer: bytes) -> None:
    """Let a host take one layer from a sender that sends these bytes."""
    with tempfile.TemporaryDirectory() as folder:
        taken = layers.Layers(str(Path(folder) / "layers"))
        fetcher = fetch.Fetcher(taken, [NAME], lambda report: None, 2 * len(DATA))
        nothing: Callable[[], None] = lambda: None  # noqa: E731
        fetcher.follow(1, lambda: (io.BytesIO(answer), io.BytesIO(), nothing))
        try:
            fetcher._once(lambda: (io.BytesIO(answer), io.BytesIO(), nothing), 1)
        finally:
            names = {path.name for path in Path(folder).rglob("*") if path.is_file()}
            if not names <= {NAME, NAME + layers.PART}:
                raise AssertionError(f"it wrote {names}")
            if taken.whole(NAME) and Path(taken.path(NAME)).read_bytes() != DATA:
                raise AssertionError("it kept other bytes than those of the name")
