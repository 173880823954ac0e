"""images/bin/kit-torchrun, with a program in torchrun's place."""

from __future__ import annotations

import base64
import json
import os
import pickle
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from kit.plan.run.logevents import restarted
from tests.fakes import launcher
from tests.fakes.head import Head, until

frames = launcher.load("kitrun.frames")
procs = launcher.load("kitrun.procs")
KIT_TORCHRUN = launcher.BIN / "kit-torchrun"
OF_HOST = {
    "KIT_AGENT": "torchrun",
    "KIT_PLACES": "gpu1=2 gpu2=3",
    "KIT_NODE": "gpu2",
    "KIT_ADDRESS": "10.0.0.2",
    "MASTER_ADDR": "10.0.0.1",
    "MASTER_PORT": "12345",
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "PMIX_RANK": "1",
}
# As torchrun: each rank in a separate session, under the words behind --no-python. It ends them on TERM.
TORCHRUN = """
import os, signal, subprocess, sys
def main():
    words = sys.argv[sys.argv.index("--no-python") + 1:]
    given = dict(word.lstrip("-").split("=", 1) for word in sys.argv[1:] if "=" in word and word.startswith("--"))
    count = int(given["nproc-per-node"])
    own = [{"GROUP_RANK": "1", "RANK": str(2 + n), "LOCAL_RANK": str(n), "WORLD_SIZE": "5"} for n in range(count)]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))
    ranks = [subprocess.Popen(words, env=dict(os.environ, **more), start_new_session=True) for more in own]
    codes = [rank.wait() for rank in ranks]
    sys.exit(max(codes))
"""


# As in PyTorch 2.13.
RENDEZVOUS = """
import pickle
from dataclasses import dataclass
from datetime import datetime, timezone
@dataclass(eq=True, order=True, frozen=True)
class _NodeDesc:
    addr: str
    pid: int
    local_id: int
class _RendezvousState:
    def __init__(self):
        self.round, self.complete, self.deadline, self.closed = 0, False, None, False
        self.participants, self.wait_list, self.redundancy_list, self.last_heartbeats = {}, set(), set(), {}
def full():
    state, nodes = _RendezvousState(), [_NodeDesc("10.0.0.%d" % n, 7, 0) for n in range(3)]
    state.deadline, state.participants = datetime.now(), {node: n for n, node in enumerate(nodes)}
    state.wait_list, state.last_heartbeats = {nodes[0]}, {node: datetime.now(timezone.utc) for node in nodes}
    return state
"""
PACKAGE = "torch/distributed/elastic/rendezvous"


def install(folder: Path, program: str = TORCHRUN, rendezvous: str = RENDEZVOUS) -> None:
    """Make a PyTorch in this folder, whose torchrun is the program."""
    (folder / PACKAGE).mkdir(parents=True, exist_ok=True)
    for package in ("torch", "torch/distributed", "torch/distributed/elastic", PACKAGE):
        (folder / package / "__init__.py").write_text("__version__ = '9.9'\n")
    (folder / "torch/distributed/run.py").write_text(program)
    (folder / PACKAGE / "dynamic_rendezvous.py").write_text(rendezvous)
    (folder / "torchrun").write_text(f"#!{sys.executable}\n")
    (folder / "torchrun").chmod(0o755)


