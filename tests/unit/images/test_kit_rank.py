"""images/bin/kit-rank, run as mpirun's daemon runs it: a terminal or pipe for stdout, a pipe for stderr."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from kit.remote.run.lines import LONG
from tests.fakes import launcher
from tests.fakes.head import marked, parent, until

frames = launcher.load("kitrun.frames")

KIT_RANK = launcher.IMAGES / "bin" / "kit-rank"
MARKED = {**os.environ, "OMPI_COMM_WORLD_RANK": "5", "KIT_RUN": "a-run", "KIT_NODE": "gpu7"}
LOADED = """
import importlib.machinery, importlib.util, os, sys
sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("kit_rank", sys.argv[1])
module = importlib.util.module_from_spec(importlib.util.spec_from_loader("kit_rank", loader))
loader.exec_module(module)
"""
# kit-rank with another file that counts the processes killed because memory ran out: FILE COMMAND.
WITH = (
    LOADED
    + """
module.OOM_COUNTS = (sys.argv[2],)
module.main(sys.argv[3:])
"""
)
# A kit-rank that gets HOLD when its rank is up, but before it handles signals.
HELD_EARLY = (
    LOADED
    + """
relay = module.relay
def late(*words):
    os.kill(os.getpid(), module.HOLD)
    return relay(*words)
module.relay = late
module.main(sys.argv[2:])
"""
)
# A kit-rank whose clock runs very fast while it holds. It writes `held` after some turns.
HELD_LONG = (
    LOADED
    + """
import itertools
hold, sleep, turns = module.wait_for_others, module.time.sleep, itertools.count(1)
def turn(seconds):
    if next(turns) == 5:
        os.write(1, b"held\\n")
    sleep(seconds)
def fast(*words):
    module.time.monotonic, module.time.sleep = itertools.count(0, 10**6).__next__, turn
    return hold(*words)
module.wait_for_others = fast
module.main(sys.argv[2:])
"""
)


def load() -> Any:
    loader = importlib.machinery.SourceFileLoader("kit_rank", str(KIT_RANK))
    spec = importlib.util.spec_from_loader("kit_rank", loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = before
    return module


def start(*argv: str, program: tuple[str, ...] = (str(KIT_RANK),), **environ: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-IS", *program, *argv],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**MARKED, **environ},
        start_new_session=True,
    )


def records(data: bytes) -> list[tuple[str, str, bytes]]:
    """Return (kind, more, body) of each record, and check that there is nothing else."""
    splitter = frames.Splitter()
    pieces = [*splitter.feed(data), *splitter.end()]
    assert {rank for rank, *_ in pieces} <= {b"5"}, pieces
    return [(kind, more, body) for _, kind, more, body in pieces]


def lines_of(data: bytes) -> list[tuple[str, bytes]]:
    """(kind, line) of the output."""
    texts: dict[str, bytes] = {}
    for kind, more, body in records(data):
        if kind in "oe":
            texts[kind] = texts.get(kind, b"") + body + (b"" if more == "+" or body.endswith(b"\n") else b"\n")
    return [(kind, line) for kind, text in texts.items() for line in text.splitlines()]


def life(data: bytes) -> list[tuple[str, list[bytes]]]:
    """(kind, words) of how it came up and ended; `up` without its pid."""
    return [
        (kind, body.split()[:1] if kind == "u" else body.split()) for kind, _, body in records(data) if kind in "ux"
    ]


def run(script: str, **environ: Any) -> tuple[int, bytes]:
    process = start("sh", "-c", script, **environ)
    out, err = process.communicate(timeout=60)
    assert out == b""
    return process.returncode, err


def read_until(process: subprocess.Popen[bytes], text: bytes) -> bytes:
    assert process.stderr
    data = b""
    while text not in data:
        piece = os.read(process.stderr.fileno(), 4096)
        assert piece, data
        data += piece
    return data


def test_both_streams_come_as_records() -> None:
    code, err = run("echo out; echo err >&2; exit 7")
    assert code == 7
    assert sorted(lines_of(err)) == [("e", b"err"), ("o", b"out")]


def test_it_says_that_it_is_up_first_and_how_it_ended_last() -> None:
    code, err = run("echo $$; exit 7")
    assert code == 7
    (kind, _, up), *_, (last, _, end) = records(err)
    pid = lines_of(err)[0][1]
    assert (kind, up) == ("u", b"gpu7 " + pid)
    assert (last, end) == ("x", b"gpu7 7 0 0")


@pytest.mark.parametrize(
    ("script", "words"),
    [("exit 0", b"0 0 0"), ("exit 255", b"255 0 0"), ("kill -9 $$", b"0 9 0"), ("kill -SEGV $$", b"0 11 0")],
)
def test_how_it_ended(script: str, words: bytes) -> None:
    assert life(run(script)[1]) == [("u", [b"gpu7"]), ("x", [b"gpu7", *words.split()])]


def test_no_rank_writes_to_the_disk_what_it_means_for_a_store(tmp_path: Path) -> None:
    """A store that ranks write to is mounted, or the rank does not start."""
    sets = {"KIT_DATA_KEPT": str(tmp_path), "KIT_DATA_KEPT_WRITE": "store"}
    code, err = run("touch here", **sets)
    assert code == 4
    assert lines_of(err) == [("e", f"kit-rank: cannot write to {tmp_path}: no store is mounted there".encode())]
    # Other data sets need no mount, whatever their names end with.
    assert run("exit 0", KIT_DATA_KEPT=str(tmp_path), KIT_DATA_KEPT_WRITE=str(tmp_path))[0] == 0


def test_every_read_of_4096_bytes_is_whole_records() -> None:
    """mpirun's daemon reads so, and mixes what it has read with what others say."""
    process = start("sh", "-c", "seq 1 20000; printf '%09000d\\n' 1; printf end")
    assert process.stderr
    pieces = []
    while piece := os.read(process.stderr.fileno(), 4096):
        assert piece.startswith(b"\x1ekit-line 5 ")
        # Open MPI 5 would hold an unfinished line back.
        assert piece.endswith(b"\n")
        records(piece)
        pieces.append(piece)
    assert process.wait(60) == 0
    process.communicate()
    texts = [text for _, text in lines_of(b"".join(pieces))]
    assert texts == [*(str(n).encode() for n in range(1, 20001)), b"%09000d" % 1, b"end"]


