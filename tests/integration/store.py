"""An S3 server for tests: rclone's, behind a proxy with TLS that counts what is read and can fail in the middle.

    with store(folder, address) as s:
        s.put({"train/1.rec": b"..."})       # or a folder
        kit(..., **s.environment)            # from: s3://data/train

It needs no engine. With an address of the lab's network (its gateway), lab hosts reach it.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tests.certificates import certificates
from tests.integration.rig import until
from tests.sockets import free_port

# The development environment has it (pyproject.toml).
RCLONE = str(Path(sys.prefix) / "bin/rclone")
BUCKET = "data"
KEY, SECRET = "KITTESTACCESSKEY", "kit-test-secret-key-0123456789"
CHUNK = 1 << 18
# Bytes of a slow object that go out each second. A client that waits for a silent server gives up; this one speaks.
SLOW_BYTES = 1 << 11
_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding"}


class Store:
    """The server. `url` and `environment` (the AWS_* variables) are for clients; `bucket` is its folder."""

    def __init__(self, folder: Path, address: str, backend: int) -> None:
        self.bucket = folder / "objects" / BUCKET
        self.ca, self.certificate, self.key = certificates(folder, address, "store of tests")
        self.address = address, free_port(address)
        self.backend = backend
        # Whether it encrypts with a key of KMS: then no ETag is an MD5.
        self.kms = False
        self._lock = threading.Condition()
        self._server: _Server | None = None
        self.url = f"https://{address}:{self.address[1]}"
        self.environment = {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_ENDPOINT_URL": self.url,
            "AWS_CA_BUNDLE": str(self.ca),
        }
        # Bytes of objects that were sent since the start or since `forget`, of each object and in all.
        self.sent: dict[str, int] = {}
        self.requests: list[str] = []
        self._left: int | None = None
        # Before this store dies: how many more files may get their last part, and how many have not gone out whole.
        self._to_finish: int | None = None
        self._to_pass = 0
        self._spoiled: set[str] = set()
        self._slow: set[str] = set()

    @property
    def read(self) -> int:
        with self._lock:
            return sum(self.sent.values())

    def whole(self, *paths: str) -> bool:
        """Whether all bytes of these objects were sent since the start or since `forget`."""
        with self._lock:
            return all(self.sent.get(path, 0) >= (self.bucket / path).stat().st_size for path in paths)

    def put(self, files: Path | Mapping[str, bytes], below: str = "") -> None:
        """Add a folder's files, or these, to the bucket."""
        top = self.bucket / below
        if isinstance(files, Path):
            shutil.copytree(files, top, dirs_exist_ok=True)
            return
        for name, content in files.items():
            (top / name).parent.mkdir(parents=True, exist_ok=True)
            (top / name).write_bytes(content)

    def forget(self) -> None:
        """Count from zero again."""
        with self._lock:
            self.sent, self.requests = {}, []

    def die_after(self, size: int) -> None:
        """Refuse all connections once `size` more bytes of objects were sent; those that are open break off."""
        with self._lock:
            self._left = size

    def die_after_files(self, count: int) -> None:
        """Die as soon as exactly this number of files has been sent whole since `forget`."""
        with self._lock:
            self._to_finish = self._to_pass = count

    def spoil(self, path: str) -> None:
        """Send the first byte of this object wrongly, once."""
        with self._lock:
            self._spoiled.add(path)

    @contextlib.contextmanager
    def slow(self, *paths: str) -> Iterator[None]:
        """Send these objects so slowly that no test sees their end, until `go_on` or the end of the block."""
        with self._lock:
            self._slow.update(paths)
        try:
            yield
        finally:
            self.go_on()

    def go_on(self) -> None:
        """Send all objects as fast as they are read."""
        with self._lock:
            self._slow.clear()
            self._lock.notify_all()

    def up(self) -> None:
        """Accept connections, at the same port as before."""
        with self._lock:
            self._left = self._to_finish = None
        if self._server is None:
            self._server = _Server(self)
            threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def down(self) -> None:
        """Refuse all connections, and break off those that are open."""
        server, self._server = self._server, None
        if server is not None:
            server.stop()

    # For the handlers.

    def asked(self, line: str) -> None:
        with self._lock:
            self.requests.append(line)

    def allow(self, path: str, chunk: bytes, *, first: bool) -> bytes | None:
        """Count a part of an object, and return it as it goes out. None: this store has died."""
        with self._lock:
            if self._left is not None:
                if self._left < len(chunk):
                    return None
                self._left -= len(chunk)
            if not self._goes_on(path, len(chunk)):
                return None
            self.sent[path] = self.sent.get(path, 0) + len(chunk)
            if first and path in self._spoiled:
                self._spoiled.remove(path)
                return bytes([chunk[0] ^ 255]) + chunk[1:]
            return chunk

    def _goes_on(self, path: str, size: int) -> bool:
        """Return whether this part may go out. Before this store dies, the whole files must have left it."""
        if self._to_finish is None:
            return True
        if self.sent.get(path, 0) + size < (self.bucket / path).stat().st_size:
            return self._to_pass > 0
        if self._to_finish == 0:
            self._lock.wait_for(lambda: self._to_pass == 0, timeout=60)
            return False
        self._to_finish -= 1
        return True

    def portion(self, path: str, size: int) -> int:
        """Wait until a slow object may go on. Return how many of `size` bytes go out now."""
        with self._lock:
            if path in self._slow and not self._lock.wait_for(lambda: path not in self._slow, timeout=1):
                return min(size, SLOW_BYTES)
            return size

    def passed(self, path: str) -> None:
        """An answer with this object, or a part of it, has gone out."""
        with self._lock:
            if self._to_finish is not None and self.sent.get(path) == (self.bucket / path).stat().st_size:
                self._to_pass -= 1
                self._lock.notify_all()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, store: Store) -> None:
        self.store = store
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(store.certificate, store.key)
        self._open: set[ssl.SSLSocket] = set()
        self._lock = threading.Lock()
        super().__init__(store.address, _Handler)

    def finish_request(self, request: Any, client_address: Any) -> None:
        with contextlib.suppress(OSError, ValueError):
            encrypted = self.context.wrap_socket(request, server_side=True)
            with self._lock:
                self._open.add(encrypted)
            try:
                super().finish_request(encrypted, client_address)
            finally:
                with self._lock:
                    self._open.discard(encrypted)
                encrypted.close()

    def stop(self) -> None:
        """Close the listener and all connections."""
        self.shutdown()
        self.server_close()
        with self._lock:
            for one in self._open:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    # Otherwise each small answer waits for the acknowledgment of its headers.
    disable_nagle_algorithm = True
    wbufsize = 1 << 16
    _behind: http.client.HTTPConnection | None = None

    def do_GET(self) -> None:
        store = self.server.store
        path, _, query = self.path.partition("?")
        store.asked(f"{self.command} {self.path}")
        if path.endswith("/") and path.startswith(f"/{BUCKET}/") and self.command in ("HEAD", "PUT", "DELETE"):
            self._answer_for_folder(store.bucket / unquote(path.removeprefix(f"/{BUCKET}/")))
            return
        if self._behind is None:
            self._behind = http.client.HTTPConnection("127.0.0.1", store.backend)
        # The signature covers the headers, so they go on as they came.
        self._behind.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            # This server has answered it already.
            if name.lower() != "expect":
                self._behind.putheader(name, value)
        self._behind.endheaders(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or None)
        answer = self._behind.getresponse()
        self.send_response_only(answer.status)
        key = unquote(path).removeprefix(f"/{BUCKET}/")
        # A client sends the ETags of the parts back.
        kms = store.kms and "partNumber" not in query
        for name, value in answer.getheaders():
            if name.lower() not in _HOP_BY_HOP:
                self.send_header(name, _of_kms(key, value) if kms and name.lower() == "etag" else value)
        length = answer.getheader("Content-Length")
        if self.command == "GET" and answer.status in (200, 206) and "list-type" not in query and key != path:
            self.end_headers()
            self._pass_on(key, answer)
            return
        body = answer.read()
        if kms:
            body = _of_kms(key, body.decode()).encode()
        if length is None:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _answer_for_folder(self, folder: Path) -> None:
        """Answer for an empty object whose name ends with a slash: rclone's server would make a file without it."""
        code = 200
        if self.command == "PUT":
            folder.mkdir(parents=True, exist_ok=True)
        elif self.command == "DELETE":
            with contextlib.suppress(OSError):
                folder.rmdir()
            code = 204
        elif not folder.is_dir():
            code = 404
        self.send_response_only(code)
        self.send_header("Content-Length", "0")
        self.send_header("ETag", '"d41d8cd98f00b204e9800998ecf8427e"')
        self.end_headers()

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET  # noqa: N815  (as the base class names them)

    def _pass_on(self, key: str, answer: http.client.HTTPResponse) -> None:
        first = True
        while chunk := answer.read(CHUNK):
            allowed = self.server.store.allow(key, chunk, first=first)
            if allowed is None:
                self.close_connection = True
                self.server.store.down()
                return
            while allowed:
                portion = self.server.store.portion(key, len(allowed))
                self.wfile.write(allowed[:portion])
                allowed = allowed[portion:]
                if allowed:
                    self.wfile.flush()
            first = False
        # Only now: a store that dies breaks off what has not left this process.
        self.wfile.flush()
        self.server.store.passed(key)

    def finish(self) -> None:
        if self._behind is not None:
            self._behind.close()
        with contextlib.suppress(OSError, ValueError):
            super().finish()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the name in the base class)
        pass


