"""Tests the door with a fake ssh on the PATH that runs the launcher here, or misbehaves."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kit.errors import (
    AnswerError,
    EngineDownError,
    KitError,
    LoginRefusedError,
    NotReadyError,
    StepError,
    UnreachableError,
)
from kit.model.host import Host, Login
from kit.model.run import RUN_ID
from kit.model.values import replace
from kit.remote.engine import hiccups
from kit.remote.machine.operator import operator
from kit.remote.run.door import VERSION, Door, new_run_id
from kit.remote.run.log import RunLog
from kit.remote.run.sweep import sweep
from kit.remote.ssh import attempts
from kit.remote.ssh.retry import pause_s
from kit.remote.ssh.transport import Completed
from tests.fakes.facts import host
from tests.fakes.head import Head, until
from tests.fakes.vm import RESET

LOGIN = Login(host="gpu1", address="10.0.0.1", user="root", port=None, key=None, known_hosts=None)

Ssh = Callable[[str], Door]


@pytest.fixture
def with_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ssh:
    """Return a door whose ssh is this shell script."""

    def make(script: str) -> Door:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        file = folder / "ssh"
        # Nothing is in its settings, which it prints without a connection.
        file.write_text(f'#!/bin/sh\n[ "$1" != -G ] || exit 0\n{script}\n')
        file.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        return Door(LOGIN, "kit-lab-mpihead")

    return make


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let attempts to connect follow each other at once."""

    def none(*words: Any) -> float | None:
        return None if pause_s(*words) is None else 0.001

    monkeypatch.setattr(attempts, "pause_s", none)


@pytest.fixture
def local(head: Head, monkeypatch: pytest.MonkeyPatch) -> Door:
    """ssh runs the remote command here, and docker exec runs the launcher."""
    head.record.write_text('{"kit": 1, "name": "lab"}\n')
    monkeypatch.setenv("PATH", f"{head.reached_by_ssh()}:{os.environ['PATH']}")
    return Door(LOGIN, "kit-lab-mpihead")


def lines(door: Door) -> list[bytes]:
    """Return all lines of the log, up to the end of the run."""
    log = RunLog()
    lines: list[bytes] = []
    while (data := door.read(30.0)) is not None:
        for entry in log.feed(data):
            lines += entry.lines
            if entry.fields.get("event") == "ended":
                return lines
    pytest.fail("the stream ended before the run")


@pytest.mark.skipif(os.geteuid() != 0 and not shutil.which("sudo"), reason="needs root, or sudo without a password")
class TestAgainstTheLauncher:
    def test_a_whole_run(self, local: Door, head: Head) -> None:
        local.open()
        assert json.loads(local.record) == {"kit": 1, "name": "lab"}
        assert local.living == ()
        command = (head.folder / "docker-calls").read_text()
        assert command == "exec --interactive kit-lab-mpihead python3 -IS /opt/kit/bin/kit-launch\n"
        answer = local.ask(head.request("sh", "-c", "echo one; echo two"))
        assert answer == {"started": head.ids[0]}
        assert lines(local) == [b"one", b"two"]
        assert local.read(30.0) is None
        assert local.over() == ("", 0)
        local.close()
        head.nothing_left()

    def test_it_knows_who_lives(self, local: Door, head: Head) -> None:
        first, _ = head.run("sleep", "600")
        local.open()
        assert [run["id"] for run in local.living] == head.ids
        local.close()
        first.stop(grace=0.0)
        first.story()

    def test_the_list_of_needed_snapshots_is_no_older_than_it_says(self, local: Door, head: Head) -> None:
        before = time.time()
        local.start()
        asked = time.time()
        local.open()
        assert before <= local.needed.at <= asked
        local.close()
        head.nothing_left()

    def test_one_that_is_abandoned_ends(self, local: Door, head: Head) -> None:
        local.start()
        local.close()
        assert not head.runs.exists()
        head.nothing_left()

    def test_close_before_any_request(self, local: Door, head: Head) -> None:
        local.open()
        local.close()
        local.close()
        local.send({"op": "attach"})
        head.nothing_left()

    def test_reading_does_not_wait_for_ever(self, local: Door, head: Head) -> None:
        local.open()
        local.ask(head.request("sleep", "600"))
        read_end, write_end = os.pipe()
        data = b""
        while b'"attempt"' not in data:
            piece = local.read(30.0)
            assert piece is not None
            data += piece
        while local.read(0.2):
            pass
        os.write(write_end, b"!")
        start = time.monotonic()
        assert local.read(60.0, also=read_end) == b""
        assert time.monotonic() - start < 30
        os.close(read_end)
        os.close(write_end)
        local.send({"stop": {"why": "x", "grace": 0, "by": "me"}})
        lines(local)
        local.close()

    def test_an_operator_shows_while_kit_is_busy(self, local: Door, head: Head) -> None:
        local.open()
        local.ask(head.request("sleep", "600"))
        local.keep_showing(0.05)
        seen = head.runs / head.ids[0] / "operator"
        for _ in range(3):
            before = seen.stat().st_mtime
            until(partial(lambda then: seen.stat().st_mtime > then, before))
        local.send({"stop": {"why": "x", "grace": 0, "by": "me"}})
        lines(local)
        local.close()