@pytest.mark.parametrize("body", [b"gpu1 1 0 0", b"", b"a line\n", b"two\nlines", b"x" * 4048])
def test_a_record_is_one_packet_and_ends_with_a_newline(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    module, packets = load(), list[bytes]()
    monkeypatch.setattr(module.os, "write", lambda _, data: packets.append(data))
    module.send("999999999", b"o", body)
    (packet,) = packets
    assert packet == frames.relayed(b"999999999", "o", body)
    assert packet.endswith(b"\n")
    assert len(packet) <= module.PACKET
    assert len(body) <= module.ROOM


def test_a_line_comes_when_it_is_written() -> None:
    process = start("sh", "-c", "echo now; exec sleep 600")
    assert lines_of(read_until(process, b"now")) == [("o", b"now")]
    assert process.poll() is None
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)


def test_kit_knows_the_first_part_of_a_long_line_by_its_length() -> None:
    assert load().ROOM == LONG


# Lines that are unfinished for a while


@pytest.mark.parametrize("text", [b"Password: ", b"\r 10 of 20", b" 10 of 20\r"])
def test_an_unfinished_line_comes_as_far_as_it_is(text: bytes) -> None:
    process = start("sh", "-c", 'printf %s "$0"; exec sleep 600', text.decode())
    data = read_until(process, text)
    assert records(data)[-1] == ("o", "+", text)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)


def test_states_of_a_bar_come_while_it_grows_and_are_one_line() -> None:
    bar = "for n in 1 2 3; do printf '\\r%s0%%' $n; sleep 0.3; done; printf '\\n'; printf half; sleep 0.3"
    code, err = run(bar)
    assert code == 0
    pieces = [(more, body) for kind, more, body in records(err) if kind == "o"]
    # The last record is empty: it ends the line that the rank never finished.
    assert pieces == [
        ("+", b"\r10%"), ("+", b"\r20%"), ("+", b"\r30%"), (".", b"\n"), ("+", b"half"), (".", b""),
    ]  # fmt: skip


