"""FabricTransport: short commands on one VM over a fabric connection, with host keys verified.

Fabric reads ssh_config, opens gateways and authenticates; its own `run` decodes text and feeds standard input a
character at a time, so commands go through a session of its transport instead.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kit.errors import LoginRefusedError, StepError, UnreachableError
from kit.model.host import Host, Login
from kit.remote.ssh.refusals import dropped, dropped_error
from kit.remote.ssh.transport import Completed, as_root

if TYPE_CHECKING:
    import paramiko

CONNECT_TIMEOUT_S = 15.0
# The part of it that sshd has for its first word. Were it all, two clocks of paramiko's would run out together, and the
# one that does not know what was waited for might be the first.
FIRST_WORD = 0.9
# A host that comes back, or an sshd at its MaxStartups, deserves another try.
ATTEMPTS = 3
CHUNK = 1 << 16
CUT_S = 2.0
_SILENT = "it takes the connection, and no sshd says a word in {:.0f} s"
# Paramiko logs what it raises, too; with no handler of ours Python would print its tracebacks.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


class FabricTransport:
    """One thread's connection to one VM; opened by the first command."""

    def __init__(self, host: Host, target: Login) -> None:
        self._host = host
        self._login = target
        self._connection: Any = None

    @property
    def host(self) -> Host:
        return self._host

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
        import paramiko  # noqa: PLC0415

        command = as_root(argv)
        try:
            channel = self._open().transport.open_session(timeout=CONNECT_TIMEOUT_S)
            with channel:
                channel.exec_command(command)
                return self._talk(channel, stdin, timeout_s)
        except (paramiko.SSHException, OSError, EOFError) as error:
            self.close()
            raise UnreachableError(
                f"the connection broke: {error or type(error).__name__}",
                hint=f"try: ssh {self._login.address}; then run the same again",
                host=self._host.name,
            ) from error

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _talk(self, channel: paramiko.Channel, stdin: bytes, timeout_s: float) -> Completed:
        deadline = time.monotonic() + timeout_s
        channel.settimeout(timeout_s)
        out, err = bytearray(), bytearray()
        pending = memoryview(stdin)
        if not pending:
            channel.shutdown_write()
        while True:
            # Asked before reading: what arrived until then is read below, and nothing comes after it.
            over = channel.closed or (channel.exit_status_ready() and channel.eof_received)
            busy = False
            if pending and not over and channel.send_ready():
                pending = pending[channel.send(bytes(pending[:CHUNK])) :]
                busy = True
                if not pending:
                    channel.shutdown_write()
            busy = _drain(channel, out, err) or busy
            if over:
                break
            if time.monotonic() > deadline:
                raise StepError(
                    f"a command did not end within {timeout_s:.0f} s",
                    hint="look at the host's load and its engine (docker info), then try again",
                    host=self._host.name,
                )
            if not busy:
                # A channel has no descriptor to wait for that tells all of this.
                time.sleep(0.002)
        code = channel.recv_exit_status()
        if code < 0 and _is_cut(channel):
            raise EOFError("it ended before the command did")
        return Completed(code=code, stdout=bytes(out), stderr=bytes(err))

    def _open(self) -> Any:
        if self._connection is not None and self._connection.is_connected:
            return self._connection
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._connect()
            except _Retry as error:
                if (error.final or attempt == ATTEMPTS) and dropped(str(error)):
                    raise dropped_error(self._login.address, str(error), self._host.name) from error
                if error.final or attempt == ATTEMPTS:
                    raise UnreachableError(
                        f"no SSH connection to {self._where()}: {error}",
                        hint=f"is the VM up, and does ssh {self._login.address} work from here?",
                        host=self._host.name,
                    ) from error
                time.sleep(0.5 * attempt)
        raise AssertionError("unreachable")

    def _connect(self) -> Any:
        import fabric  # noqa: PLC0415
        import paramiko  # noqa: PLC0415

        target = self._login
        first_word_s = FIRST_WORD * CONNECT_TIMEOUT_S
        options: dict[str, Any] = {"timeout": CONNECT_TIMEOUT_S, "banner_timeout": first_word_s}
        if target.key:
            # The agent may hold the key's passphrase away from us; other keys of the login's are not tried.
            options |= {"key_filename": target.key, "look_for_keys": False}
        # Fabric looks at the environment's HOME and ssh_config by itself; what we state goes first.
        connection = fabric.Connection(target.address, user=target.user, port=target.port, connect_kwargs=options)
        hop = connection
        while hop is not None:
            _verify_host_keys(hop.client, target.known_hosts, paramiko.RejectPolicy())
            hop = hop.gateway if isinstance(hop.gateway, fabric.Connection) else None
        try:
            connection.open()
        except paramiko.BadHostKeyException as error:
            raise UnreachableError(
                f"the host key of {self._where()} is not the one in known_hosts: somebody is in between, "
                "or the VM was made anew",
                hint=f"if it was made anew: {self._forget()}, then connect once with ssh",
                host=self._host.name,
            ) from error
        except (paramiko.AuthenticationException, paramiko.PasswordRequiredException) as error:
            raise LoginRefusedError(
                f"{self._where()} refused the login: {error}",
                hint="set user= and key= in the hosts file (or ssh: in kit.yaml), or load the key: ssh-add",
                host=self._host.name,
            ) from error
        except paramiko.SSHException as error:
            if "not found in known_hosts" in str(error):
                raise UnreachableError(
                    f"the host key of {self._where()} is not known here",
                    hint=f"connect once and compare the fingerprint: ssh {self._port_option()}{target.address}",
                    host=self._host.name,
                ) from error
            silent = isinstance(error.__context__, TimeoutError)
            raise _Retry(_SILENT.format(first_word_s) if silent else str(error), final=silent) from error
        except socket.gaierror as error:
            raise UnreachableError(
                f"the name {target.address} does not resolve",
                hint="correct it in the hosts file, or write the IP address",
                host=self._host.name,
            ) from error
        except FileNotFoundError as error:
            raise UnreachableError(
                f"the key {error.filename} does not exist",
                hint="correct key= in the hosts file or ssh: key: in kit.yaml",
                host=self._host.name,
            ) from error
        except (OSError, EOFError) as error:
            # Silence for the whole time allowed is an answer: two more such waits would tell nothing new.
            silent = isinstance(error, TimeoutError)
            text = f"no answer in {CONNECT_TIMEOUT_S:.0f} s" if silent else getattr(error, "strerror", None)
            raise _Retry(text or str(error) or type(error).__name__, final=silent) from error
        self._connection = connection
        return connection

    def _where(self) -> str:
        port = f":{self._login.port}" if self._login.port else ""
        user = f"{self._login.user}@" if self._login.user else ""
        return f"{user}{self._login.address}{port}"

    def _port_option(self) -> str:
        return f"-p {self._login.port} " if self._login.port else ""

    def _forget(self) -> str:
        file = f"-f {self._login.known_hosts} " if self._login.known_hosts else ""
        return f"ssh-keygen {file}-R {self._login.address}"


