"""An engine on a Unix socket, with what a porter uses: it loads images, verifies layers and lists them."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import http.server
import io
import json
import socketserver
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def tar_of(files: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return stream.getvalue()


def push_layer(repository: str, layer: bytes) -> bool:
    """Whether the registry took it, packed as engines pack layers."""
    host, _, path = repository.partition("/")
    connection = http.client.HTTPConnection(host, timeout=30)
    try:
        connection.request("POST", f"/v2/{path}/blobs/uploads/")
        answer = connection.getresponse()
        answer.read()
        if answer.status != 202:
            return False
        connection.request("PATCH", answer.headers["Location"], body=iter([gzip.compress(layer)]))
        answer = connection.getresponse()
        answer.read()
        return answer.status == 202
    finally:
        connection.close()


class FakeEngine:
    """`layers` and `images` (by id) are what it has. `refuse` is said to the next load, `hang_up` before reading it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.root = folder / "root"
        self.path = str(folder / "engine.sock")
        self.layers: dict[str, bytes] = {}
        self.images: dict[str, dict[str, Any]] = {}
        self.archives: list[dict[str, bytes]] = []
        self.requests: list[str] = []
        self.refuse: list[str] = []
        self.hang_up = False
        # What an image is as a tar, where the test says so, and whether a push reaches anybody.
        self.saved: bytes | None = None
        self.reachable = True
        self.pushed: list[str] = []
        handler = type("Handler", (_Handler,), {"engine": self})
        self._server = _Server(self.path, handler)
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def add(self, layers: list[bytes], *tags: str, **config: Any) -> str:
        """An image of these layers; its id."""
        self.layers |= {sha(layer): layer for layer in layers}
        return self._add([sha(layer) for layer in layers], list(tags), config)

    def _add(self, chain: list[str], tags: list[str], config: dict[str, Any]) -> str:
        image_id = "sha256:" + sha(json.dumps([chain, config]).encode())
        for image in self.images.values():
            image["RepoTags"] = [tag for tag in image["RepoTags"] if tag not in tags]
        image = self.images.setdefault(
            image_id,
            {
                "Id": image_id,
                "Architecture": "amd64",
                "Os": "linux",
                "Config": config,
                "RepoTags": [],
                "RootFS": {"Layers": ["sha256:" + layer for layer in chain]},
            },
        )
        image["RepoTags"] += tags
        return image_id

    def find(self, name: str) -> dict[str, Any] | None:
        return next((image for image in self.images.values() if name in (image["Id"], *image["RepoTags"])), None)

    def chain(self, name: str) -> list[str]:
        image = self.find(name)
        return [layer.removeprefix("sha256:") for layer in image["RootFS"]["Layers"]] if image else []

    def load(self, body: bytes) -> str:
        """What is wrong with it, if anything."""
        with tarfile.open(fileobj=io.BytesIO(body)) as tar:
            files = {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]
        self.archives.append(files)
        if self.refuse:
            return self.refuse.pop(0)
        own = json.loads(files["manifest.json"])[0]
        config = json.loads(files[own["Config"]])
        chain = [layer.removeprefix("sha256:") for layer in config["rootfs"]["diff_ids"]]
        assert [Path(name).name for name in own["Layers"]] == chain
        for layer in chain:
            content = files.get("blobs/sha256/" + layer)
            if content is not None and sha(content) == layer:
                self.layers[layer] = content
            if layer not in self.layers:
                return f"no layer {layer}" if content is None else f"{layer} is {sha(content)}"
        self._add(chain, own["RepoTags"] or [], config["config"])
        return ""

    def save(self, name: str) -> bytes:
        if self.saved is not None:
            return self.saved
        return tar_of({"blobs/sha256/" + layer: self.layers[layer] for layer in self.chain(name)})

    def push(self, repository: str, tag: str) -> str:
        """To that registry, the newest layer first, packed. The error, if any."""
        if not self.reachable:
            return "connection refused"
        for layer in reversed(self.chain(f"{repository}:{tag}")):
            if not push_layer(repository, self.layers[layer]):
                return "denied"
            self.pushed.append(layer)
        return ""


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


class _Handler(http.server.BaseHTTPRequestHandler):
    engine: FakeEngine

    def log_message(self, *_: Any) -> None:
        pass

    def address_string(self) -> str:
        return ""

    def _answer(self, value: Any, code: int = 200) -> None:
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _record_request(self) -> tuple[str, dict[str, str]]:
        self.engine.requests.append(f"{self.command} {self.path}")
        parts = urlsplit(self.path)
        return unquote(parts.path), {key: value[0] for key, value in parse_qs(parts.query).items()}

    def do_GET(self) -> None:
        engine = self.engine
        path, query = self._record_request()
        if path == "/info":
            self._answer({"DockerRootDir": str(engine.root)})
        elif path == "/images/json":
            self._answer(list(self._labeled(query)))
        elif path == "/images/get":
            self._answer(engine.save(query["names"]))
        elif path.endswith(("/json", "/history")):
            name, _, what = path.removeprefix("/images/").rpartition("/")
            image = engine.find(name)
            if image is None:
                self._answer({"message": f"No such image: {name}"}, 404)
            elif what == "history":
                self._answer([{"Size": len(engine.layers[layer])} for layer in reversed(engine.chain(name))])
            else:
                self._answer(image)

    def _labeled(self, query: dict[str, str]) -> Iterator[dict[str, Any]]:
        wanted = json.loads(query.get("filters", "{}")).get("label", [])
        for image in list(self.engine.images.values()):
            labels = [f"{key}={value}" for key, value in image["Config"].get("Labels", {}).items()]
            if all(label in labels for label in wanted):
                yield {"Id": image["Id"], "RepoTags": image["RepoTags"]}

    def do_POST(self) -> None:
        engine = self.engine
        path, query = self._record_request()
        if path == "/images/load":
            if engine.hang_up:
                self._answer({"message": "write /x: no space left on device"}, 500)
                return
            answer = engine.load(self.rfile.read(int(self.headers["Content-Length"])))
            self._answer(b'{"stream": "on its way"}\n' + json.dumps({"error": answer} if answer else {}).encode())
            return
        name = path.removeprefix("/images/").rpartition("/")[0]
        if path.endswith("/tag"):
            image = engine.find(name)
            assert image
            image["RepoTags"].append(f"{query['repo']}:{query['tag']}")
            self._answer({}, 201)
        elif path.endswith("/push"):
            answer = engine.push(name, query["tag"])
            self._answer(json.dumps({"error": answer} if answer else {}).encode())

    def do_DELETE(self) -> None:
        engine = self.engine
        name = self._record_request()[0].removeprefix("/images/")
        image = engine.find(name)
        if image:
            image["RepoTags"] = [tag for tag in image["RepoTags"] if tag != name]
            if not image["RepoTags"]:
                del engine.images[image["Id"]]
        self._answer([])
