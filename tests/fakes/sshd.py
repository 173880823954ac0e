"""An sshd on this machine, in this process: it runs commands with sh, and records what clients ask for beside that."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any

import paramiko
import paramiko.common


class Sshd:
    """Listens on 127.0.0.1. `extras` has a word for each request that is no command, in the order of their arrival.

    `forwards`: it forwards connections to ports of this machine, as sshd does by default. `knows`: it accepts keys, and
    accepts all. `ways` is how it lets users log in. `offers` has the user of each key that a client offered. `login` is
    shell text that a login's own files run first.
    """

    def __init__(
        self,
        host_key: Path,
        *,
        address: str = "127.0.0.1",
        forwards: bool = False,
        knows: bool = True,
        ways: str = "publickey",
        login: str = "",
    ) -> None:
        self._login = login
        self._forwards = forwards
        self._knows = knows
        self._ways = ways
        self._key = paramiko.Ed25519Key.from_private_key_file(str(host_key))
        self._listener = socket.create_server((address, 0))
        self._transports: list[paramiko.Transport] = []
        self.port = int(self._listener.getsockname()[1])
        self.extras: list[str] = []
        self.offers: list[str] = []
        self.connections = 0
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        # A thread that still waits on a closed socket takes connections of the next one with its number.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)
        self._listener.close()
        for transport in self._transports:
            transport.close()

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            transport = paramiko.Transport(peer)
            transport.add_server_key(self._key)
            self._transports.append(transport)
            with contextlib.suppress(paramiko.SSHException, EOFError, OSError):
                session = _Session(
                    self.extras,
                    self.offers,
                    forwards=self._forwards,
                    knows=self._knows,
                    ways=self._ways,
                    login=self._login,
                )
                transport.start_server(server=session)
                if self._forwards:
                    threading.Thread(target=_join, args=(transport, session.targets), daemon=True).start()


class _Session(paramiko.ServerInterface):
    def __init__(
        self, extras: list[str], offers: list[str], *, forwards: bool, knows: bool, ways: str, login: str
    ) -> None:
        self._extras = extras
        self._offers = offers
        self._forwards = forwards
        self._knows = knows
        self._ways = ways
        self._login = login
        self.targets: dict[int, socket.socket] = {}

    def get_allowed_auths(self, username: str) -> str:
        return self._ways

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        self._offers.append(username)
        return int(paramiko.common.AUTH_SUCCESSFUL if self._knows else paramiko.common.AUTH_FAILED)

    def check_channel_request(self, kind: str, chanid: int) -> int:
        if kind != "session":
            self._extras.append(kind)
            return int(paramiko.common.OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED)
        return int(paramiko.common.OPEN_SUCCEEDED)

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        threading.Thread(target=_run, args=(channel, self._login, command), daemon=True).start()
        return True

    def check_channel_forward_agent_request(self, channel: paramiko.Channel) -> bool:
        self._extras.append("agent")
        return True

    def check_channel_x11_request(self, *_words: Any) -> bool:
        self._extras.append("x11")
        return True

    def check_port_forward_request(self, address: str, port: int) -> int:
        self._extras.append("remote forwarding")
        return 1

    def check_channel_direct_tcpip_request(self, chanid: int, origin: Any, destination: Any) -> int:
        self._extras.append("local forwarding")
        if not self._forwards:
            return int(paramiko.common.OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED)
        try:
            self.targets[chanid] = socket.create_connection(destination, timeout=10)
        except OSError:
            return int(paramiko.common.OPEN_FAILED_CONNECT_FAILED)
        return int(paramiko.common.OPEN_SUCCEEDED)

    def check_channel_pty_request(self, *_words: Any) -> bool:
        self._extras.append("pty")
        return True


def _join(transport: paramiko.Transport, targets: dict[int, socket.socket]) -> None:
    """Connect each forwarded channel with the socket that was opened for it."""
    while transport.is_active():
        channel = transport.accept(1)
        if channel is None or channel.get_id() not in targets:
            continue
        there = targets.pop(channel.get_id())
        there.settimeout(None)
        for source, sink in ((there, channel), (channel, there)):
            threading.Thread(target=_pass, args=(source, sink), daemon=True).start()


def _pass(source: Any, sink: Any) -> None:
    with contextlib.suppress(OSError, EOFError):
        while data := source.recv(1 << 15):
            sink.sendall(data)
        (sink.shutdown_write if isinstance(sink, paramiko.Channel) else lambda: sink.shutdown(socket.SHUT_WR))()


def _run(channel: paramiko.Channel, login: str, command: bytes) -> None:
    process = subprocess.Popen(
        ["sh", "-c", f"{login}\n{command.decode()}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    )
    pumps = [
        threading.Thread(target=_pump, args=(process.stdout, channel.sendall)),
        threading.Thread(target=_pump, args=(process.stderr, channel.sendall_stderr)),
    ]
    for pump in pumps:
        pump.start()
    threading.Thread(target=_feed, args=(channel, process), daemon=True).start()
    for pump in pumps:
        pump.join()
    with contextlib.suppress(OSError, EOFError):
        code = process.wait()
        # As sshd, it has no exit status for a command that a signal ended.
        if code >= 0:
            channel.send_exit_status(code)
        channel.close()


def _pump(pipe: Any, send: Any) -> None:
    with contextlib.suppress(OSError):
        while data := pipe.read(1 << 15):
            send(data)


def _feed(channel: paramiko.Channel, process: subprocess.Popen[bytes]) -> None:
    stdin = process.stdin
    with contextlib.suppress(OSError):
        while stdin is not None and (data := channel.recv(1 << 15)):
            stdin.write(data)
    if stdin is not None:
        stdin.close()
