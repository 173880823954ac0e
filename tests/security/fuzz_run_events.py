"""The events in the log of a run, a line of JSON each. They come framed with their length, so that all are read."""

from __future__ import annotations

import json

from tests.security import fuzz_run_log

_EVENTS = (
    {"event": "attempt", "number": 1, "np": 2, "roles": ["server", "scheduler"]},
    {"event": "lost", "host": "gpu2"},
    {"event": "again", "number": 2, "wait": 1.5, "dropped": ["gpu2"], "failure": {"kind": "host", "host": "gpu2"}},
    fuzz_run_log.HANG,
    fuzz_run_log.ENDED,
)
SAMPLES: tuple[bytes, ...] = (
    b"".join(json.dumps(event).encode() + b"\n" for event in _EVENTS),
    *(json.dumps(event).encode() + b"\n" for event in _EVENTS),
)


def read(answer: bytes) -> None:
    """Follow a run whose log has these events."""
    fuzz_run_log.read(b"".join(fuzz_run_log.record("k", line) for line in answer.split(b"\n") if line))
