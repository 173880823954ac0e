"""This host's engine, by its API on the unix socket: which layers it has, loading more, tags."""

import base64
import contextlib
import hashlib
import http.client
import json
import os
import socket
import tarfile
import threading
from typing import Any, BinaryIO, Dict, Iterator, List, Optional, Sequence, Tuple
from urllib.parse import quote, urlencode

CHUNK = 1 << 20
# What an engine may take for a question. Loading, saving and pushing may take any time.
ANSWER_S = 60.0
# Images that stand for the first layers only, so that layers are unpacked while others are still on their way.
PART_LABEL = "kit.ship.part"
_OCI = "application/vnd.oci.image."


class EngineError(Exception):
    """The engine refused, or does not answer."""


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str, patience: Optional[float]) -> None:
        super().__init__("engine", timeout=patience)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Engine:
    """Methods raise EngineError. Each call is a connection of its own: safe for several threads."""

    def __init__(self, path: str = "") -> None:
        named = os.environ.get("DOCKER_HOST", "")
        self._path = path or (named[len("unix://") :] if named.startswith("unix://") else "/var/run/docker.sock")
        # Set while it has no tag that is ours to take away.
        self.still = threading.Event()
        self.still.set()

    @contextlib.contextmanager
    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Optional[Dict[str, str]] = None,
        patience: Optional[float] = None,
    ) -> Iterator[http.client.HTTPResponse]:
        connection = _Connection(self._path, patience)
        try:
            try:
                # An engine that wants no more of a body says why before it hangs up.
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    connection.request(method, path, body=body, headers=headers or {})
                answer = connection.getresponse()
            except (OSError, http.client.HTTPException) as error:
                raise EngineError("the engine does not answer: {}".format(error)) from error
            try:
                if answer.status >= 400:
                    raise EngineError(_message(answer.read()))
                yield answer
            except (http.client.HTTPException, socket.timeout, ConnectionError) as error:
                raise EngineError("the engine stopped in the middle of its answer: {}".format(error)) from error
        finally:
            connection.close()

    def json(self, method: str, path: str) -> Any:
        with self.call(method, path, patience=ANSWER_S) as answer:
            return json.loads(answer.read().decode() or "null")

    def root(self) -> str:
        """Where the engine keeps its data: the disk on which there has to be room."""
        return str(self.json("GET", "/info").get("DockerRootDir") or "/var/lib/docker")

    def inspect(self, image: str) -> Optional[Dict[str, Any]]:
        try:
            found = self.json("GET", "/images/{}/json".format(quote(image, safe="/:@")))
        except EngineError as error:
            if "no such image" in str(error).lower():
                return None
            raise
        return dict(found)

    def held(self, layers: Sequence[str]) -> int:
        """How many of `layers`, from the first on, some image here has below it."""
        most = 0
        for summary in self.json("GET", "/images/json"):
            with contextlib.suppress(EngineError):  # It may have gone since.
                facts = self.inspect(str(summary["Id"])) or {}
                chain = (facts.get("RootFS") or {}).get("Layers") or []
                most = max(most, _common([str(word)[len("sha256:") :] for word in chain], layers))
        return most

    def load(self, image: "Archive") -> None:
        """Load what the archive holds; layers that are not in it have to be here already."""
        headers = {"Content-Type": "application/x-tar", "Content-Length": str(image.size)}
        with self.call("POST", "/images/load?quiet=1", body=image.chunks(), headers=headers) as answer:
            said = failure(answer.read())
        if said:
            raise EngineError(said)

    def sizes(self, image: str) -> List[int]:
        """Bytes of what each step of the build left, the last step first, without those that left nothing."""
        history = self.json("GET", "/images/{}/history".format(quote(image, safe="/:@")))
        return [int(step["Size"]) for step in history if step.get("Size")]

    def tags(self) -> List[str]:
        return [str(tag) for summary in self.json("GET", "/images/json") for tag in summary.get("RepoTags") or []]

    @contextlib.contextmanager
    def save(self, image: str) -> Iterator[Any]:
        """A stream of the image as a tar."""
        with self.call("GET", "/images/get?" + urlencode({"names": image})) as answer:
            yield answer

    def tag(self, image: str, repository: str, tag: str) -> None:
        path = "/images/{}/tag?".format(quote(image, safe="/:@"))
        self.still.clear()
        try:
            self.json("POST", path + urlencode({"repo": repository, "tag": tag}))
        except EngineError:
            self.still.set()
            raise

    def push(self, repository: str, tag: str) -> str:
        """Push, and wait for the end of it. Returns the engine's last words when it failed."""
        path = "/images/{}/push?{}".format(quote(repository, safe="/:@"), urlencode({"tag": tag}))
        headers = {"X-Registry-Auth": base64.urlsafe_b64encode(b"{}").decode()}
        with self.call("POST", path, headers=headers) as answer:
            return failure(answer.read())

    def remove(self, image: str) -> None:
        """The tag, or the image where it has no other. What is gone already is no error."""
        with contextlib.suppress(EngineError):
            self.json("DELETE", "/images/{}?noprune=1".format(quote(image, safe="/:@")))
        self.still.set()

    def remove_parts(self, owner: str) -> None:
        """Images that stood for the first layers of what `owner` shipped."""
        filters = urlencode({"filters": json.dumps({"label": ["{}={}".format(PART_LABEL, owner)]})})
        for summary in self.json("GET", "/images/json?" + filters):
            self.remove(str(summary["Id"]))


def _common(chain: Sequence[str], layers: Sequence[str]) -> int:
    count = 0
    while count < min(len(chain), len(layers)) and chain[count] == layers[count]:
        count += 1
    return count