def test_a_line_that_ends_at_once_is_one_record() -> None:
    _, err = run("printf '\\r10%%'; printf '\\r20%%\\n'")
    assert [(more, body) for kind, more, body in records(err) if kind == "o"] == [(".", b"\r10%\r20%\n")]


Sent = list[tuple[bytes, bytes, bytes]]


@pytest.fixture
def sending(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Sent]:
    """Return kit-rank as a module, and what it sends: (kind, body, more)."""
    module, sent = load(), Sent()
    monkeypatch.setattr(module, "send", lambda _, kind, body, more=b".": sent.append((kind, body, more)))
    return module, sent


def feed(module: Any, stream: Any, bars: int, every: float) -> None:
    """Write states of a bar, one each `every` seconds of the stream's clock, into the stream."""
    read_end, write_end = os.pipe()
    stream.fd = read_end
    for n in range(bars):
        os.write(write_end, b"\r%03d" % n)
        stream.take(n * every)
        stream.tend(n * every)
    os.write(write_end, b"\nnext\n")
    os.close(write_end)
    while stream.take(bars * every):
        pass
    os.close(read_end)


def test_a_bar_is_sent_ten_times_a_second_at_most(sending: tuple[Any, Sent]) -> None:
    module, sent = sending
    feed(module, module.Stream(0, b"o", "5", module.BUDGET), bars=400, every=0.01)
    assert 30 <= len(sent) <= 42
    assert b"".join(body for _, body, _ in sent) == b"".join(b"\r%03d" % n for n in range(400)) + b"\nnext\n"


def test_a_bar_of_a_long_run_is_sent_seldom_but_shows_life(sending: tuple[Any, Sent]) -> None:
    """The log grows slowly, whole lines come, and a limit on silence does not end the run."""
    module, sent = sending
    feed(module, module.Stream(0, b"o", "5", 0), bars=400, every=0.1)
    states = [body for kind, body, _ in sent if kind == b"o"]
    assert states[-1] == b"\r399\nnext\n"
    assert len(states) in (4, 5)
    assert all(len(state) == 4 for state in states[:-1])
    assert [kind for kind, _, _ in sent].count(b"l") in (36, 37, 38, 39, 40)


def test_the_budget_is_used_up(sending: tuple[Any, Sent]) -> None:
    module, sent = sending
    stream = module.Stream(0, b"o", "5", 500)
    feed(module, stream, bars=400, every=0.2)
    assert stream.budget <= 0
    assert 15 <= len([kind for kind, _, _ in sent if kind == b"o"]) <= 30


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_it_ends_as_the_command_did(sign: signal.Signals) -> None:
    code, err = run(f"echo last; kill -{int(sign)} $$")
    assert code == -sign
    assert lines_of(err) == [("o", b"last")]


def test_what_a_command_says_at_its_end_is_passed_on() -> None:
    """mpirun sends SIGTERM to the whole group."""
    process = start("sh", "-c", "trap 'echo bye; exit 4' TERM; echo up; while :; do sleep 0.05; done")
    first = read_until(process, b"up")
    os.killpg(process.pid, signal.SIGTERM)
    _, rest = process.communicate(timeout=60)
    # The shell may have a word on its own child, too.
    assert [line for kind, line in lines_of(first + rest) if kind == "o"] == [b"up", b"bye"]
    assert process.returncode == 4


@pytest.mark.parametrize(
    ("script", "leave", "stays"),
    [("sleep 600 & exit 0", False, False), ("sleep 600 & exit 3", False, False), ("sleep 600 & exit 0", True, True),
     ("sleep 600 & exit 3", True, False), ("trap '' TERM; sh -c 'sleep 600; sleep 601' & exit 0", False, False)],
)  # fmt: skip
def test_what_a_rank_leaves_in_the_background(script: str, leave: bool, stays: bool) -> None:
    """It holds the rank's output, and is waited for by nobody; it ends with the rank, unless it may stay."""
    mark = f"t-{uuid.uuid4().hex[:12]}"
    code, err = run(f"echo done; {script}", KIT_RUN=mark, **({"KIT_LEAVE": "1"} if leave else {}))
    assert lines_of(err) == [("o", b"done")]
    assert code == int(script[-1])
    if not stays:
        # They have been sent the signal that ends them.
        until(lambda: not marked(mark))
    left = marked(mark)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert bool(left) is stays


