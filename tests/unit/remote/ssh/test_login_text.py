"""What a VM's login prints reaches no reader of a command's output, on none of kit's ways to a VM."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from kit.errors import AnswerError, UnreachableError
from kit.model.answer import OddAnswer
from kit.model.host import Login
from kit.remote.cluster import lock
from kit.remote.engine.client import Engine
from kit.remote.run import door
from kit.remote.run.door import Door, LogFile
from kit.remote.ship.porters import FarProgram
from kit.remote.ssh.fabric import FabricTransport
from kit.remote.ssh.login_text import MOST_BEFORE, LoginText, own_output
from kit.remote.ssh.program import packed
from kit.remote.ssh.transport import BEGUN
from tests.fakes.facts import host
from tests.fakes.sshd import Sshd

LOGIN = Login(host="gpu1", address="127.0.0.1", user="root", port=None, key=None, known_hosts=None)
# As a shell's printf reads them. The second one sets the title of a window, and ends no line.
PRINTS = {"nothing": "", "a line": r"Welcome to gpu1\n", "a title": r"\033]0;gpu1\007"}
prints = pytest.mark.parametrize("text", PRINTS.values(), ids=PRINTS.keys())
DOCKER = """
import json, sys
if "exec" in sys.argv:
    print('{"kit-launch": 2, "record": "r"}', flush=True)
    sys.stdin.read()
    sys.exit()
while sys.stdin.buffer.readline().strip():
    while sys.stdin.buffer.readline().strip():
        pass
    text = json.dumps({"ApiVersion": "1.45", "Id": "sha256:1", "Size": 3})
    print(f"HTTP/1.1 200 OK\\r\\nContent-Length: {len(text)}\\r\\n\\r\\n{text}", end="", flush=True)
"""
Install = Callable[[str], None]


@pytest.fixture
def login_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Return a function that installs an ssh whose login prints this, and which runs its last word here, as root."""
    folder = tmp_path / "bin"
    folder.mkdir()

    def install(text: str) -> None:
        for name, program in {
            "ssh": f"""#!/bin/sh\nfor last; do :; done\nprintf '{text}'\nexec sh -c "$last"\n""",
            "id": "#!/bin/sh\necho 0\n",
            "docker": f"#!{sys.executable}\n{DOCKER}",
        }.items():
            (folder / name).write_text(program)
            (folder / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    return install


@prints
def test_the_lock_is_taken(login_prints: Install, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "ANSWER_S", 10.0)
    login_prints(text)
    taken = lock.take(LOGIN, str(tmp_path / "kit" / ".lock" / "lab"), "kit deploy")
    taken.check()
    taken.release()


@prints
def test_the_door_opens(login_prints: Install, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "HELLO_S", 20.0)
    login_prints(text)
    with closing(Door(LOGIN, "kit-lab-mpihead")) as opened:
        opened.open()
        assert opened.record == "r"


@prints
def test_the_first_report_of_a_program_is_heard(login_prints: Install, text: str) -> None:
    login_prints(text)
    heard: list[bytes | OddAnswer | None] = []
    over = threading.Event()

    def hear(_: object, report: bytes | OddAnswer | None) -> None:
        heard.append(report)
        if report is None:
            over.set()

    program = FarProgram(LOGIN, packed("print('{\"first\": 1}')\n"), hear, read=bytes, most=1000)
    assert over.wait(30)
    program.kill()
    assert heard == [b'{"first": 1}\n', None]


@prints
def test_the_engine_answers(login_prints: Install, text: str) -> None:
    login_prints(text)
    with closing(Engine.over_ssh(LOGIN)) as engine:
        image = engine.image("kit:1")
    assert image is not None
    assert image.image_id == "sha256:1"


def test_a_login_without_end_is_that_hosts_error(login_prints: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    login_prints("x'; head -c 3000000 /dev/zero; printf '")
    with pytest.raises(AnswerError, match=f"more than {MOST_BEFORE} bytes") as caught:
        Engine.over_ssh(LOGIN)
    assert caught.value.host == "gpu1"
    monkeypatch.setattr(door, "script", lambda *_: ["true"])
    with closing(LogFile(LOGIN, "/opt/kit/lab", "r1")) as log, pytest.raises(AnswerError, match="its login printed"):
        whole(log)


def test_what_a_login_prints_that_lets_nobody_in(login_prints: Install) -> None:
    login_prints("This account is not available.'; exit 1; '")
    with pytest.raises(UnreachableError, match="This account is not available"):
        Engine.over_ssh(LOGIN)


@prints
def test_a_log_begins_with_its_first_line(login_prints: Install, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    login_prints(text)
    monkeypatch.setattr(door, "script", lambda *_: ["printf", r"first\n\377second\n"])
    with closing(LogFile(LOGIN, "/opt/kit/lab", "r1")) as log:
        assert whole(log) == b"first\n\xffsecond\n"


def whole(log: LogFile) -> bytes:
    text = b""
    while (data := log.read(30.0)) is not None:
        text += data
    return text


@prints
def test_pythons_ssh_returns_a_commands_own_output(login_prints: Install, text: str, tmp_path: Path) -> None:
    login_prints("")
    for name in ("host", "key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name], check=True)
    with closing(Sshd(tmp_path / "host", login=f"printf '{text}'; printf '{text}' >&2")) as sshd:
        (tmp_path / "known").write_text(f"[127.0.0.1]:{sshd.port} {(tmp_path / 'host.pub').read_text()}")
        login = Login(
            host="gpu1",
            address="127.0.0.1",
            user="root",
            port=sshd.port,
            key=str(tmp_path / "key"),
            known_hosts=str(tmp_path / "known"),
        )
        with closing(FabricTransport(host(1), login)) as transport:
            done = transport.run(["sh", "-c", "cat; echo oops >&2; exit 3"], stdin=b"[1]\n")
    assert (done.code, done.stdout, done.stderr) == (3, b"[1]\n", b"oops\n")


def test_the_mark_may_come_in_pieces() -> None:
    text = LoginText()
    assert b"".join(text.cut(bytes([byte])) for byte in b"title" + BEGUN + b"own" + BEGUN) == b"own" + BEGUN
    assert bytes(text.before) == b"title"


def test_a_command_that_never_began_has_what_its_login_printed() -> None:
    assert own_output(bytearray(b"not available\n")) == b"not available\n"
