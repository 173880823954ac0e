"""rclone as a process that answers HTTP requests on a Unix socket."""

import contextlib
import http.client
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

# The image's. It is not in PATH, where it could hide one that a node's user has installed.
PROGRAM = "/opt/kit/rclone/rclone"
FOLDER = "/run/kit-data"
# rclone is a large program; a busy disk needs a while to load it.
START_S = 30.0
# rclone gives up earlier, by its own limits.
ANSWER_S = 120.0
LIMITS = ("--contimeout", "10s", "--timeout", "30s", "--low-level-retries", "2", "--retries", "1")
# rclone keeps about twice this number of idle connections to a store. With its default, 32 readers would open new ones.
AT_ONCE = ("--checkers", "32")
# What rclone needs of the environment of this program. Everything else could change what it reads.
_KEPT = ("PATH", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
# Lines of rclone that are kept to say why it ended.
_LINES = 20


class Ended(Exception):
    """rclone is not there, or has ended, or does not answer. The text is what it said."""


class Answer(NamedTuple):
    """`headers` have names in lower case."""

    status: int
    headers: Dict[str, str]
    body: bytes


class Program:
    """Starts rclone with settings that are in its environment alone.

    `ca`: certificates (PEM) that it trusts instead of those of this system. They are public, and go into a file.
    `limits` are flags that say when it gives up, and others that the source needs.
    """

    def __init__(
        self,
        env: Mapping[str, str],
        ca: str = "",
        folder: Optional[str] = None,
        name: str = "rclone",
        limits: Sequence[str] = LIMITS,
    ) -> None:
        parent = folder or (FOLDER if os.path.isdir(FOLDER) else tempfile.gettempdir())
        self.folder = tempfile.mkdtemp(prefix="rclone-", dir=parent)
        self._name = name
        self._flags = ["--config", "", *limits, *AT_ONCE]
        if ca:
            file = os.path.join(self.folder, "ca.pem")
            with open(file, "w") as out:
                out.write(ca)
            self._flags += ["--ca-cert", file]
        self._env = {key: os.environ[key] for key in _KEPT if key in os.environ}
        self._env.update(env, HOME=self.folder)

    def start(self, *words: str, stdout: int = subprocess.DEVNULL) -> "subprocess.Popen[bytes]":
        """Start rclone with a command. Its standard error is a pipe. Raises Ended if it cannot start."""
        try:
            return subprocess.Popen(
                [self._name, *words, *self._flags],
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=subprocess.PIPE,
            )
        except OSError as error:
            raise Ended("rclone cannot start: %s" % os.strerror(error.errno or 0)) from None

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


class Running:
    """A process of rclone, and the last lines of its standard error."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self.pid = process.pid
        self._lines: List[str] = []
        self._ear = threading.Thread(target=self._listen, name="kit-data-rclone", daemon=True)
        self._ear.start()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def wait(self) -> None:
        """Wait until rclone has ended."""
        self._process.wait()

    def printed(self) -> str:
        """Return its last lines: of a process that has ended, all that it printed at its end."""
        if not self.alive:
            self._ear.join(1)
        return "\n".join(self._lines)

    def ended(self) -> Ended:
        """Return the error of a process that has ended."""
        return Ended("rclone has ended: %s" % (self.printed() or "exit code %s" % self._process.poll()))

    def end(self) -> None:
        end(self._process)
        self._ear.join()

    def _listen(self) -> None:
        assert self._process.stderr
        with self._process.stderr:
            for line in self._process.stderr:
                self._lines.append(line.decode("utf-8", "replace").rstrip("\n"))
                del self._lines[:-_LINES]


class Server:
    """`rclone rcd --rc-serve`: files of remotes at /[REMOTE:]/PATH, and rclone's remote control.

    Connections are kept for the next request, and any number of threads may ask at once.
    """

    def __init__(self, program: Program, flags: Sequence[str]) -> None:
        self._socket = os.path.join(program.folder, "socket")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._socket)
        address = ("--rc-addr", "unix://" + self._socket)
        self._process = Running(program.start("rcd", *address, "--rc-no-auth", "--rc-serve", *flags))
        self._idle: List[_Connection] = []
        self._lock = threading.Lock()
        self._wait()

    @property
    def alive(self) -> bool:
        return self._process.alive

    def request(self, method: str, path: str, headers: Optional[Mapping[str, str]] = None, body: bytes = b"") -> Answer:
        """Return the answer, whole. Raises Ended, and http.client.IncompleteRead if the answer breaks off."""
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        kept = connection is not None
        if connection is None:
            connection = _Connection(self._socket)
        try:
            try:
                answer = connection.ask(method, path, headers, body)
            except (BrokenPipeError, ConnectionResetError, http.client.RemoteDisconnected):
                # rclone may close a connection that it has kept.
                if not kept:
                    raise
                connection.close()
                answer = connection.ask(method, path, headers, body)
        except http.client.IncompleteRead:
            connection.close()
            raise
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self._ended(error) from None
        with self._lock:
            self._idle.append(connection)
        return answer

    def close(self) -> None:
        """End rclone. Requests that are under way fail."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
        self._process.end()

    def _wait(self) -> None:
        """Wait until rclone accepts connections."""
        limit = time.monotonic() + START_S
        while True:
            connection = _Connection(self._socket)
            try:
                connection.connect()
            except OSError as error:
                connection.close()
                if not self.alive or time.monotonic() > limit:
                    ended = self._ended(error)
                    self.close()
                    raise ended from None
                time.sleep(0.01)
            else:
                self._idle.append(connection)
                return

    def _ended(self, error: Exception) -> Ended:
        if self.alive:
            return Ended("rclone does not answer: %s" % error)
        return self._process.ended()


def end(process: "subprocess.Popen[bytes]") -> None:
    """End a process at once. rclone reads alone, so it has nothing to finish."""
    with contextlib.suppress(OSError):
        process.kill()
    process.wait()


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("rclone", timeout=ANSWER_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)

    def ask(self, method: str, path: str, headers: Optional[Mapping[str, str]], body: bytes) -> Answer:
        self.request(method, path, body or None, dict(headers or {}))
        response = self.getresponse()
        content = response.read()
        return Answer(response.status, {name.lower(): value for name, value in _headers(response)}, content)


def _headers(response: http.client.HTTPResponse) -> List[Tuple[str, str]]:
    return response.getheaders()
