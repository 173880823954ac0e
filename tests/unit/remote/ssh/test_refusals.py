"""A host that hangs up before the login: told as that by both clients, from a real connection; and what is not that."""

from __future__ import annotations

import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from kit.errors import LoginRefusedError, UnreachableError
from kit.model.host import Host, Login
from kit.remote.ssh import fabric
from kit.remote.ssh.fabric import FabricTransport
from kit.remote.ssh.openssh import openssh_argv
from kit.remote.ssh.refusals import dropped, no_session

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
    for each in sockets:
        each.close()


def by_fabric(login: Login) -> UnreachableError:
    with pytest.raises(UnreachableError) as caught:
        FabricTransport(Host(name="gpu1", address=login.address), login).run(["true"])
    assert caught.value.host == "gpu1"
    return caught.value


@pytest.mark.parametrize("manner", ["penalty", "close", "reset"])
def test_an_address_that_is_turned_away(
    serve: Serve, manner: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    login = serve(manner)
    done = subprocess.run(
        [*openssh_argv(login), "true"], check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.returncode == 255
    for error in (no_session(login, done.stderr.strip()), by_fabric(login)):
        assert error.message.startswith("127.0.0.1 hung up before the login: ")
        for word in ("PerSourcePenalties", "fail2ban", "MaxStartups", "some minutes", "journalctl -u ssh"):
            assert word in str(error.hint)
        assert error.host == "gpu1"
        assert not isinstance(error, LoginRefusedError)
    # Paramiko logs a traceback of each try.
    assert capfd.readouterr().err == ""


def test_one_that_says_nothing_is_not_that(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    # The two clocks are far apart: a machine that stands still for a while does not make them one.
    monkeypatch.setattr(fabric, "CONNECT_TIMEOUT_S", 60.0)
    monkeypatch.setattr(fabric, "FIRST_WORD", 0.01)
    error = by_fabric(serve("silent"))
    assert "received no SSH banner within" in error.message
    assert "hung up" not in error.message


@pytest.mark.parametrize(
    ("said", "is_it"),
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
def test_what_ssh_says(said: str, is_it: bool) -> None:
    assert dropped(said) is is_it


LOGIN = Login(host="gpu1", address="10.0.0.1", user=None, port=None, key=None, known_hosts=None)


def test_a_refused_login_is_told_apart() -> None:
    refused = no_session(LOGIN, "root@10.0.0.1: Permission denied (publickey).")
    assert isinstance(refused, LoginRefusedError)
    assert refused.message == "10.0.0.1 refused the login: root@10.0.0.1: Permission denied (publickey)."
    assert not isinstance(
        no_session(LOGIN, "ssh: connect to host 10.0.0.1 port 22: No route to host"), LoginRefusedError
    )
    assert no_session(LOGIN, "").message == "no SSH connection to 10.0.0.1: exit 255"