def _of_kms(key: str, text: str) -> str:
    """Return a header or an XML text with ETags in place of the MD5s of objects. `key` is for those without a key."""

    def instead(match: re.Match[str]) -> str:
        nonlocal key
        key = match["key"] or key
        return (
            match[0] if match["key"] else hashlib.md5(f"{key} {match[0]}".encode(), usedforsecurity=False).hexdigest()
        )

    return re.sub(r"<Key>(?P<key>[^<]*)</Key>|\b[0-9a-f]{32}\b", instead, text)


@contextlib.contextmanager
def store(folder: Path, address: str = "127.0.0.1", *, md5: bool = True, fast: bool = False) -> Iterator[Store]:
    """Run a store at a free port of `address`, with its files below `folder`, until the end of the block.

    Without `md5` it does not read the files to know their MD5, which it otherwise does for each list and each look.
    With `fast` there is no proxy: the store neither counts nor fails, and takes many more requests a second.
    """
    (folder / "objects" / BUCKET).mkdir(parents=True)
    running = Store(folder, address, free_port("127.0.0.1"))
    words = ["--etag-hash", "MD5" if md5 else ""]
    behind = running.address if fast else ("127.0.0.1", running.backend)
    if fast:
        words += ["--cert", str(running.certificate), "--key", str(running.key)]
    process = _rclone(folder, behind, *words)
    try:
        until("the S3 server answers", lambda: process.poll() is not None or accepts(behind))
        assert process.poll() is None, (folder / "store.log").read_text()
        if not fast:
            running.up()
        yield running
    finally:
        running.down()
        process.kill()
        process.wait()


def _rclone(folder: Path, address: tuple[str, int], *words: str) -> subprocess.Popen[bytes]:
    command = [
        RCLONE,
        "--config",
        "",
        "serve",
        "s3",
        "--addr",
        f"{address[0]}:{address[1]}",
        # With 0s, rclone would use all cores to forget a folder that somebody has written to.
        "--dir-cache-time",
        "1ms",
        *words,
    ]
    # Public to this machine's processes, as a test's key may be.
    command += ["--auth-key", f"{KEY},{SECRET}", str(folder / "objects")]
    with (folder / "store.log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, env={"PATH": os.environ["PATH"], "HOME": str(folder)})


def accepts(address: tuple[str, int]) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(address) == 0
