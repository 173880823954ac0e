"""Why no session began: both clients report it alike, from real connections and from the words of ssh."""

from __future__ import annotations

import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from kit.errors import LoginRefusedError, UnreachableError
from kit.model.host import Host, Login
from kit.remote.ssh import fabric, openssh
from kit.remote.ssh.fabric import FabricTransport
from kit.remote.ssh.multiplexed import OpenSshTransport
from kit.remote.ssh.openssh import openssh_argv
from kit.remote.ssh.refusals import dropped, failure_of, no_session
from kit.remote.ssh.retry import DROPPED_ATTEMPTS
from kit.remote.ssh.transport import Transport

Serve = Callable[[str], Login]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Something that listens and behaves in that way to each who comes."""
    sockets: list[socket.socket] = []

    def answer(listening: socket.socket, manner: str) -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            if manner == "reset":
                # The client's greeting has come; to close over it, with nothing to linger for, is a reset.
                client.recv(1)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if manner == "penalty":
                client.sendall(b"Not allowed at this time\r\n")
            if manner == "silent":
                sockets.append(client)
            else:
                client.close()

    def start(manner: str) -> Login:
        listening = socket.create_server(("127.0.0.1", 0))
        sockets.append(listening)
        threading.Thread(target=answer, args=(listening, manner), daemon=True).start()
        port = listening.getsockname()[1]
        return Login(host="gpu1", address="127.0.0.1", user="root", port=port, key=None, known_hosts="/dev/null")

    yield start
    for server_socket in sockets:
        server_socket.close()


def by_fabric(login: Login) -> UnreachableError:
    return refused(FabricTransport(Host(name="gpu1", address=login.address), login))


def by_openssh(login: Login) -> UnreachableError:
    return refused(OpenSshTransport(Host(name="gpu1", address=login.address), login))


def refused(transport: Transport) -> UnreachableError:
    with closing(transport), pytest.raises(UnreachableError) as caught:
        transport.run(["true"])
    assert caught.value.host == "gpu1"
    return caught.value


@pytest.mark.parametrize("manner", ["penalty", "close", "reset"])
def test_an_address_that_is_turned_away(
    serve: Serve, manner: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    login = serve(manner)
    done = subprocess.run(
        [*openssh_argv(login), "true"], check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.returncode == 255
    for error in (no_session(login, done.stderr.strip()), by_fabric(login), by_openssh(login)):
        assert error.message.startswith("127.0.0.1 hung up before the login: ")
        for word in ("PerSourcePenalties", "fail2ban", "MaxStartups", "some minutes", "journalctl -u ssh"):
            assert word in str(error.hint)
        assert error.host == "gpu1"
        assert not isinstance(error, LoginRefusedError)
    # A busy sshd may take the next connection.
    assert len(pauses) >= DROPPED_ATTEMPTS - 1
    # Paramiko logs a traceback of each try.
    assert capfd.readouterr().err == ""


def test_one_that_says_nothing_is_not_that(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    # The two clocks are far apart: a pause of the machine must not make them equal.
    monkeypatch.setattr(fabric, "CONNECT_TIMEOUT_S", 60.0)
    monkeypatch.setattr(fabric, "FIRST_WORD", 0.01)
    monkeypatch.setattr(openssh, "CONNECT_TIMEOUT_S", 1)
    login = serve("silent")
    for error in (by_fabric(login), by_openssh(login)):
        assert "received no SSH banner within" in error.message
        assert "hung up" not in error.message


@pytest.mark.parametrize(
    ("message", "is_it"),
    [
        ("kex_exchange_identification: read: Connection reset by peer\nConnection reset by 10.0.0.1 port 22", True),
        ("kex_exchange_identification: Connection closed by remote host\nConnection closed by 10.0.0.1 port 22", True),
        # OpenSSH before 8.2.
        ("ssh_exchange_identification: Connection closed by remote host", True),
        ("ssh_exchange_identification: read: Connection reset by peer", True),
        # In the middle of the login, or of the session.
        ("Connection closed by 10.0.0.1 port 22", False),
        ("Connection to 10.0.0.1 closed by remote host.", False),
        ("Connection timed out during banner exchange", False),
        # No sshd.
        ("kex_exchange_identification: banner line contains invalid characters", False),
        # The jump host is there, and the VM behind it is not.
        ("channel 0: open failed: connect failed: No route to host\nstdio forwarding failed\n"
         "kex_exchange_identification: Connection closed by remote host\n"
         "Connection closed by UNKNOWN port 65535", False),
        ("", False),
    ],
)  # fmt: skip
def test_what_ssh_says(message: str, is_it: bool) -> None:
    assert dropped(message) is is_it


LOGIN = Login(host="gpu1", address="10.0.0.1", user=None, port=None, key=None, known_hosts=None)


CHANGED = """@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
Host key for 10.0.0.1 has changed and you have requested strict checking.
Host key verification failed."""


@pytest.mark.parametrize(
    ("text", "message", "failure"),
    [
        (CHANGED, "is not the one in known_hosts", "settled"),
        ("No ED25519 host key is known for 10.0.0.1 and you have requested strict checking.\n"
         "Host key verification failed.", "is not known here", "settled"),
        ("root@10.0.0.1: Permission denied (publickey).", "10.0.0.1 refused the login", "settled"),
        ("Received disconnect from 10.0.0.1 port 22:2: Too many authentication failures",
         "refused the login", "settled"),
        ("ssh: Could not resolve hostname gpu1: Name or service not known", "does not resolve", "settled"),
        ("Connection timed out during banner exchange\nConnection to 10.0.0.1 port 22 timed out",
         "received no SSH banner within 15 s", "settled"),
        ("ssh: connect to host 10.0.0.1 port 22: Connection timed out", "no SSH connection to 10.0.0.1", "settled"),
        ("ssh: connect to host 10.0.0.1 port 22: Connection refused", "no SSH connection to 10.0.0.1", "absent"),
        ("ssh: connect to host 10.0.0.1 port 22: No route to host", "no SSH connection to 10.0.0.1", "absent"),
        ("kex_exchange_identification: read: Connection reset by peer", "hung up before the login", "dropped"),
    ],
)  # fmt: skip
def test_what_ssh_writes_becomes_an_error_with_a_next_step(text: str, message: str, failure: str) -> None:
    error = no_session(LOGIN, text)
    assert message in error.message
    assert error.hint
    assert error.host == "gpu1"
    assert failure_of(text) == failure


def test_a_refused_login_is_a_separate_error() -> None:
    refused = no_session(LOGIN, "root@10.0.0.1: Permission denied (publickey).")
    assert isinstance(refused, LoginRefusedError)
    assert refused.message == "10.0.0.1 refused the login: root@10.0.0.1: Permission denied (publickey)."
    assert not isinstance(
        no_session(LOGIN, "ssh: connect to host 10.0.0.1 port 22: No route to host"), LoginRefusedError
    )
    assert no_session(LOGIN, "").message == "no SSH connection to 10.0.0.1: exit 255"
