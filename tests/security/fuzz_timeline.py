"""What a host answers to kit timeline, and what a rank of Horovod wrote. `read` may raise only KitError."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import cast

from kit.model.answer import answer_of
from kit.plan.timeline import clocks, merge, trace
from kit.remote.ssh.transport import Live, LiveTransport
from kit.remote.timeline.talk import PINGS, Talk
from tests.fakes import horovod
from tests.fakes.facts import host

_FILE = horovod.written(1_795_472_731_087_651, [("conv1", 0, 8100, 9200), ("head", 4, 8100, 9200)])
_LIMIT = 1 << 20


def _lines(*answers: Mapping[str, object]) -> bytes:
    return b"".join(json.dumps(answer).encode() + b"\n" for answer in answers)


_BEGIN = _lines(
    {"kit-timeline": 1, "ranks": [0, 1], "size": 4},
    *({"clock": 1_795_472_731_087_651_000 + n} for n in range(PINGS)),
    {"begun": [0, 1]},
)
_PART = {"data": base64.b64encode(zlib.compress(_FILE, 1)).decode()}
SAMPLES: tuple[bytes, ...] = (
    _BEGIN + _lines({"states": {"0": 2, "1": 5}}, _PART, {"sent": len(_FILE)}),
    _BEGIN + _lines({"states": {"0": 4}}, {"sent": 0}),
    _lines({"kit-timeline": 1, "ranks": [0], "size": 1}, {"error": "another timeline of this run is being written"}),
    _FILE,
)


class _Transport:
    """A connection on which the answer comes, whatever kit asks."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer

    def stream(self, _argv: Sequence[str], live: Live) -> int:
        live.out(self._answer)
        return 0

    def close(self) -> None:
        """Do nothing."""


def read(answer: bytes) -> None:
    """Let kit timeline read the answer as a rank's file, or else as a conversation."""
    if answer[:2] == _FILE[:2]:
        _file(answer)
    else:
        _conversation(answer)


def _conversation(answer: bytes) -> None:
    talk = Talk(
        host(1), lambda _host: cast("LiveTransport", _Transport(answer)), "kit-lab-mpinode", "20261121-101500-3fa2"
    )
    try:
        talk.open()
        clocks.clock_of(talk.pings())
        ranks = talk.begin(7, 20.0, _LIMIT)
        talk.states()
        for rank in ranks:
            _file(talk.receive(rank, _LIMIT))
    finally:
        talk.close()


def _file(data: bytes) -> None:
    with answer_of("gpu1", "the timeline of a rank"):
        piece = trace.read(data)
    pinged = {"gpu1": clocks.clock_of([(0, 5, 9)]), "gpu2": clocks.clock_of([(0, 9, 9)])}
    found = clocks.together(pinged, pinged, {"gpu1": [piece], "gpu2": [piece]})
    ranks = [
        merge.RankTrace(rank=rank, host=name, trace=piece, offset_us=clock.offset_us)
        for rank, (name, clock) in enumerate(found.items())
    ]
    merge.rank_times(ranks)
    b"".join(merge.merged(ranks, run="a-run", clock_error_us=1.0))
