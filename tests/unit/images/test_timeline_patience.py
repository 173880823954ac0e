"""kit-timeline ends if nobody asks any more, or nobody reads: a network can be cut without notice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from tests.fakes.horovod import counters
from tests.fakes.launcher import LIB

RUN = "20261121-101500-3fa2"
PROGRAM = """
import sys
from kitwatch import readiness, timeline
folder, timeline.PATIENCE_S = sys.argv[1], float(sys.argv[2])
readiness.folder_of = lambda run: folder + "/counters"
readiness.timeline_folder_of = lambda run: folder + "/timelines"
sys.exit(timeline.main(sys.argv[3:]))
"""
# Long enough for a process that must not give up, on a busy machine.
LONG_S = 60.0
BEGIN = {"op": "begin", "id": 5, "seconds": 1.0, "bytes": 1000}


class Program:
    """kit-timeline with open pipes."""

    def __init__(self, process: subprocess.Popen[bytes], stdin: IO[bytes], stdout: IO[bytes]) -> None:
        self.process, self._stdin, self._stdout = process, stdin, stdout

    def send(self, data: bytes) -> None:
        self._stdin.write(data)
        self._stdin.flush()

    def send_unbuffered(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._stdin.fileno(), data) :]

    def ask(self, **request: Any) -> Any:
        self.send(json.dumps(request).encode() + b"\n")
        return self.answer()

    def answer(self) -> Any:
        return json.loads(self._stdout.readline())


@contextmanager
def begun(folder: Path, patience_s: float) -> Iterator[Program]:
    """Run kit-timeline until its hello."""
    words = [sys.executable, "-c", PROGRAM, str(folder), str(patience_s), RUN]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"PYTHONPATH": str(LIB)}
    ) as process:
        assert process.stdin
        assert process.stdout
        program = Program(process, process.stdin, process.stdout)
        try:
            assert program.answer()["ranks"] == [0]
            yield program
        finally:
            process.kill()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "counters").mkdir()
    (tmp_path / "counters" / "0.7").write_bytes(counters(0))
    return tmp_path


def test_it_ends_if_nobody_asks_any_more_and_blocks_no_other_timeline(folder: Path) -> None:
    with begun(folder, 1.0) as first:
        assert first.ask(**BEGIN) == {"begun": [0]}
        assert (folder / "timelines").exists()
        # The input stays open.
        assert first.answer() == {"error": "kit asked nothing for 1 s"}
        assert first.process.wait(LONG_S) == 0
        assert sorted(path.name for path in folder.iterdir()) == ["counters"]
        assert not (folder / "counters" / "control").exists()
        with begun(folder, LONG_S) as second:
            assert second.ask(**BEGIN) == {"begun": [0]}


def test_it_ends_if_nobody_reads_any_more(folder: Path) -> None:
    with begun(folder, 1.0) as program:
        assert program.ask(**BEGIN) == {"begun": [0]}
        # More than both pipes hold: it does not read all of it, either.
        with pytest.raises(BrokenPipeError):
            program.send_unbuffered(b'{"op": "clock"}\n' * 20_000)
        assert program.process.wait(LONG_S) == 0
        assert not (folder / "timelines").exists()


def test_a_request_may_come_in_pieces_and_several_at_once(folder: Path) -> None:
    with begun(folder, LONG_S) as program:
        for piece in (b'{"op":', b' "clock"}\n{"op": "clock"}\n{"op"', b': "look"}\n'):
            program.send(piece)
        answers = [program.answer() for _ in range(3)]
        assert [list(answer) for answer in answers] == [["clock"], ["clock"], ["states"]]
        assert program.ask(**BEGIN) == {"begun": [0]}
        program.send(b'{"op": "end"}\n')
        assert program.process.wait(LONG_S) == 0
        assert not (folder / "timelines").exists()