def _is_cut(channel: paramiko.Channel) -> bool:
    """Whether a command has no exit code because its connection broke. One that a signal ended has none either.

    Paramiko ends a connection's channels first, and says a moment later that it is gone.
    """
    connection = channel.get_transport()
    deadline = time.monotonic() + CUT_S
    while connection.is_active() and not channel.eof_received and time.monotonic() < deadline:
        time.sleep(0.01)
    return not connection.is_active()


def _drain(channel: paramiko.Channel, out: bytearray, err: bytearray) -> bool:
    """Move what has arrived to `out` and `err`. Returns whether there was any."""
    before = len(out) + len(err)
    while channel.recv_ready():
        out += channel.recv(CHUNK)
    while channel.recv_stderr_ready():
        err += channel.recv_stderr(CHUNK)
    return len(out) + len(err) > before


class _Retry(Exception):
    """A failure that the next attempt may not see; `final` where it would."""

    def __init__(self, text: str, *, final: bool = False) -> None:
        super().__init__(text)
        self.final = final


def _verify_host_keys(client: paramiko.SSHClient, known_hosts: str | None, policy: paramiko.RejectPolicy) -> None:
    """Fabric accepts any key unless told otherwise."""
    client.set_missing_host_key_policy(policy)
    if known_hosts is None:
        client.load_system_host_keys()
        site = Path("/etc/ssh/ssh_known_hosts")
        if site.is_file():
            client.load_system_host_keys(str(site))
    elif os.path.exists(known_hosts):  # noqa: PTH110  (a missing file is no key, and told as such)
        client.load_system_host_keys(known_hosts)
