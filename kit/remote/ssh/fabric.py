"""FabricTransport: short commands on one VM over a fabric connection, with host keys verified.

It serves one host at a time: Python's ssh shares one core between all hosts. Fabric reads ssh_config, opens gateways
and authenticates. Its own `run` decodes text and feeds standard input a character at a time, so commands go through a
session of its transport instead.
"""

from __future__ import annotations

import logging
import random
import socket
import time
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from kit.errors import SlowError
from kit.model.host import Host, Login
from kit.model.values import replace
from kit.remote.ssh.known import files, is_plain
from kit.remote.ssh.login_errors import csh_error
from kit.remote.ssh.login_text import own_output
from kit.remote.ssh.refusals import (
    SILENT,
    broken_error,
    dropped,
    dropped_error,
    missing_key_error,
    no_connection_error,
    unresolved_error,
)
from kit.remote.ssh.retry import Failure, pause_s
from kit.remote.ssh.transport import CSH, Completed, Live, Output, marked

if TYPE_CHECKING:
    import paramiko

    from kit.remote.ssh.multiplexed import OpenSshTransport

CONNECT_TIMEOUT_S = 15.0
# The part of it that sshd has for its banner. With all of it, two clocks of paramiko would end together, and the first
# might be the one that does not know what it waited for.
FIRST_WORD = 0.9
# OpenSSH's client may know the host's key, and have one to log in with: Python's ssh ignores Include,
# UserKnownHostsFile, HostKeyAlias, IdentityAgent and CertificateFile of ssh_config.
_BY_FILES = ("not found in known_hosts", "No authentication methods available")
CHUNK = 1 << 16
CUT_S = 2.0
# Paramiko also logs what it raises. Without a handler, Python would print its tracebacks.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


class FabricTransport:
    """One thread's connection to one VM. The first command opens it."""

    def __init__(self, host: Host, target: Login) -> None:
        self._host = host
        self._login = target
        self._connection: Any = None
        self._openssh: OpenSshTransport | None = None
        self._live: OpenSshTransport | None = None

    @property
    def host(self) -> Host:
        return self._host

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
        if self._openssh is None:
            try:
                return self._run(argv, stdin, timeout_s)
            except _UnsuitableError:
                self._openssh = self._other_client()
        return self._openssh.run(argv, stdin=stdin, timeout_s=timeout_s)

    def stream(self, argv: Sequence[str], live: Live) -> int:
        """Run it with OpenSSH's client, which passes output on while it comes."""
        self._live = self._other_client()
        with closing(self._live) as transport:
            return transport.stream(argv, live)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        for transport in (self._openssh, self._live):
            if transport is not None:
                transport.close()

    def _other_client(self) -> OpenSshTransport:
        from kit.remote.ssh.multiplexed import OpenSshTransport  # noqa: PLC0415  (mostly not needed)

        return OpenSshTransport(self._host, self._login)

    def _run(self, argv: Sequence[str], stdin: bytes, timeout_s: float) -> Completed:
        import paramiko  # noqa: PLC0415

        command = marked(argv, errors=True)
        try:
            channel = self._open().transport.open_session(timeout=CONNECT_TIMEOUT_S)
            with channel:
                channel.exec_command(command)
                done = self._talk(channel, stdin, timeout_s, Output(self._host.name))
        except (paramiko.SSHException, OSError, EOFError) as error:
            self.close()
            raise broken_error(self._login, str(error) or type(error).__name__) from error
        # A signal ended the login shell.
        if done.code < 0 and done.error_text == CSH:
            raise csh_error(self._login)
        return done

    def _talk(self, channel: paramiko.Channel, stdin: bytes, timeout_s: float, output: Output) -> Completed:
        deadline = time.monotonic() + timeout_s
        channel.settimeout(timeout_s)
        pending = memoryview(stdin)
        if not pending:
            channel.shutdown_write()
        while True:
            # Read this before the data: everything that arrived until now is drained below.
            over = channel.closed or (channel.exit_status_ready() and channel.eof_received)
            busy = False
            if pending and not over and channel.send_ready():
                pending = pending[channel.send(bytes(pending[:CHUNK])) :]
                busy = True
                if not pending:
                    channel.shutdown_write()
            busy = _drain(channel, output) or busy
            if over:
                break
            if time.monotonic() > deadline:
                raise SlowError(
                    f"a command did not end within {timeout_s:.0f} s",
                    hint="look at the host's load and its engine (docker info), then try again",
                    host=self._host.name,
                )
            if not busy:
                # No descriptor of a channel becomes ready for all of this.
                time.sleep(0.002)
        code = channel.recv_exit_status()
        if code < 0 and _is_cut(channel):
            raise EOFError("it ended before the command did")
        return Completed(code=code, stdout=own_output(output.out), stderr=own_output(output.err))

    def _open(self) -> Any:
        if self._connection is not None and self._connection.is_connected:
            return self._connection
        attempt = 1
        while True:
            try:
                return self._connect()
            except _Retry as error:
                pause = pause_s(error.failure, attempt, random.random())  # noqa: S311  (no secret)
                if pause is None and error.failure == "dropped":
                    raise dropped_error(self._login.address, str(error), self._host.name) from error
                if pause is None:
                    raise no_connection_error(self._login, str(error)) from error
                time.sleep(pause)
            attempt += 1

    def _prepared(self) -> Any:
        """Return a connection that is not open yet. Raises _UnsuitableError if Python's ssh cannot read the files."""
        import fabric  # noqa: PLC0415
        import paramiko  # noqa: PLC0415

        target = self._login
        # Python's ssh ignores @revoked in known_hosts, and fails for some other lines.
        if not is_plain(target.known_hosts):
            raise _UnsuitableError
        options: dict[str, Any] = {"timeout": CONNECT_TIMEOUT_S, "banner_timeout": FIRST_WORD * CONNECT_TIMEOUT_S}
        if target.key:
            # The agent may hold this key without its passphrase. The login's other keys are not tried.
            options |= {"key_filename": target.key, "look_for_keys": False}
        try:
            # Fabric reads ssh_config by itself. What the login states goes first.
            connection = fabric.Connection(
                target.address, user=target.user, port=target.port, forward_agent=False, connect_kwargs=options
            )
            hop = connection
            while hop is not None:
                hop.forward_agent = False
                _verify_host_keys(hop.client, target.known_hosts, paramiko.RejectPolicy())
                hop = hop.gateway if isinstance(hop.gateway, fabric.Connection) else None
        except Exception as error:
            # OpenSSH's client knows more of ssh_config and of known_hosts, and reports what is wrong there.
            raise _UnsuitableError from error
        return connection

    def _connect(self) -> Any:
        import paramiko  # noqa: PLC0415

        target = self._login
        first_word_s = FIRST_WORD * CONNECT_TIMEOUT_S
        connection = self._prepared()
        try:
            connection.open()
        except (paramiko.BadHostKeyException, paramiko.AuthenticationException) as error:
            # Python's ssh compares one key of each kind, and OpenSSH's client all that known_hosts has for the name:
            # it accepts one of them, or writes that the key has changed. If a key needs a passphrase, it may have an
            # agent for it, and names the cause.
            raise _given_up(connection) from error
        except paramiko.SSHException as error:
            if any(words in str(error) for words in _BY_FILES):
                raise _given_up(connection) from error
            silent = isinstance(error.__context__, TimeoutError)
            text = SILENT.format(first_word_s) if silent else str(error)
            raise _Retry(text, "settled" if silent else "dropped" if dropped(text) else "absent") from error
        except socket.gaierror as error:
            raise unresolved_error(target) from error
        except (FileNotFoundError, IsADirectoryError) as error:
            raise missing_key_error(replace(target, key=error.filename)) from error
        except (OSError, EOFError) as error:
            # Silence for the whole time is an answer: two more such waits would add nothing.
            silent = isinstance(error, TimeoutError)
            failure: Failure = "settled" if silent else "absent"
            cause = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise _Retry(f"no answer in {CONNECT_TIMEOUT_S:.0f} s" if silent else cause, failure) from error
        self._connection = connection
        return connection