def failure(messages: bytes) -> str:
    """The error among an engine's messages, one a line; empty when there is none."""
    for line in messages.decode(errors="replace").splitlines():
        with contextlib.suppress(ValueError):
            said = json.loads(line)
            if isinstance(said, dict) and said.get("error"):
                return str(said["error"])
    return ""


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body.decode())["message"])
    except (ValueError, KeyError, TypeError):
        return body.decode(errors="replace").strip() or "no reason given"


class Archive:
    """An image as `docker load` takes it, in both of its languages: the engine's own, and OCI's for containerd's store.

    `layers` is the whole chain with the size of each; `files` are the paths of those that are in it. Equal on every
    engine: whatever was shipped has one identity.
    """

    def __init__(self, config: bytes, layers: List[Tuple[str, int]], files: Dict[str, str], tag: str = "") -> None:
        # An image may have one layer twice, such as an empty one.
        self._files = [(layer, files[layer]) for layer in dict.fromkeys(layer for layer, _ in layers) if layer in files]
        config_digest = _digest(config)
        manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": _OCI + "manifest.v1+json",
                "config": _blob("config.v1+json", config_digest, len(config)),
                "layers": [_blob("layer.v1.tar", layer, size) for layer, size in layers],
            }
        ).encode()
        name, _, version = tag.partition(":")
        annotations = {"org.opencontainers.image.ref.name": version}
        annotations["io.containerd.image.name"] = _full(name) + ":" + version
        entry = _blob("manifest.v1+json", _digest(manifest), len(manifest))
        entry["annotations"] = annotations if tag else {}
        own = {
            "Config": "blobs/sha256/" + config_digest,
            "RepoTags": [tag] if tag else None,
            "Layers": ["blobs/sha256/" + layer for layer, _ in layers],
        }
        index = {"schemaVersion": 2, "mediaType": _OCI + "index.v1+json", "manifests": [entry]}
        self._texts = {
            "blobs/sha256/" + config_digest: config,
            "blobs/sha256/" + _digest(manifest): manifest,
            "index.json": json.dumps(index).encode(),
            "oci-layout": b'{"imageLayoutVersion":"1.0.0"}',
            "manifest.json": json.dumps([own]).encode(),
        }
        sizes = [os.path.getsize(path) for _, path in self._files] + [len(text) for text in self._texts.values()]
        self.size = sum(512 + -(-size // 512) * 512 for size in sizes) + 1024

    def chunks(self) -> Iterator[bytes]:
        for layer, path in self._files:
            size = os.path.getsize(path)
            yield _member("blobs/sha256/" + layer, size)
            with open(path, "rb") as file:
                yield from _read(file, size)
            yield b"\0" * (-size % 512)
        for name, text in self._texts.items():
            yield _member(name, len(text)) + text + b"\0" * (-len(text) % 512)
        yield b"\0" * 1024


def _blob(kind: str, digest: str, size: int) -> Dict[str, Any]:
    return {"mediaType": _OCI + kind, "digest": "sha256:" + digest, "size": size}


def _full(name: str) -> str:
    """A name as containerd writes it, with its registry."""
    first = name.split("/", maxsplit=1)[0]
    if "/" in name and ("." in first or ":" in first or first == "localhost"):
        return name
    return "docker.io/" + (name if "/" in name else "library/" + name)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _member(name: str, size: int) -> bytes:
    entry = tarfile.TarInfo(name)
    entry.size = size
    return entry.tobuf(tarfile.GNU_FORMAT)


def _read(file: BinaryIO, size: int) -> Iterator[bytes]:
    left = size
    while left:
        data = file.read(min(CHUNK, left))
        if not data:
            raise EngineError("a layer's file became shorter")
        left -= len(data)
        yield data


def part_config(config: bytes, layers: Sequence[str], owner: str) -> bytes:
    """The config of an image of the first layers alone."""
    whole = json.loads(config.decode())
    part = {
        "architecture": whole.get("architecture"),
        "os": whole.get("os"),
        "config": {"Labels": {PART_LABEL: owner}},
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + layer for layer in layers]},
    }
    return json.dumps(part, sort_keys=True).encode()


def config_of(facts: Dict[str, Any]) -> bytes:
    """An image's config, made from what the engine tells of the image: the same bytes for the same image.

    The engine hands its own copy out only together with all layers. What a container is made from is all here; the
    history of the build is not.
    """
    made = {
        "architecture": facts.get("Architecture") or "",
        "os": facts.get("Os") or "linux",
        "created": facts.get("Created") or "1970-01-01T00:00:00Z",
        "config": {key: value for key, value in (facts.get("Config") or {}).items() if value not in (None, "")},
        "rootfs": {"type": "layers", "diff_ids": list((facts.get("RootFS") or {}).get("Layers") or [])},
    }
    if facts.get("Variant"):
        made["variant"] = facts["Variant"]
    return json.dumps(made, sort_keys=True).encode()


def layers_of(facts: Dict[str, Any]) -> List[str]:
    """The chain of layers, the lowest first, as bare SHA-256."""
    return [str(word)[len("sha256:") :] for word in (facts.get("RootFS") or {}).get("Layers") or []]


def fits(engine: Engine, config: bytes, layers: Sequence[str], owner: str) -> int:
    """How many of `layers` an image may be loaded on without bringing them.

    containerd's store may know a layer and not have the bytes in the form in which they would be loaded: only a load
    tells, and one of the layers that are there costs little.
    """
    count = engine.held(layers)
    if not count:
        return 0
    probe = Archive(part_config(config, layers[:count], owner), [(layer, 0) for layer in layers[:count]], {})
    try:
        engine.load(probe)
    except EngineError:
        return 0
    return count