@pytest.mark.parametrize("leave", [False, True])
def test_a_rank_that_leaves_a_talker_in_the_background_ends(leave: bool) -> None:
    mark = f"t-{uuid.uuid4().hex[:12]}"
    talker = "trap '' PIPE; while echo on; do sleep 0.02; done"
    code, err = run(f"({talker}) & echo done; exit 3", KIT_RUN=mark, **({"KIT_LEAVE": "1"} if leave else {}))
    assert code == 3
    assert {b"done", b"on"} <= {line for _, line in lines_of(err)}
    assert life(err)[-1] == ("x", [b"gpu7", b"3", b"0", b"0"])
    until(lambda: not marked(mark))


def test_a_command_that_is_not_there_is_127() -> None:
    process = start("no-such-command")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 127
    assert b"no-such-command: No such file or directory" in err


def test_by_hand_it_is_the_command_itself() -> None:
    process = subprocess.run(
        [sys.executable, "-IS", KIT_RANK, "sh", "-c", "echo out; echo err >&2"],
        capture_output=True,
        check=True,
        env={name: value for name, value in MARKED.items() if name != "KIT_RUN"},
    )
    assert (process.stdout, process.stderr) == (b"out\n", b"err\n")


def test_under_mpirun_by_hand_nobody_gets_records() -> None:
    code, err = run("echo err >&2", KIT_RUN="by-hand-7")
    assert (code, err) == (0, b"err\n")


def test_a_pipe_that_mpirun_does_not_give_is_left_alone(tmp_path: Path) -> None:
    """Standard error into a file: nobody is there to read records."""
    with (tmp_path / "err").open("wb") as file:
        done = subprocess.run(
            [sys.executable, "-IS", KIT_RANK, "sh", "-c", "echo err >&2"], check=True, env=MARKED, stderr=file
        )
    assert done.returncode == 0
    assert (tmp_path / "err").read_bytes() == b"err\n"


# A run that is stopped: its ranks end one by one, and mpirun must not take the end of one for the end of all


def test_one_that_has_to_hold_stays_until_mpirun_ends_it() -> None:
    process = start("sh", "-c", "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.02; done")
    data = read_until(process, b"up")
    rank = int(records(data)[0][2].split()[1])
    process.send_signal(signal.SIGURG)
    os.kill(rank, signal.SIGTERM)
    data += read_until(process, b"x . ")
    assert life(data)[-1] == ("x", [b"gpu7", b"0", b"0", b"0"])
    time.sleep(0.3)
    assert process.poll() is None
    os.killpg(process.pid, signal.SIGTERM)
    assert process.wait(30) == 0
    process.communicate()


def test_one_that_has_to_hold_does_so_for_any_grace() -> None:
    script = "trap 'exit 0' TERM; echo up; while :; do sleep 0.02; done"
    process = start("sh", "-c", script, program=("-c", HELD_LONG, str(KIT_RANK)))
    rank = int(records(read_until(process, b"up"))[0][2].split()[1])
    process.send_signal(signal.SIGURG)
    os.kill(rank, signal.SIGTERM)
    assert process.stdout
    assert process.stdout.readline() == b"held\n"
    assert process.poll() is None
    os.killpg(process.pid, signal.SIGTERM)
    assert process.wait(30) == 0
    process.communicate()


def test_one_that_has_to_hold_ends_with_the_daemon_above_it(tmp_path: Path) -> None:
    script = f"echo $$ >{tmp_path}/rank; trap 'exit 0' TERM; while :; do sleep 0.02; done"
    mark = f"t-{uuid.uuid4().hex[:12]}"
    above = "import subprocess, sys; subprocess.run(sys.argv[1:])"
    words = (sys.executable, "-IS", str(KIT_RANK), "sh", "-c", script)
    process = start(*words, program=("-c", above), KIT_RUN=mark)
    until(lambda: (tmp_path / "rank").exists() and (tmp_path / "rank").read_text().endswith("\n"))
    rank = int((tmp_path / "rank").read_text())
    keeper = parent(rank)
    os.kill(keeper, signal.SIGURG)
    os.kill(rank, signal.SIGTERM)
    read_until(process, b"x . ")
    process.kill()
    until(lambda: not marked(mark))
    process.communicate()