@pytest.mark.parametrize(
    ("script", "kind", "message", "hint"),
    [
        ("echo 'ssh: connect to host 10.0.0.1 port 22: Connection refused' >&2; exit 255", UnreachableError,
         "no SSH connection to root@10.0.0.1: ssh: connect", "ssh root@10.0.0.1"),
        ("echo 'kex_exchange_identification: read: Connection reset by peer' >&2; echo again >&2; exit 255",
         UnreachableError, "10.0.0.1 hung up before the login: kex_", "PerSourcePenalties"),
        ("echo 'Permission denied (publickey).' >&2; exit 255", LoginRefusedError, "Permission denied",
         "ssh root@10.0.0.1"),
        ("echo 'sudo: a password is required' >&2; exit 1", NotReadyError, "cannot become root", "sudo without"),
        ("echo 'Error response from daemon: No such container: kit-lab-mpihead' >&2; exit 1", NotReadyError,
         "no cluster runs here", "If kit ps shows mpihead on another host"),
        ("echo 'sudo: unable to resolve host gpu1' >&2; echo 'OCI runtime exec failed: x'; exit 126", NotReadyError,
         "the head's launcher did not start: OCI runtime exec failed: x", "kit ps"),
        ("echo 'Error response from daemon: container 12 is not running' >&2; exit 1", NotReadyError,
         "no cluster runs here", "run: kit deploy"),
        ("echo 'Cannot connect to the Docker daemon at unix:///run/docker.sock. Is it running?' >&2; exit 1",
         EngineDownError, "no Docker Engine answers: Cannot connect", "sudo systemctl start docker"),
        ("echo 'failed to connect to the docker API at unix:///run/docker.sock; check' >&2; exit 1",
         EngineDownError, "no Docker Engine answers: failed to connect", "kit ssh gpu1 -- sudo journalctl -u docker"),
        ("echo 'sh: 1: exec: docker: not found' >&2; exit 127", NotReadyError, "launcher did not start", "kit deploy"),
        ("exit 0", NotReadyError, "did not start: exit 0", "kit deploy"),
        ("echo welcome to gpu1; echo '{\"json\": 1}'; exit 0", NotReadyError, "did not start", "kit deploy"),
        ("echo '{\"kit-launch\": 1, \"record\": \"r\"}'; cat >/dev/null", NotReadyError,
         "another version of kit's launcher", "run: kit deploy"),
        ("echo '{\"kit-launch\": 9, \"record\": \"r\"}'; cat >/dev/null", NotReadyError,
         "a newer kit deployed the cluster", "update kit on this machine"),
        ("echo '{\"kit-launch\": \"9\", \"record\": \"r\"}'; cat >/dev/null", NotReadyError,
         "another version of kit's launcher", "run: kit deploy"),
    ],
)  # fmt: skip
def test_a_launcher_that_does_not_answer(  # noqa: PLR0917
    with_ssh: Ssh, no_pauses: None, script: str, kind: type[KitError], message: str, hint: str
) -> None:
    door = with_ssh(script)
    with pytest.raises(kind) as caught:
        door.open()
    door.close()
    assert message in caught.value.message
    assert hint in str(caught.value.hint)
    assert caught.value.host == "gpu1"


NO_EXEC = f"OCI runtime exec failed: exec failed: {RESET}: unknown"
HELLO = f"""echo '{{"kit-launch": {VERSION}, "record": "r", "runs": []}}'"""


def test_a_login_that_says_something_of_its_own(with_ssh: Ssh) -> None:
    door = with_ssh(f"echo 'Welcome to Ubuntu'; echo; echo '{{}}'; echo '[1]'; {HELLO}; cat >/dev/null")
    door.open()
    door.close()
    assert door.record == "r"


@pytest.mark.parametrize(("script", "most"), [("yes ''", "10000 lines"), ("yes $(printf %0500d 1)", "1048576 bytes")])
def test_a_login_that_never_stops_talking_is_refused(with_ssh: Ssh, script: str, most: str) -> None:
    door = with_ssh(f"exec {script}")
    with pytest.raises(AnswerError, match=most):
        door.open()
    door.close()


@pytest.mark.parametrize("stream", [1, 2])
def test_an_exec_that_never_began_is_requested_again(
    with_ssh: Ssh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: int
) -> None:
    monkeypatch.setattr(hiccups, "PAUSE_S", 0.01)
    count = f"echo try >>{tmp_path}/tries"
    fails = f"echo '{NO_EXEC}' >&{stream}; exit 126"
    door = with_ssh(f"{count}; [ $(wc -l <{tmp_path}/tries) = 3 ] || {{ {fails}; }}; {HELLO}; cat >{tmp_path}/sent")
    door.open()
    door.keep_showing(0.01)
    sent = tmp_path / "sent"
    # The shell prints its first line before it has created the file.
    until(lambda: sent.exists() and sent.stat().st_size > 0)
    door.close()
    assert door.record == "r"
    again = with_ssh(f"{count}; {fails}")
    with pytest.raises(NotReadyError, match=r"launcher did not start: OCI runtime exec failed: .* connection reset"):
        again.open()
    again.close()
    assert (tmp_path / "tries").read_text() == "try\n" * 6


