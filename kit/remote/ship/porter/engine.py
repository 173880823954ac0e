"""This host's engine, by its API on the unix socket: which layers it has, loading more, tags."""

import base64
import contextlib
import http.client
import json
import os
import socket
import threading
from typing import Any, Dict, Iterator, List, Optional, Sequence
from urllib.parse import quote, urlencode

# What an engine may take for a question. Loading, saving and pushing may take any time.
ANSWER_S = 60.0
# Images that stand for the first layers only, so that layers are unpacked while others are still on their way.
PART_LABEL = "kit.ship.part"


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


class SocketEngine:
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

    def load(self, image: Any) -> None:
        """Load what an archive.Archive holds; layers that are not in it have to be here already."""
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
