"""A registry that takes one push and keeps nothing, on this machine's loopback, under a secret name."""

import contextlib
import hashlib
import http.server
import itertools
import re
import secrets
import socket
import socketserver
import threading
from typing import Any, Callable, Iterator, List, Set
from urllib.parse import parse_qs, urlsplit

_LINE = 256
_NUMBER = re.compile("[0-9a-fA-F]{1,15}")
# Any user of the machine can connect to the loopback, and does not know the secret name.
_CONNECTIONS = 64
_HELLO_S = 60.0
END_S = 10.0


class Capture:
    """`take` gets the bytes of each pushed blob; `enough` returns whether no more are needed.

    The engine sends several blobs at the same time, so several threads call `take`.
    """

    TAG = "ship"
    NAME = re.compile(r"127\.0\.0\.1:[0-9]+/kit-ship/[0-9a-f]{32}:ship")

    def __init__(self, take: Callable[[Iterator[bytes]], None], enough: Callable[[], bool]) -> None:
        self._path = "kit-ship/" + secrets.token_hex(16)
        self._enough = enough
        self._over = threading.Event()
        self._problems: List[BaseException] = []
        handler = type("Handler", (_Handler,), {})
        handler.prefix = "/v2/{}/".format(self._path)  # type: ignore[attr-defined]
        handler.take = staticmethod(take)  # type: ignore[attr-defined]
        handler.done = set()  # type: ignore[attr-defined]
        handler.numbers = itertools.count()  # type: ignore[attr-defined]
        handler.after = self._after  # type: ignore[attr-defined]
        handler.over = self._over  # type: ignore[attr-defined]
        self._server = _Server(("127.0.0.1", 0), handler)
        self.repository = "127.0.0.1:{}/{}".format(self._server.server_address[1], self._path)
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def _after(self, problem: Any) -> None:
        if problem is not None:
            self._problems.append(problem)
        if problem is not None or self._enough():
            self._over.set()

    def wait(self, push: Callable[[], object]) -> None:
        """Wait until enough has come or the push has ended. Raises what `take` raised."""

        def work() -> None:
            try:
                push()
            except Exception:  # noqa: S110  (the caller sees what did not come, and has another way)
                pass
            finally:
                self._over.set()

        pushing = threading.Thread(target=work, daemon=True)
        pushing.start()
        while not (self._over.wait(0.2) or self._enough()):
            pass
        self._over.set()
        # An engine gives up a denied push at once. If the connection just closed, it would retry for a while.
        pushing.join(END_S)
        if self._problems:
            raise self._problems[0]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._server.hang_up()


class _Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    # If it were set, closing would wait for threads that wait for an engine.
    block_on_close = False

    def __init__(self, address: Any, handler: Any) -> None:
        self._open: Set[Any] = set()
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if len(self._open) >= _CONNECTIONS:
            self.shutdown_request(request)
            return
        self._open.add(request)
        # The handler takes the limit away once a request has the secret name.
        request.settimeout(_HELLO_S)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass

    def hang_up(self) -> None:
        for request in list(self._open):
            with contextlib.suppress(OSError):
                request.shutdown(2)


class _Handler(http.server.BaseHTTPRequestHandler):
    """The part of the registry protocol that a push needs: docs.docker.com, "HTTP API V2"."""

    protocol_version = "HTTP/1.1"
    prefix = ""
    take: Any = None
    after: Any = None
    over: Any = None
    done: Any = frozenset()
    numbers = itertools.count()

    def log_message(self, *_: Any) -> None:
        pass

    def _answer(self, code: int, **headers: str) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def parse_request(self) -> bool:
        if not super().parse_request():
            return False
        if self.path.startswith(self.prefix):
            self.connection.settimeout(None)
        if self.over.is_set():
            self._deny()
            return False
        return True

    def _deny(self) -> None:
        """Deny the rest. Read what the engine still sends, or it would not see this answer."""
        text = b'{"errors": [{"code": "DENIED", "message": "enough"}]}'
        self.close_connection = True
        self.send_response(403)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
        self.wfile.flush()
        # Stay open while the push may take to end: closing with bytes still on their way would lose the answer.
        self.connection.settimeout(END_S)
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            while self.connection.recv(1 << 20):
                pass

    def do_GET(self) -> None:
        self._answer(200 if self.path == "/v2/" else 404)

    def do_HEAD(self) -> None:
        self._answer(200 if self.path.startswith(self.prefix) and self.path.rsplit("/", 1)[-1] in self.done else 404)

    def do_POST(self) -> None:
        if not self.path.startswith(self.prefix):
            self._answer(404)
            return
        self._answer(202, Location="{}blobs/uploads/{}".format(self.prefix, next(self.numbers)))

    def do_PATCH(self) -> None:
        if not self.path.startswith(self.prefix):
            self.close_connection = True
            self._answer(404)
            return
        digest = hashlib.sha256()
        count = 0

        def body() -> Iterator[bytes]:
            nonlocal count
            for chunk in self._body():
                if self.over.is_set():
                    raise _Enough
                digest.update(chunk)
                count += len(chunk)
                yield chunk

        try:
            self.take(body())
        except _Enough:
            self._deny()
            return
        except Exception as error:
            if not isinstance(error, _Gone):
                self.after(error)
            raise
        self.done.add("sha256:" + digest.hexdigest())
        # Before the answer, because the engine may start the next blob as soon as it has read it.
        self.after(None)
        self._answer(202, Location=self.path, Range="0-{}".format(max(count - 1, 0)))

    def do_PUT(self) -> None:
        if not self.path.startswith(self.prefix):
            self.close_connection = True
            self._answer(404)
            return
        digest = parse_qs(urlsplit(self.path).query).get("digest", [""])[0]
        for _ in self._body():
            pass
        self._answer(201 if digest in self.done else 404, Docker_Content_Digest=digest)

    def _body(self) -> Iterator[bytes]:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            yield from self._bytes(_number(self.headers.get("Content-Length") or "0", 10))
            return
        while True:
            size = _number(self.rfile.readline(_LINE).split(b";")[0].decode("latin-1").strip(), 16)
            yield from self._bytes(size)
            self.rfile.readline(_LINE)
            if not size:
                return

    def _bytes(self, left: int) -> Iterator[bytes]:
        while left:
            data = self.rfile.read(min(left, 1 << 20))
            if not data:
                raise _Gone
            left -= len(data)
            yield data


def _number(word: str, base: int) -> int:
    """Return the number of bytes that a request announces: no sign, no space, no underscore."""
    try:
        if _NUMBER.fullmatch(word):
            return int(word, base)
    except ValueError:
        pass
    raise _Gone


class _Enough(Exception):
    """No more bytes are needed."""


class _Gone(Exception):
    """The engine hung up."""
