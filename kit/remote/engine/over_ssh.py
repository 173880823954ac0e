"""The engine of a VM: the Docker SDK over OpenSSH and `docker system dial-stdio`.

Requests carry everything, also a registry's password. So a password is on no command line, in no environment and in no
file of the VM, and is gone with the connection. Why not the SDK's own adapter: docs/decisions/21.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import threading
from collections.abc import Sequence
from typing import IO, Any, cast

import docker
import urllib3
from docker.constants import DEFAULT_DOCKER_API_VERSION
from docker.transport.basehttpadapter import BaseHTTPAdapter

from kit.model.answer import OddAnswer
from kit.model.host import Login
from kit.remote.engine import sdk
from kit.remote.ssh.login_text import LoginText
from kit.remote.ssh.openssh import openssh_argv
from kit.remote.ssh.starting import starting
from kit.remote.ssh.transport import marked

_END_S = 5.0
# The rest of standard error may still be on its way when the process has ended.
_DRAIN_S = 0.5
_URL = "http+docker://localhost"
_VERSION = re.compile(r"[0-9]{1,3}\.[0-9]{1,3}")
# The most that kit keeps of what ssh, sudo and docker write to standard error: its end.
_MOST_ERRORS = 1 << 16
# The largest answer that is no stream. What the engine knows of an image or a registry has some kilobytes.
_MOST_ANSWER = 16 << 20
_PIECE = 1 << 16


class SshEngine:
    """A client, as the SDK calls it, of a VM's engine. `connect` sets `api`, and raises the SDK's exceptions."""

    api: Any

    def __init__(self, login: Login) -> None:
        argv = [*openssh_argv(login), marked(["docker", "system", "dial-stdio"])]
        self._tunnels = _Tunnels(argv, login.host)

    def connect(self) -> None:
        self.api = _Api(_Adapter(self._tunnels))

    @property
    def stderr(self) -> str:
        """The standard error of ssh, sudo and docker."""
        return self._tunnels.stderr()

    def close(self) -> None:
        """Hang up. The engine then stops our build or pull."""
        self._tunnels.close()


class _Errors:
    """The end of what one process of ssh writes to standard error. A host may print without an end."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._text = b""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with self._pipe:
            while data := os.read(self._pipe.fileno(), _PIECE):
                self._text = (self._text + data)[-_MOST_ERRORS:]

    def text(self) -> bytes:
        """Return it after the process has ended. A master that stays behind may hold the pipe open."""
        self._thread.join(_DRAIN_S)
        return self._text


class _Socket(socket.socket):
    """kit's end of a tunnel. It drops what the login prints before the engine's first answer.

    kit sends its request at once: to wait for the session would cost a round trip for each connection.
    """

    def __init__(self, end: socket.socket) -> None:
        super().__init__(end.family, end.type, end.proto, end.detach())
        self.login_text = LoginText()
        self._rest = b""

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        """Receive bytes of the engine. This is what http.client reads with. Raises OddAnswer."""
        while not self.login_text.begun:
            data = self.recv(_PIECE)
            if not data:
                return 0
            self._rest = self.login_text.cut(data)
        if not self._rest:
            return super().recv_into(buffer, nbytes, flags)
        view = memoryview(buffer)
        part = self._rest[: nbytes or len(view)]
        view[: len(part)] = part
        self._rest = self._rest[len(part) :]
        return len(part)


class _Tunnels:
    """The ssh processes, each with a socket to its standard input and output."""

    def __init__(self, argv: Sequence[str], host: str) -> None:
        self._argv, self._host = list(argv), host
        self._open: list[tuple[subprocess.Popen[bytes], _Errors, LoginText]] = []

    def open(self) -> socket.socket:
        end, theirs = socket.socketpair()
        ours = _Socket(end)
        with theirs, starting(self._host):
            process = subprocess.Popen(
                self._argv,
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.PIPE,
                # kit handles Ctrl-C: the owner of this engine closes it.
                start_new_session=True,
            )
        self._open.append((process, _Errors(cast("IO[bytes]", process.stderr)), ours.login_text))
        return ours

    def stderr(self) -> str:
        text, before = b"", b""
        for process, errors, login_text in self._open:
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                continue
            text += errors.text()
            if not login_text.begun:
                before += login_text.before[-_MOST_ERRORS:]
        # A login that lets nobody in, such as nologin, says so on standard output.
        return (text.strip() or before).decode(errors="replace").strip()

    def close(self) -> None:
        for process, *_ in self._open:
            process.terminate()
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._open.clear()


class _Api(docker.APIClient):
    def __init__(self, adapter: _Adapter) -> None:
        # Any version will do until the adapter is mounted and can ask the engine.
        super().__init__(base_url="tcp://localhost:1", version=DEFAULT_DOCKER_API_VERSION, timeout=sdk.TIMEOUT_S)
        self.base_url = _URL
        self.mount(f"{_URL}/", adapter)
        version = self.version(api_version=False)
        word = version.get("ApiVersion") if isinstance(version, dict) else None
        # It becomes a part of each path.
        if not isinstance(word, str) or not _VERSION.fullmatch(word):
            raise OddAnswer("it names no version", str(word))
        self._version = word

    def _set_auth_headers(self, headers: dict[str, str]) -> None:
        """Send no login with a build. The SDK would send every login of this machine; bases are pulled before."""


class _Adapter(BaseHTTPAdapter):
    def __init__(self, tunnels: _Tunnels) -> None:
        self._pool = _Pool(tunnels)
        super().__init__()

    def get_connection(self, url: str | bytes, proxies: object = None) -> _Pool:  # noqa: ARG002  (as requests calls it)
        return self._pool

    def send(self, request: Any, stream: bool = False, *rest: Any, **options: Any) -> Any:
        """Send a request. Raises OddAnswer if the answer is no stream and has too many bytes."""
        response = super().send(request, True, *rest, **options)
        if not stream:
            body = b""
            for piece in response.iter_content(_PIECE):
                body += piece
                if len(body) > _MOST_ANSWER:
                    response.close()
                    raise OddAnswer(f"it has more than {_MOST_ANSWER} bytes", body)
            response._content = body
        return response

    def request_url(self, request: Any, proxies: object) -> str:  # noqa: ARG002  (ssh needs no proxy)
        return str(request.path_url)


class _Pool(urllib3.HTTPConnectionPool):
    def __init__(self, tunnels: _Tunnels) -> None:
        super().__init__("localhost", timeout=sdk.TIMEOUT_S, maxsize=1)
        self._tunnels = tunnels

    def _new_conn(self) -> _Connection:
        return _Connection(self._tunnels)


class _Connection(urllib3.connection.HTTPConnection):
    def __init__(self, tunnels: _Tunnels) -> None:
        super().__init__("localhost", timeout=sdk.TIMEOUT_S)
        self._tunnels = tunnels

    def connect(self) -> None:
        self.sock = self._tunnels.open()
        self.sock.settimeout(sdk.TIMEOUT_S)
