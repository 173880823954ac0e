"""What the head's launcher answers: its first line, then an answer to a request, then the log of a run."""

from __future__ import annotations

import io
import json
import os
import subprocess
from pathlib import Path
from typing import Any, cast

from kit.cli.text.run import runs as table
from kit.errors import KitError, UnreachableError
from kit.events import Silent
from kit.flows.context import Context
from kit.flows.run.attach import run_logs
from kit.flows.run.run import run
from kit.flows.run.stop import stop
from kit.model.host import Host, Inventory
from kit.model.launch import RunRequest
from kit.model.result import RunsResult
from kit.model.spec import ClusterSpec
from kit.remote.run.door import Door
from kit.remote.ssh.transport import LiveTransport
from tests.fakes.facts import host
from tests.security.fuzz_run_log import SAMPLES as LOGS

RUN: dict[str, Any] = {
    "id": "20261121-101500-3fa2", "cluster": "lab", "image": "kit:cpu-1", "command": ["python3", "a b.py"],
    "places": [{"node": "gpu1", "address": "10.0.0.1", "ranks": 1, "slots": [0]}],
    "helpers": [{"role": "server", "node": "gpu1", "address": "10.0.0.1"}], "env": ["A"], "by": "me@here",
    "started": 1790000000.5,
    "code": {"digest": "ab12", "folder": "/home/me/x", "files": 3, "size": 4096, "commit": "c0ffee", "branch": "main",
             "origin": "https://host/x", "dirty": True, "diff": "x", "diff_cut": False},
}  # fmt: skip
ENDING: dict[str, Any] = {
    "ended": 1790000009.5, "attempt": 1, "exit_code": 3, "stopped": "", "left": {"gpu1": 0},
    "failure": {"kind": "rank", "host": "gpu1", "rank": 0, "exit_code": 3, "oom": False, "lines": ["x"], "mpirun": [],
                "before": {"rank": 1}},
}  # fmt: skip
# Written out, so that alterations reach the record inside the first line.
_RECORD: dict[str, Any] = {
    "kit": 1, "name": "lab", "image": "kit:cpu-1", "network": "10.0.0.0/24", "ssh_port": 33,
    "nodes": [{"name": "gpu1", "address": "10.0.0.1", "slots": 4, "cores": 8}], "head_runs_ranks": True, "settings": {},
}  # fmt: skip


def _hello(*, record: str = json.dumps(_RECORD), code: Any = None) -> dict[str, Any]:
    code = code or {"ab12": ["gpu1"]}
    knows = {"stdin": True, "words": True, "diffs": True, "options": ["cpus"]}
    return {"kit-launch": 2, **knows, "record": record, "runs": [RUN], "code": code}


def _lines(*values: Any) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


SAMPLES: tuple[bytes, ...] = (
    _lines(_hello(), {"attached": RUN, "alive": True, "ending": None, "now": 1e9}) + LOGS[1],
    _lines(_hello(), {"attached": RUN, "alive": False, "ending": ENDING, "pruned": True}),
    _lines(_hello(), {"over": RUN, "ending": ENDING}),
    _lines(_hello(), {"stopping": RUN}) + LOGS[1],
    _lines(_hello(), {"missing": "x"}),
    _lines(_hello(), {"waiting": [RUN]}, {"started": RUN["id"]}) + LOGS[0],
    _lines(_hello(), {"held": [RUN]}),
    _lines(_hello(), {"failed": "No space left on device"}),
)


class _Process:
    """What a connection was, without a process: its output is a file."""

    def __init__(self, answer: bytes) -> None:
        descriptor = os.memfd_create("answer")
        with open(descriptor, "wb", closefd=False) as file:
            file.write(answer)
        os.lseek(descriptor, 0, os.SEEK_SET)
        self.stdin = io.BytesIO()
        self.stdout = os.fdopen(descriptor, "rb")
        self.stderr = os.fdopen(os.open(os.devnull, os.O_RDONLY), "rb")

    def poll(self) -> int:
        return 0

    def wait(self, timeout: float | None = None) -> int:
        return 0

    def kill(self) -> None:
        raise AssertionError("it has ended")


class _Door(Door):
    def __init__(self, answer: bytes) -> None:
        super().__init__(CONTEXT.login(CONTEXT.inventory.head), "kit-lab-mpihead")
        self._answer = answer

    def start(self) -> None:
        self._process = cast("subprocess.Popen[bytes]", _Process(self._answer))

    def another(self) -> Door:
        raise UnreachableError("no other connection")


def _no_connection(_host: Host) -> LiveTransport:
    raise UnreachableError("no connection")


CONTEXT = Context(
    inventory=Inventory(hosts=(host(1),), source="hosts"),
    spec=ClusterSpec(name="lab"),
    folder=Path("/"),
    reporter=Silent(),
    connect=_no_connection,
)


def read(answer: bytes) -> None:
    """Let each verb that opens the door read the answer. Raises the last verb's error."""
    failure: KitError | None = None
    for verb in (_attach, _stop, _start):
        try:
            verb(_Door(answer))
        except KitError as error:
            failure = error
    if failure is not None:
        raise failure


def _attach(door: Door) -> None:
    record = run_logs(CONTEXT, "2026", rank=None, since_s=None, follow=True, tagged=True, tail=5, door=door)
    table(RunsResult(cluster="lab", runs=(record,)), width=80)


def _stop(door: Door) -> None:
    stop(CONTEXT, None, grace_s=0.0, door=door)


def _start(door: Door) -> None:
    run(CONTEXT, RunRequest(command=("true",), np=2, wait=True), door=door)