@pytest.mark.parametrize("patient", [True, False])
def test_a_kept_connection_that_is_dead_is_replaced_once(with_ssh: Ssh, tmp_path: Path, patient: bool) -> None:
    """The master is gone or its host rebooted: ssh ends with 255 and often prints nothing."""
    (tmp_path / "socket").touch()
    login = replace(LOGIN, socket=str(tmp_path / "socket"))
    with_ssh(f"rm {tmp_path}/socket 2>/dev/null && exit 255; {HELLO}; cat >/dev/null")
    door = Door(login, "kit-lab-mpihead")
    door.open(patient=patient)
    door.close()
    assert door.record == "r"
    (tmp_path / "socket").touch()
    with_ssh(f"echo try >>{tmp_path}/tries; exit 255")
    again = Door(login, "kit-lab-mpihead")
    with pytest.raises(UnreachableError, match="exit 255"):
        again.open(patient=patient)
    again.close()
    assert (tmp_path / "tries").read_text() == "try\n" * 2


def test_a_head_that_hangs_up_is_asked_again(with_ssh: Ssh, tmp_path: Path, no_pauses: None) -> None:
    hung_up = "echo 'kex_exchange_identification: Connection closed by remote host' >&2; exit 255"
    door = with_ssh(
        f"echo try >>{tmp_path}/tries; [ $(wc -l <{tmp_path}/tries) = 3 ] || {{ {hung_up}; }}; {HELLO}; cat"
    )
    door.open()
    door.close()
    assert door.record == "r"
    impatient = with_ssh(f"echo try >>{tmp_path}/once; {hung_up}")
    with pytest.raises(UnreachableError, match="hung up"):
        impatient.open(patient=False)
    impatient.close()
    assert (tmp_path / "once").read_text() == "try\n"


@pytest.mark.parametrize(
    ("script", "kind", "message"),
    [
        (f"{HELLO}; read -r line; exit 255", UnreachableError, "the connection to the head broke"),
        (f"{HELLO}; read -r line; echo 'Timeout, server not responding.' >&2; exit 255", UnreachableError,
         "the connection to the head broke: Timeout, server not responding."),
        (f"{HELLO}; read -r line; exit 137", NotReadyError, "without a message (exit 137)"),
        (f"{HELLO}; read -r line; echo 'Error: No such exec instance: 1a2b' >&2; exit 1", EngineDownError,
         "the Docker Engine restarted, or the container was stopped or removed: Error: No such exec"),
        # It ends before the request.
        (f"{HELLO}; exec <&-; exit 137", NotReadyError, "without a message (exit 137)"),
    ],
)  # fmt: skip
def test_a_launcher_that_goes(with_ssh: Ssh, script: str, kind: type[KitError], message: str) -> None:
    door = with_ssh(script)
    door.open()
    with pytest.raises(kind) as caught:
        door.ask({"op": "start", "long": "x" * 200_000})
    door.close()
    assert message in caught.value.message
    assert caught.value.host == "gpu1"


def test_one_that_does_not_go_is_left_behind(with_ssh: Ssh) -> None:
    door = with_ssh(f"{HELLO}; exec sleep 600")
    door.open()
    door.close()
    door.close()


def test_a_door_that_was_not_opened() -> None:
    door = Door(LOGIN, "kit-lab-mpihead")
    door.close()
    with pytest.raises(RuntimeError):
        door.answer()


class Answering:
    """A transport with a separate answer for each host."""

    def __init__(self, answers: dict[str, Completed | KitError], one: Host) -> None:
        self.host = one
        self._answers = answers

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
        answer = self._answers[self.host.name]
        if isinstance(answer, KitError):
            raise answer
        return answer

    def close(self) -> None:
        pass


def test_sweep_does_not_take_silence_for_none() -> None:
    answers: dict[str, Completed | KitError] = {
        "gpu1": Completed(code=0, stdout=b"0\n", stderr=b""),
        "gpu2": Completed(code=0, stdout=b"2\n", stderr=b""),
        "gpu3": Completed(code=1, stdout=b"", stderr=b"sudo: a password is required"),
        "gpu4": Completed(code=0, stdout=b"", stderr=b""),
        "gpu5": UnreachableError("gone", host="gpu5"),
    }
    left, failures = sweep([host(n) for n in range(1, 6)], "r1", lambda one: Answering(answers, one))
    assert left == {"gpu1": 0, "gpu2": 2}
    assert set(failures) == {"gpu3", "gpu4", "gpu5"}
    assert isinstance(failures["gpu3"], StepError)


def test_run_ids_differ_and_sort_by_time() -> None:
    first, second = new_run_id(), new_run_id()
    assert first != second
    assert RUN_ID.fullmatch(first)


def test_an_operator_has_a_name() -> None:
    user, _, machine = operator().partition("@")
    assert user
    assert machine
