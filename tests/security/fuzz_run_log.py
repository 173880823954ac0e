"""The log of a run, as the head sends it: records of output, and events of its supervisor."""

from __future__ import annotations

import json
from typing import Any

from kit.cli.text.run import story
from kit.cli.text.shown import shown
from kit.events import Silent
from kit.flows.run.answers import outcome
from kit.flows.run.follow import Follower, Manner
from kit.model.host import Login
from kit.model.run import ShownRun
from kit.remote.run.door import READ, Door

LOGIN = Login(host="gpu1", address="10.0.0.1", user="root", port=None, key=None, known_hosts=None)
# Small pieces end in the middle of records. A long answer comes as a network brings it.
_PIECE, _LONG = 100, 1 << 16


def record(kind: str, body: bytes, rank: str = "-", *, more: str = ".") -> bytes:
    return f"\x1e1790000000123 {rank} {kind} {more} {len(body)}\n".encode() + body


def _event(**fields: Any) -> bytes:
    return record("k", json.dumps(fields).encode())


ENDED = {
    "event": "ended",
    "ended": 1790000009.5,
    "attempt": 1,
    "exit_code": 3,
    "stopped": "",
    "left": {"gpu1": 0},
    "lost_bytes": 12,
    "stdin_cut": True,
    "failure": {
        "kind": "rank", "host": "gpu2", "rank": 1, "role": "", "exit_code": 3, "signal": "", "oom": False,
        "lines": ["Traceback"], "mpirun": ["x"],
    },
}  # fmt: skip
HANG = {
    "event": "hang",
    "why": "no output for 60 s",
    "ranks": [
        {"rank": 0, "host": "gpu1", "role": "worker 0", "pid": 12, "state": "S", "wchan": "poll", "command": "python3",
         "stack": "a\nb", "last": "step 3"},
        {"rank": 1, "host": "gpu2", "ended": True},
    ],
}  # fmt: skip
SAMPLES: tuple[bytes, ...] = (
    _event(event="attempt", number=1, np=2, roles=["server", "scheduler"])
    + record("u", b"gpu1 4711", "0")
    + record("o", b"step 1\nstep 2\n", "0")
    + record("e", b"loss 0.5\rloss 0.4", "1", more="+")
    + record("m", b"mpirun noticed\n")
    + record("x", b"gpu1 3 0 0", "1")
    + _event(event="lost", host="gpu2")
    + _event(event="again", number=2, wait=1.5, dropped=["gpu2"])
    + _event(**HANG)
    + _event(**ENDED),
    _event(event="hang", why="x", ranks=[]) + _event(event="ended", exit_code=0),
)


class _Door(Door):
    """The connection through which an answer comes."""

    def __init__(self, answer: bytes) -> None:
        super().__init__(LOGIN, "kit-lab-mpihead")
        self._answer = answer
        self._piece = _PIECE if len(answer) < _LONG else READ

    def read(self, patience_s: float, *, also: int | None = None) -> bytes | None:
        piece, self._answer = self._answer[: self._piece], self._answer[self._piece :]
        return piece or None

    def over(self) -> tuple[str, int]:
        return "", 0


def read(answer: bytes) -> None:
    """Follow a run whose log is the answer."""
    manner = Manner(follow=False, tagged=True)
    follower = Follower("20261121-101500-3fa2", _Door(answer), Silent(), manner)
    ending = follower.follow()
    if ending is not None:
        run = outcome("gpu1", {"id": follower.run_id}, ending)
        story(run)
        shown(ShownRun(record=run, head="gpu1", log="/log", work="/work"))