def test_one_that_has_to_hold_before_it_listens_holds() -> None:
    """And its rank hears signals as ever: what was held back for a moment was held back here."""
    blocked = "import re; print(re.search(r'SigBlk:\\s+(\\w+)', open('/proc/self/status').read())[1])"
    process = start(sys.executable, "-c", blocked, program=("-c", HELD_EARLY, str(KIT_RANK)))
    data = read_until(process, b"x . ")
    assert lines_of(data) == [("o", b"0" * 16)]
    time.sleep(0.3)
    assert process.poll() is None
    os.killpg(process.pid, signal.SIGTERM)
    assert process.wait(30) == 0
    process.communicate()


def test_one_that_need_not_hold_ends_with_its_rank() -> None:
    process = start("sh", "-c", "trap 'exit 0' TERM; echo up; while :; do sleep 0.02; done")
    data = read_until(process, b"up")
    os.kill(int(records(data)[0][2].split()[1]), signal.SIGTERM)
    assert process.wait(30) == 0
    process.communicate()


# GPUs


@pytest.mark.parametrize(
    ("environ", "gpus", "expected"),
    [
        ({"KIT_HELD_SLOTS": "gpu1=0,1 gpu7=2,3"}, True, "2,3"),
        ({"KIT_HELD_SLOTS": "gpu1=0,1 gpu7=2,3"}, False, None),
        ({"KIT_HELD_SLOTS": "gpu1=0,1"}, True, None),
        ({"KIT_HELD_SLOTS": "rubbish"}, True, None),
        ({}, True, None),
        # A person's own word goes first.
        ({"KIT_HELD_SLOTS": "gpu7=2", "CUDA_VISIBLE_DEVICES": "0"}, True, "0"),
    ],
)
def test_ranks_see_the_gpus_of_their_slots(
    environ: dict[str, str], gpus: bool, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = load()
    monkeypatch.setattr(module.os.path, "exists", lambda path: gpus and path == "/dev/nvidiactl")
    environment = {"KIT_NODE": "gpu7", **environ}
    assert module.take_devices(environment) == ("", "")
    assert environment.get("CUDA_VISIBLE_DEVICES") == expected
    assert "KIT_HELD_SLOTS" not in environment


# Out of memory


@pytest.mark.parametrize(
    ("before", "after", "end", "oom"),
    [("oom 3\noom_kill 1\n", "oom 3\noom_kill 2\n", "kill -KILL $$", b"1"),
     # The kernel killed the program below a shell.
     ("oom_kill 1\n", "oom_kill 2\n", "exit 137", b"1"), ("oom_kill 1\n", "oom_kill 1\n", "exit 137", b"0"),
     ("oom_kill 1\n", "oom_kill 2\n", "exit 1", b"0"), ("oom_kill 1\n", "oom_kill 1\n", "kill -KILL $$", b"0"),
     ("oom_kill 1\n", "oom_kill 2\n", "kill -SEGV $$", b"0"), ("rubbish\n", "oom_kill x\n", "kill -KILL $$", b"0")],
)  # fmt: skip
def test_the_kernel_says_that_memory_was_over(tmp_path: Path, before: str, after: str, end: str, oom: bytes) -> None:
    counts = tmp_path / "memory.events"
    counts.write_text(before)
    script = f"printf '{after}' >{counts}; {end}"
    process = start("sh", "-c", script, program=("-c", WITH, str(KIT_RANK), str(counts)))
    _, err = process.communicate(timeout=60)
    assert life(err)[-1][1][-1] == oom, err


def test_where_the_kernel_counts_by_the_second_version_and_the_first() -> None:
    assert load().OOM_COUNTS == ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")


def test_hold_and_stacks_are_one_thing_on_both_sides() -> None:
    procs, stacks, module = launcher.load("kitrun.procs"), launcher.load("kitrun.stacks"), load()
    assert procs.HOLD == module.HOLD
    assert module.STACKS == stacks.STACKS + "/%d"


# The folders for what ranks make


def folders(tmp_path: Path) -> dict[str, Any]:
    run = tmp_path / "runs" / "a-run"
    return {"KIT_OUTPUT_DIR": str(run / "output"), "KIT_CHECKPOINT_DIR": str(run / "checkpoints")}


def test_folders_are_there_before_the_command_and_empty_ones_go_after_it(tmp_path: Path) -> None:
    environ = folders(tmp_path)
    script = 'test -d "$KIT_CHECKPOINT_DIR" && echo weights >"$KIT_OUTPUT_DIR/model"'
    process = start("sh", "-c", script, **environ)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    run = tmp_path / "runs" / "a-run"
    assert [path.name for path in run.iterdir()] == ["output"]
    assert (run / "output" / "model").read_text() == "weights\n"


def test_a_run_that_makes_nothing_leaves_no_folder(tmp_path: Path) -> None:
    process = start("true", **folders(tmp_path))
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert list((tmp_path / "runs").iterdir()) == []


def test_the_folders_stay_as_long_as_another_rank_lives(tmp_path: Path) -> None:
    environ = folders(tmp_path)
    sign = tmp_path / "go"
    other = start("sh", "-c", f'until [ -e {sign} ]; do sleep 0.05; done; echo late >"$KIT_OUTPUT_DIR/late"', **environ)
    output = Path(environ["KIT_OUTPUT_DIR"])
    until(output.is_dir)
    first = start("true", **environ)
    first.communicate(timeout=60)
    assert output.is_dir()
    sign.touch()
    _, err = other.communicate(timeout=60)
    assert other.returncode == 0, err
    assert (output / "late").read_text() == "late\n"


def test_a_shared_checkpoint_folder_is_made_and_stays(tmp_path: Path) -> None:
    shared = tmp_path / "nfs" / "checkpoints"
    process = start("true", **{**folders(tmp_path), "KIT_CHECKPOINT_DIR": str(shared)})
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert shared.is_dir()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_the_users_home_is_made_if_nobody_has(tmp_path: Path) -> None:
    """In a cluster, start.sh makes it. In kit local, there is no start.sh."""
    home = tmp_path / "var" / "home" / "ranks"
    at_home = f"{LOADED}\nmodule.HOME = sys.argv[2]\nmodule.become(sys.argv[3:])"
    subprocess.run(
        [sys.executable, "-c", at_home, KIT_RANK, home, "true"], env={**os.environ, "KIT_USER": "1000:1001"}, check=True
    )
    status = home.stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (1000, 1001, 0o700)
    assert home.parent.stat().st_uid == 0


@pytest.mark.parametrize("first", [True, False])
def test_a_home_that_is_there_has_its_owner(tmp_path: Path, first: bool) -> None:
    """Ranks of a host start at the same time: another one may be first, and write to it."""
    home = tmp_path / "home" / "ranks"
    race = f"""{LOADED}
module.HOME = sys.argv[2]
def chown(path, user, group, is_first=sys.argv[3] == "True"):
    assert not os.path.exists(module.HOME)
    if not is_first:
        os.makedirs(module.HOME + "/theirs")
module.os.chown = chown
module.make_home(1000, 1001)
"""
    subprocess.run([sys.executable, "-c", race, KIT_RANK, home, str(first)], check=True)
    assert [path.name for path in home.parent.iterdir()] == ["ranks"]
    assert [path.name for path in home.iterdir()] == ([] if first else ["theirs"])


def test_a_folder_that_cannot_be_made_ends_the_rank_before_its_command(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    environ = {**folders(tmp_path), "KIT_CHECKPOINT_DIR": str(tmp_path / "file" / "checkpoints")}
    process = start("sh", "-c", f"touch {tmp_path}/began", **environ)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 4
    assert b"kit-rank: cannot make KIT_CHECKPOINT_DIR: " in err
    assert b"Not a directory" in err
    assert not (tmp_path / "began").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize(
    ("blocked", "name"), [("runs", "KIT_OUTPUT_DIR"), ("runs/a-run/checkpoints", "KIT_CHECKPOINT_DIR")]
)
def test_a_folder_that_cannot_be_made_for_a_user_ends_the_rank_with_the_cause(
    tmp_path: Path, blocked: str, name: str
) -> None:
    file = tmp_path / blocked
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    process = start("sh", "-c", f"touch {tmp_path}/began", **folders(tmp_path), KIT_USER="1000:1000")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 4
    (line,) = [line for line in err.splitlines() if line.startswith(b"kit-rank: ")]
    assert line.startswith(f"kit-rank: cannot make {name}: {tmp_path}/runs".encode())
    assert line.endswith((b": Not a directory", b": File exists"))
    assert b"Traceback" not in err
    assert not (tmp_path / "began").exists()


OF_RANKS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT")
MORE = ("JAX_COORDINATOR_ADDRESS", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
OPEN_MPI = {
    "OMPI_COMM_WORLD_SIZE": "8",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "KIT_PLACES": "gpu1=2 gpu3=2 gpu7=2 gpu4=2",
    "MASTER_ADDR": "10.0.0.1",
    "MASTER_PORT": "12345",
    "HOROVOD_GLOO_IFACE": "ens3",
}


def seen(**environ: str) -> dict[str, str]:
    """Return the variables that a rank sees, of those that kit-rank may set."""
    code, err = run("env", **environ)
    assert code == 0
    pairs = (line.decode().partition("=") for kind, line in lines_of(err) if kind == "o")
    return {name: value for name, _, value in pairs if name in (*OF_RANKS, *MORE)}


def test_a_rank_sees_the_variables_of_pytorch_and_jax() -> None:
    assert seen(**OPEN_MPI) == {
        "RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "NODE_RANK": "2",
        "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "12345", "JAX_COORDINATOR_ADDRESS": "10.0.0.1:12345",
        "GLOO_SOCKET_IFNAME": "ens3", "TP_SOCKET_IFNAME": "ens3",
    }  # fmt: skip


@pytest.mark.parametrize("address", ["fd00::1", "[fd00::1]"])
def test_jax_gets_an_ipv6_address_in_brackets(address: str) -> None:
    """gRPC would take all of fd00::1:12345 for the address. PyTorch wants MASTER_ADDR without brackets."""
    variables = seen(**{**OPEN_MPI, "MASTER_ADDR": address})
    assert (variables["JAX_COORDINATOR_ADDRESS"], variables["MASTER_ADDR"]) == ("[fd00::1]:12345", address)


def test_a_users_variables_stay() -> None:
    own = dict.fromkeys((*OF_RANKS, *MORE), "mine")
    assert seen(**{**OPEN_MPI, **own}) == own


def test_a_role_of_a_parameter_server_sees_no_address() -> None:
    without = {name: value for name, value in OPEN_MPI.items() if not name.startswith("MASTER")}
    assert seen(**without).keys() == {"GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"}


def test_setproctitle_keeps_the_mark_of_a_rank() -> None:
    assert lines_of(run("echo $SPT_NOENV")[1]) == [("o", b"1")]
    assert lines_of(run("echo $SPT_NOENV", SPT_NOENV="mine")[1]) == [("o", b"mine")]


def test_ranks_of_one_container_meet_in_it() -> None:
    """As `kit local` starts them: without a run, so that nothing is relayed."""
    plain = {name: value for name, value in MARKED.items() if name != "KIT_RUN"}
    script = "echo $RANK $WORLD_SIZE $NODE_RANK $MASTER_ADDR:$MASTER_PORT"
    done = subprocess.run(
        [sys.executable, "-IS", str(KIT_RANK), "sh", "-c", script],
        capture_output=True, text=True, check=True, env={**plain, "OMPI_COMM_WORLD_SIZE": "8"},
    )  # fmt: skip
    assert done.stdout == "5 8 0 127.0.0.1:29500\n"


@pytest.mark.parametrize("killed", [False, True])
def test_the_counters_of_the_run_are_removed_with_its_last_rank_here(tmp_path: Path, killed: bool) -> None:
    mark = f"test-{uuid.uuid4().hex}"
    counters = Path(f"/dev/shm/kit-readiness-{mark}")
    script = 'mkdir "$KIT_READINESS" && echo "$KIT_READINESS" && touch "$KIT_READINESS/5.1"' + (
        " && kill -9 $$" if killed else ""
    )
    process = start("sh", "-c", script, **folders(tmp_path), KIT_RUN=mark)
    out, err = process.communicate(timeout=30)
    assert str(counters).encode() in out + err
    assert not counters.exists()