@pytest.fixture
def torchrun(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a host with a torchrun."""
    install(tmp_path)
    run = f"t-{uuid.uuid4().hex[:12]}"
    return {
        **os.environ,
        **OF_HOST,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "KIT_RUN": run,
        "PYTHONPATH": str(tmp_path),
    }


def start(environ: dict[str, str], *argv: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-IS", str(KIT_TORCHRUN), *argv],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ, start_new_session=True,
    )  # fmt: skip


@pytest.fixture
def living(torchrun: dict[str, str], tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Three ranks that take a second to end after TERM."""
    script = f"trap 'sleep 0.5; touch {tmp_path}/saved-$RANK; exit 0' TERM; touch {tmp_path}/up-$RANK; "
    process = start(torchrun, "sh", "-c", script + "while :; do sleep 0.05; done")
    until(lambda: len(list(tmp_path.glob("up-*"))) == 3)
    yield process
    procs.sweep(torchrun["KIT_RUN"])
    process.communicate(timeout=60)


def test_what_ranks_see(torchrun: dict[str, str], tmp_path: Path) -> None:
    script = "import json, os, sys; print(json.dumps([dict(os.environ), sys.stdin.read()]))"
    process = start(torchrun, sys.executable, "-c", script)
    _, err = process.communicate(b"for rank 0", timeout=60)
    assert process.returncode == 0, err
    seen: list[Any] = [json.loads(line) for line in err.splitlines() if line.startswith(b"[")]
    assert len(seen) == 3
    for environ, stdin in seen:
        # Standard input belongs to rank 0, which is on another host.
        assert stdin == ""
        assert environ["NODE_RANK"] == "1"
        assert environ["OMP_NUM_THREADS"] == "1"
        # Otherwise PyTorch 2.13 waits forever after a restart.
        assert environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1"
        assert not [name for name in environ if name.startswith(("OMPI_", "PMIX_"))]


def test_each_rank_reports_its_own_end(torchrun: dict[str, str]) -> None:
    process = start(torchrun, "sh", "-c", "exit $RANK")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 4
    ends = {rank: body for rank, kind, _, body in frames.Splitter().feed(err) if kind == "x"}
    assert ends == {b"2": b"gpu2 2 0 0", b"3": b"gpu2 3 0 0", b"4": b"gpu2 4 0 0"}


def test_its_command_line(torchrun: dict[str, str], tmp_path: Path) -> None:
    install(tmp_path, "import sys\ndef main(): print(*sys.argv[1:])\n")
    process = start(torchrun, "python", "train.py", "--lr", "0.1")
    out, _ = process.communicate(timeout=60)
    words = out.decode().split()
    assert words[:7] == [
        "--rdzv-backend=c10d", "--rdzv-endpoint=10.0.0.1:12345", f"--rdzv-id={torchrun['KIT_RUN']}",
        "--rdzv-conf=is_host=0", "--local-addr=10.0.0.2", "--nnodes=2", "--nproc-per-node=3",
    ]  # fmt: skip
    assert words[-5:] == [str(launcher.BIN / "kit-rank"), "python", "train.py", "--lr", "0.1"]


# Stores what a rank may, and lets the rendezvous load it.
LOADS = """
import base64, os, sys
from torch.distributed.elastic.rendezvous import dynamic_rendezvous as rendezvous
def main():
    bits = base64.b64decode(os.environ["STORED"]) if "STORED" in os.environ else pickled(int(os.environ["PROTOCOL"]))
    try:
        state = rendezvous.pickle.loads(bits)
    except rendezvous.pickle.PickleError as error:
        print("refused", error)
    else:
        print(vars(state) == vars(loaded) and rendezvous.pickle.loads(rendezvous.pickle.dumps(state)).participants)
def pickled(protocol):
    global loaded
    import pickle
    loaded = rendezvous.full()
    return pickle.dumps(loaded, protocol)
"""


class Runs:
    """A pickle that runs a command."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("echo ran",)


def loaded(torchrun: dict[str, str], **values: str) -> str:
    process = start({**torchrun, **values}, "true")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return out.decode().strip()


@pytest.mark.parametrize("protocol", ["3", "4", "5"])
def test_the_state_of_hosts_is_loaded(protocol: str, torchrun: dict[str, str], tmp_path: Path) -> None:
    install(tmp_path, LOADS)
    nodes = ", ".join(f"_NodeDesc(addr='10.0.0.{n}', pid=7, local_id=0): {n}" for n in range(3))
    assert loaded(torchrun, PROTOCOL=protocol) == "{" + nodes + "}"


@pytest.mark.parametrize(
    ("stored", "why"),
    [
        (pickle.dumps(Runs()), "posix.system"),
        (pickle.dumps({"round": Runs()}), "posix.system"),
        (b"cbuiltins\neval\n(Vprint('ran')\ntR.", "builtins.eval"),
        (b"\x80\x04\x8c\x08datetime\x8c\x0bsys.modules\x93.", "datetime.sys.modules"),
        (pickle.dumps({"round": 1}), "dict"),
        (pickle.dumps(datetime.now()), "datetime"),
        (b"", "Ran out of input"),
        (b"\x80\x04K", ""),
        (b"\xff" * 8, ""),
    ],
    ids=("command", "inside", "eval", "dotted", "dictionary", "time", "empty", "cut", "noise"),
)
def test_what_a_rank_stores_runs_nothing_in_torchrun(
    stored: bytes, why: str, torchrun: dict[str, str], tmp_path: Path
) -> None:
    install(tmp_path, LOADS)
    out = loaded(torchrun, STORED=base64.b64encode(stored).decode())
    assert out.startswith("refused no state of a rendezvous: ")
    assert why in out
    assert "ran" not in out.split()


@pytest.mark.parametrize(
    "rendezvous", ["", RENDEZVOUS.replace("import pickle", "import json"), RENDEZVOUS.replace("_NodeDesc", "_Node")]
)
def test_a_torchrun_that_kit_does_not_know_is_not_started(
    rendezvous: str, torchrun: dict[str, str], tmp_path: Path
) -> None:
    install(tmp_path, rendezvous=rendezvous)
    process = start(torchrun, "true")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err.startswith(b"kit-torchrun: PyTorch 9.9: kit does not know how")
    assert err.count(b"\n") == 1


@pytest.mark.parametrize(
    "text",
    [
        "#!{python}\n",
        "#! {python} -s\n",
        "#!/usr/bin/env {python}\n",
        "#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\"\n' '''\n",
        "#!/bin/sh\n'''exec' {python} \"$0\" \"$@\"\n' '''\n",
    ],
)
def test_torchruns_own_python_runs_it(text: str, torchrun: dict[str, str], tmp_path: Path) -> None:
    own = tmp_path / "own" / "python3.99"
    own.parent.mkdir()
    own.symlink_to(sys.executable)
    install(tmp_path, "import sys\ndef main(): print(sys.orig_argv[0], sys.path[0])\n")
    (tmp_path / "torchrun").write_text(text.format(python=own))
    process = start(torchrun, "true")
    out, err = process.communicate(timeout=60)
    assert out.decode().split() == [str(own), str(tmp_path)], err


@pytest.mark.parametrize("text", ["#!/bin/sh\n", "", "#!\n", "#!/gone/python3\n", "#!/bin/sh\n'''exec' 'x y' \"$0\"\n"])
def test_without_one_the_first_python_runs_it(text: str, torchrun: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "python3").symlink_to(sys.executable)
    install(tmp_path, "import sys\ndef main(): print(sys.orig_argv[0])\n")
    (tmp_path / "torchrun").write_text(text)
    process = start(torchrun, "true")
    out, err = process.communicate(timeout=60)
    assert out == b"python3\n", err


def test_a_stopped_run_ends_each_rank_once_and_torchrun_restarts_none(
    torchrun: dict[str, str], living: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    run = torchrun["KIT_RUN"]
    assert sorted(set(procs.ranks(run).values())) == [2, 3, 4]
    procs.end_gently(run)
    until(lambda: len(list(tmp_path.glob("saved-*"))) == 3)
    until(lambda: not procs.ranks(run))
    # torchrun is frozen until mpirun ends this process.
    assert living.poll() is None
    living.send_signal(signal.SIGTERM)
    assert living.wait(60) == -signal.SIGKILL
    until(lambda: not procs.marked(run))


def test_torchrun_is_frozen_before_its_ranks_are_asked_to_end(
    torchrun: dict[str, str], living: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would restart one that ends at once."""
    run = torchrun["KIT_RUN"]
    (program,) = (pid for pid in procs.marked(run) if procs.parent(pid) == living.pid)
    states = []

    def send(pids: Any, sign: int) -> None:
        if sign == signal.SIGTERM:
            states.append(procs.state(program))
        real(pids, sign)

    real = procs.send
    monkeypatch.setattr(procs, "send", send)
    procs.end_gently(run)
    assert states == ["T"]


def test_nobody_waits_long_for_a_process_that_never_stops() -> None:
    assert not procs.await_stillness({os.getpid()}, patience=0.05)
    assert procs.await_stillness(set(), patience=0.0)


def test_a_signal_without_a_stop_is_torchruns(living: subprocess.Popen[bytes]) -> None:
    living.send_signal(signal.SIGTERM)
    assert living.wait(60) == 9


def test_an_image_without_pytorch(torchrun: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "torchrun").unlink()
    process = start({**torchrun, "PATH": str(tmp_path)}, "true")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 127
    assert b"the image has no PyTorch; in kit.yaml, below image:, write frameworks: [pytorch], " in err


def test_it_is_for_hosts_of_a_run_alone(torchrun: dict[str, str]) -> None:
    del torchrun["KIT_PLACES"]
    process = start(torchrun, "true")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert b"--launcher torchrun" in err


RESTARTED = (
    r"printf '\036kit-line 1 u . 6\ngpu1 9\036kit-line 1 x . 10\ngpu1 3 0 0' >&2; "
    r"printf '\036kit-line 1 u . 6\ngpu1 9' >&2; "
)


@pytest.mark.parametrize(("again", "failure"), [("gpu1 0 0 0", None), ("gpu1 5 0 0", 5)])
def test_a_rank_that_torchrun_restarted(head: Head, again: str, failure: int | None) -> None:
    """The end that counts is its last one."""
    script = RESTARTED + rf"printf '\036kit-line 1 x . 10\n{again}' >&2; exit {failure or 0}"
    story = head.done("sh", "-c", script, torchrun=True)
    found = story.ending["failure"]
    assert (found and found["exit_code"]) == failure
    assert story.code == (failure or 0)
    (restart,) = story.events("restart")
    text = "rank 1 on gpu1 ended with exit code 3; torchrun has started all ranks again (restart 1)"
    assert restarted(restart) == text
    assert restarted({"number": 2}) == "a rank failed; torchrun has started all ranks again (restart 2)"


# Rank 1 fails, and torchrun ends rank 0 and starts both again. Rank 0 fails before rank 1 has started.
FAILED_TWICE = (
    r"printf '\036kit-line 0 u . 6\ngpu1 8\036kit-line 1 u . 6\ngpu1 9\036kit-line 1 x . 10\ngpu1 3 0 0' >&2; "
    r"printf '\036kit-line 0 x . 11\ngpu1 0 15 0\036kit-line 0 u . 6\ngpu1 8\036kit-line 0 x . 10\ngpu1 5 0 0' >&2; "
    r"printf '\036kit-line 1 u . 6\ngpu1 9\036kit-line 1 x . 11\ngpu1 0 15 0' >&2; exit 1"
)


def test_a_restarted_rank_that_fails_before_the_others_have_started_is_the_failure(head: Head) -> None:
    failure = head.done("sh", "-c", FAILED_TWICE, torchrun=True).ending["failure"]
    assert (failure["rank"], failure["exit_code"], failure["signal"]) == (0, 5, "")


# The record of how torchrun ended rank 1 comes after rank 0 has started again. Then rank 0 fails.
LATE_END = (
    r"printf '\036kit-line 0 u . 6\ngpu1 8\036kit-line 1 u . 6\ngpu2 9\036kit-line 0 x . 10\ngpu1 3 0 0' >&2; "
    r"printf '\036kit-line 0 u . 6\ngpu1 8\036kit-line 1 x . 11\ngpu2 0 15 0\036kit-line 1 u . 6\ngpu2 9' >&2; "
    r"printf '\036kit-line 0 x . 10\ngpu1 5 0 0\036kit-line 1 x . 11\ngpu2 0 15 0' >&2; exit 1"
)


def test_an_end_whose_record_comes_after_the_restart_is_not_the_failure(head: Head) -> None:
    story = head.done("sh", "-c", LATE_END, torchrun=True)
    failure = story.ending["failure"]
    assert (failure["rank"], failure["exit_code"], failure["signal"]) == (0, 5, "")
    (restart,) = story.events("restart")
    assert (restart["number"], restart["failure"]["rank"], restart["failure"]["exit_code"]) == (1, 0, 3)


def test_mpiruns_numbers_are_not_those_of_ranks(head: Head) -> None:
    """Torchrun 1 ended; rank 1 is another process."""
    text = "first process to do so was: Process name: [[1,1],1] Exit code:    7"
    script = r"printf '\036kit-line 1 u . 6\ngpu1 9' >&2; echo '" + text + "' >&2; exit 7"
    failure = head.done("sh", "-c", script, torchrun=True).ending["failure"]
    assert (failure["kind"], failure["exit_code"]) == ("mpirun", 7)
