"""What hosts say to kit tune: their facts, and what mpi_perf prints. fuzz_wire.py has the probe of TCP."""

from __future__ import annotations

import json
import statistics

from kit.flows.tune.perf import rows_of
from kit.model.answer import answer_of
from kit.model.tune import Timing
from kit.remote.tune.wire import parse
from tests.fakes.facts import node

_FACTS = b"""\
threads 32
core 0:0
socket 0
numa 0
other eth1 25000 9000
nic eth0 10000 1500
address 2: eth0    inet 10.0.0.1/24 brd 10.0.0.255 scope global eth0
congestion cubic
gpu Tesla T4
topo GPU0\t X \tPHB\t0-15\t0
end
"""
_SIZES = (8, 1048576)
_PRINTED = {"tests": [{"rows": [{"bytes": size, "samples": [0.001, 0.0012]} for size in _SIZES]}]}
SAMPLES: tuple[bytes, ...] = (_FACTS, json.dumps(_PRINTED).encode())


def read(answer: bytes) -> None:
    """Read an answer as the one that it begins like."""
    text = answer.decode(errors="replace")
    if text.startswith("{"):
        with answer_of("gpu1", "what mpi_perf printed"):
            for row in rows_of(text, _SIZES):
                timing = Timing(bytes=row.bytes, ranks=2, seconds=row.samples)
                statistics.fmean((timing.median, timing.noise, timing.busbw))
    else:
        with answer_of("gpu1", "its facts"):
            parse(node(1), text)
