"""A server for git over HTTP, mostly behind a password, with git's own program behind it, and for files of Git LFS."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

LOGIN = "me:s3cret"
_LFS = "/info/lfs/objects/"
_TYPE = "application/vnd.git-lfs+json"


class Server(BaseHTTPRequestHandler):
    """Serves the repositories in the folder `root`. `asked` has the paths of all requests that it answered.

    `public`: it answers without the password, too. `wait` is called before each answer.
    """

    root: Path
    asked: list[str]
    public: bool
    wait: Callable[[], object]

    def do_GET(self) -> None:
        given = self.headers.get("Authorization", "")
        if given != f"Basic {base64.b64encode(LOGIN.encode()).decode()}" and not (self.public and not given):
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="code"')
            self.end_headers()
            return
        url = urlsplit(self.path)
        self.asked.append(url.path)
        self.wait()
        if _LFS in url.path:
            self.serve_lfs(url.path)
            return
        environ = {
            "PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": str(self.root), "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": url.path, "QUERY_STRING": url.query, "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""), "REMOTE_USER": "me",
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""), "HTTP_CONTENT_ENCODING": self.headers.get(
                "Content-Encoding", ""
            ),
        }  # fmt: skip
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        argv = ["git", "-c", "safe.directory=*", "http-backend"]
        # It fails for a commit that is not there, and its answer says so.
        out = subprocess.run(argv, input=body, env=environ, capture_output=True, check=False).stdout
        head, _, content = out.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.send_response(int(fields.pop("Status", "200").split()[0]))
        for name, value in fields.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def serve_lfs(self, path: str) -> None:
        """Answer the batch API (git-lfs/docs/api/batch.md) with basic transfers, and send objects."""
        repository, _, name = path.partition(_LFS)
        objects = self.root / repository.strip("/") / "lfs" / "objects"
        if name != "batch":
            self.answer((objects / name[:2] / name[2:4] / name).read_bytes(), "application/octet-stream")
            return
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answers: list[dict[str, Any]] = []
        for one in request["objects"]:
            oid = one["oid"]
            answer = {"oid": oid, "size": one["size"]}
            if (objects / oid[:2] / oid[2:4] / oid).exists():
                href = f"http://{self.headers['Host']}{repository}{_LFS}{oid}"
                answer["actions"] = {"download": {"href": href}}
            else:
                answer["error"] = {"code": 404, "message": "Object does not exist"}
            answers.append(answer)
        self.answer(json.dumps({"transfer": "basic", "objects": answers}).encode(), _TYPE)

    def answer(self, content: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_GET  # noqa: N815  (the name is the base class's)

    def log_message(self, *_: object) -> None:
        pass


class RememberingServer(ThreadingHTTPServer):
    """Waits for its handlers when it ends. `failures` has the exceptions that they raised."""

    daemon_threads = False

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.failures: list[BaseException] = []

    def handle_error(self, *_: object) -> None:
        error = sys.exception()
        # A client may go away.
        if error is not None and not isinstance(error, ConnectionError):
            self.failures.append(error)


@contextlib.contextmanager
def serving(
    root: Path,
    asked: list[str] | None = None,
    *,
    public: bool = False,
    wait: Callable[[], object] = lambda: None,
    address: str = "127.0.0.1",
) -> Iterator[str]:
    """Serve the repositories of a folder (see Server). Yields `ADDRESS:PORT`."""
    fields = {"root": root, "asked": [] if asked is None else asked, "public": public, "wait": staticmethod(wait)}
    server = RememberingServer((address, 0), type("OneServer", (Server,), fields))
    try:
        with server:
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            try:
                yield f"{address}:{server.server_port}"
            finally:
                server.shutdown()
                thread.join()
    finally:
        # A handler that fails sends nothing, so its client does not know why.
        if server.failures:
            raise AssertionError(f"the git server failed: {server.failures}") from server.failures[0]
