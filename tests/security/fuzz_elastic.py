"""The events of an elastic run in its log: what kit-elastic reports, as kit's supervisor writes it, a line each."""

from __future__ import annotations

import json
from typing import Any

from tests.security import fuzz_run_events

EVENTS: tuple[dict[str, Any], ...] = (
    {"event": "formed", "hosts": [["gpu1", 2], ["gpu2", 1]], "np": 3},
    {"event": "lost", "host": "gpu2", "elastic": True},
    {"event": "short", "available": 1, "least": 2, "seconds": 600.0},
    {
        "event": "reset", "hosts": [["gpu1", 2], ["gpu3", 1]], "joined": ["gpu3"], "left": ["gpu2"], "np_before": 3,
        "np": 3, "seconds": 12.3, "failed": {"rank": 2, "host": "gpu2", "exit_code": 137},
    },
    {
        "event": "reset", "hosts": [["gpu1", 2]], "joined": [], "left": ["gpu3"], "np_before": 3, "np": 2,
        "seconds": 1.5, "failed": {"rank": 2, "host": "gpu3", "exit_code": 255},
    },
    {"event": "refused", "rank": 1, "host": "gpu1", "exit_code": 1},
    {"event": "over", "why": "no host is left that runs its ranks", "host": "gpu1"},
)  # fmt: skip
SAMPLES: tuple[bytes, ...] = (
    b"".join(json.dumps(event).encode() + b"\n" for event in EVENTS),
    *(json.dumps(event).encode() + b"\n" for event in EVENTS),
)


def read(answer: bytes) -> None:
    """Follow an elastic run whose log has these events."""
    fuzz_run_events.read(answer)