def _is_cut(channel: paramiko.Channel) -> bool:
    """Return whether a command has no exit code because its connection broke. One that a signal ended has none either.

    Paramiko ends a connection's channels first, and marks the connection as gone a moment later.
    """
    connection = channel.get_transport()
    deadline = time.monotonic() + CUT_S
    while connection.is_active() and not channel.eof_received and time.monotonic() < deadline:
        time.sleep(0.01)
    return not connection.is_active()


def _drain(channel: paramiko.Channel, output: Output) -> bool:
    """Move what has arrived to `output`. Return whether there was any."""
    before = len(output.out) + len(output.err)
    while channel.recv_ready():
        output.add_out(channel.recv(CHUNK))
    while channel.recv_stderr_ready():
        output.add_err(channel.recv_stderr(CHUNK))
    return len(output.out) + len(output.err) > before


class _UnsuitableError(Exception):
    """Python's ssh cannot read the user's files, or does not get in with them. OpenSSH's client decides."""


def _given_up(connection: Any) -> _UnsuitableError:
    """Close a connection without a login, and return the error that leaves the host to OpenSSH's client."""
    connection.client.close()
    return _UnsuitableError()


class _Retry(Exception):
    """A failed connection that may be tried again, and of which kind the failure was."""

    def __init__(self, text: str, failure: Failure) -> None:
        super().__init__(text)
        self.failure = failure


def _verify_host_keys(client: paramiko.SSHClient, known_hosts: str | None, policy: paramiko.RejectPolicy) -> None:
    """Load the pinned keys and reject all others. By default, fabric accepts any key."""
    client.set_missing_host_key_policy(policy)
    for path in files(known_hosts):
        if path.exists():  # a missing file holds no key
            client.load_system_host_keys(str(path))
