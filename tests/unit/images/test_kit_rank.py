"""images/bin/kit-rank, run as mpirun's daemon runs it: a terminal or pipe for stdout, a pipe for stderr."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kit.remote.ranklines import RankLines

KIT_RANK = Path(__file__).resolve().parents[3] / "images" / "bin" / "kit-rank"
MARKED = {**os.environ, "OMPI_COMM_WORLD_RANK": "5", "KIT_RUN": "a-run"}


def start(*argv: str, **environ: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, KIT_RANK, *argv],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**MARKED, **environ},
        start_new_session=True,
    )


def lines_of(data: bytes) -> list[tuple[str, str, bytes]]:
    reader = RankLines()
    return [(line.rank, line.stream, line.text) for line in (*reader.feed(data), *reader.end())]


def run(script: str) -> tuple[int, list[tuple[str, str, bytes]]]:
    process = start("sh", "-c", script)
    out, err = process.communicate(timeout=60)
    assert out == b""
    return process.returncode, lines_of(err)


def test_both_streams_come_as_records() -> None:
    code, lines = run("echo out; echo err >&2; exit 7")
    assert code == 7
    assert sorted(lines) == [("5", "stderr", b"err"), ("5", "stdout", b"out")]


def test_every_read_of_4096_bytes_is_whole_records() -> None:
    """mpirun's daemon reads so, and mixes what it has read with what others say."""
    process = start("sh", "-c", "seq 1 20000; printf '%09000d\\n' 1; printf end")
    assert process.stderr
    pieces = []
    while piece := os.read(process.stderr.fileno(), 4096):
        assert piece.startswith(b"\x1ekit-line 5 o ")
        pieces.append(piece)
    assert process.wait(60) == 0
    process.communicate()
    texts = [text for _, _, text in lines_of(b"".join(pieces))]
    assert texts == [*(str(n).encode() for n in range(1, 20001)), b"%09000d" % 1, b"end"]


def test_a_line_comes_when_it_is_written() -> None:
    process = start("sh", "-c", "echo now; exec sleep 600")
    assert process.stderr
    assert lines_of(os.read(process.stderr.fileno(), 4096)) == [("5", "stdout", b"now")]
    assert process.poll() is None
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_it_ends_as_the_command_did(sign: signal.Signals) -> None:
    code, lines = run(f"echo last; kill -{int(sign)} $$")
    assert code == -sign
    assert lines == [("5", "stdout", b"last")]


def test_what_a_command_says_at_its_end_is_passed_on() -> None:
    """mpirun sends SIGTERM to the whole group."""
    process = start("sh", "-c", "trap 'echo bye; exit 4' TERM; echo up; while :; do sleep 0.05; done")
    assert process.stderr
    first = os.read(process.stderr.fileno(), 4096)
    os.killpg(process.pid, signal.SIGTERM)
    _, rest = process.communicate(timeout=60)
    assert [text for _, _, text in lines_of(first + rest) if text in (b"up", b"bye")] == [b"up", b"bye"]
    assert process.returncode == 4


def test_a_child_that_stays_does_not_hold_the_rank() -> None:
    process = start("sh", "-c", "echo done; sleep 600 &")
    _, err = process.communicate(timeout=60)
    assert lines_of(err) == [("5", "stdout", b"done")]
    assert process.returncode == 0
    os.killpg(process.pid, signal.SIGKILL)


def test_a_command_that_is_not_there_is_127() -> None:
    process = start("no-such-command")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 127
    assert b"no-such-command: No such file or directory" in err


def test_by_hand_it_is_the_command_itself() -> None:
    process = subprocess.run(
        [sys.executable, KIT_RANK, "sh", "-c", "echo out; echo err >&2"],
        capture_output=True,
        check=True,
        env={name: value for name, value in MARKED.items() if name != "KIT_RUN"},
    )
    assert (process.stdout, process.stderr) == (b"out\n", b"err\n")
