"""This host's engine, through its API on the Unix socket: which layers it has, loading more, tags."""

import base64
import contextlib
import http.client
import io
import json
import os
import socket
import threading
from typing import Any, Dict, Iterator, List, Optional, Sequence
from urllib.parse import quote, urlencode

from .wire import MOST_SIZE

# The time limit for a short request. Loading, saving and pushing may take any time.
ANSWER_S = 60.0
# Marks images of the first layers only, which let the engine unpack them while other layers still come.
PART_LABEL = "kit.ship.part"
# The longest answer that is read whole. The messages of a load or a push are the longest.
MOST_ANSWER = 64 << 20


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
    """Methods raise EngineError. Each call opens a new connection, so several threads may call."""

    def __init__(self, path: str = "") -> None:
        named = os.environ.get("DOCKER_HOST", "")
        self._path = path or (named[len("unix://") :] if named.startswith("unix://") else "/var/run/docker.sock")
        # Set while the engine has no tag of ours.
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
                # An engine that refuses the rest of a body answers before it hangs up.
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    connection.request(method, path, body=body, headers=headers or {})
                answer = connection.getresponse()
            except (OSError, http.client.HTTPException) as error:
                raise EngineError("the engine does not answer: {}".format(error)) from error
            try:
                if answer.status >= 400:
                    raise EngineError(_message(_read(answer)))
                yield answer
            except (http.client.HTTPException, socket.timeout, ConnectionError) as error:
                raise EngineError("the engine stopped in the middle of its answer: {}".format(error)) from error
        finally:
            connection.close()

    def json(self, method: str, path: str) -> Any:
        with self.call(method, path, patience=ANSWER_S) as answer:
            text = _read(answer)
        try:
            return json.loads(text.decode() or "null")
        except (ValueError, RecursionError) as error:
            raise EngineError("the engine answered something that is not JSON") from error

    def object(self, path: str) -> Dict[str, Any]:
        """Return an answer that is an object. Raises EngineError for anything else."""
        answer = self.json("GET", path)
        if not isinstance(answer, dict):
            raise EngineError("the engine answered something that is no object")
        return answer

    def objects(self, path: str) -> List[Dict[str, Any]]:
        """Return an answer that is a list of objects. Raises EngineError for anything else."""
        answer = self.json("GET", path)
        if not isinstance(answer, list) or not all(isinstance(entry, dict) for entry in answer):
            raise EngineError("the engine answered something that is no list of objects")
        return answer

    def root(self) -> str:
        """Return the folder of the engine's data, whose disk needs free space."""
        root = self.object("/info").get("DockerRootDir") or "/var/lib/docker"
        if not isinstance(root, str) or not os.path.isabs(root):
            raise EngineError("the engine keeps its data in something that is no folder")
        return root

    def inspect(self, image: str) -> Optional[Dict[str, Any]]:
        try:
            return self.object("/images/{}/json".format(quote(image, safe="/:@")))
        except EngineError as error:
            if "no such image" in str(error).lower():
                return None
            raise

    def held(self, layers: Sequence[str]) -> int:
        """Return how many of `layers`, from the first on, one image here has."""
        most = 0
        for summary in self.objects("/images/json"):
            with contextlib.suppress(EngineError):  # It may be gone already.
                facts = self.inspect(str(summary.get("Id"))) or {}
                root = facts.get("RootFS")
                chain = root.get("Layers") if isinstance(root, dict) else None
                if isinstance(chain, list):
                    most = max(most, _common([str(word)[len("sha256:") :] for word in chain], layers))
        return most

    def load(self, image: Any) -> None:
        """Load an archive.Archive. The engine must already have the layers that are not in it."""
        headers = {"Content-Type": "application/x-tar", "Content-Length": str(image.size)}
        with self.call("POST", "/images/load?quiet=1", body=image.chunks(), headers=headers) as answer:
            error = failure(_read(answer))
        if error:
            raise EngineError(error)

    def sizes(self, image: str) -> List[int]:
        """Return the bytes that each step of the build added, the last step first, without those that added none."""
        return sizes_of(self.objects("/images/{}/history".format(quote(image, safe="/:@"))))

    def tags(self) -> List[str]:
        """Return the tags of all images."""
        return tags_of(self.objects("/images/json"))

    @contextlib.contextmanager
    def save(self, image: str) -> Iterator[Any]:
        """Open a stream of the image as a tar."""
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
        """Push, and wait for the end. Return the engine's error, or ''."""
        path = "/images/{}/push?{}".format(quote(repository, safe="/:@"), urlencode({"tag": tag}))
        headers = {"X-Registry-Auth": base64.urlsafe_b64encode(b"{}").decode()}
        with self.call("POST", path, headers=headers) as answer:
            return failure(_read(answer))

    def remove(self, image: str) -> None:
        """Remove the tag, or the image if it has no other tag. A missing one is no error."""
        with contextlib.suppress(EngineError):
            self.json("DELETE", "/images/{}?noprune=1".format(quote(image, safe="/:@")))
        self.still.set()

    def remove_parts(self, owner: str) -> None:
        """Remove the images of first layers that a ship of `owner` made."""
        filters = urlencode({"filters": json.dumps({"label": ["{}={}".format(PART_LABEL, owner)]})})
        for summary in self.objects("/images/json?" + filters):
            self.remove(str(summary.get("Id")))


def _common(chain: Sequence[str], layers: Sequence[str]) -> int:
    count = 0
    while count < min(len(chain), len(layers)) and chain[count] == layers[count]:
        count += 1
    return count


def _read(answer: http.client.HTTPResponse) -> bytes:
    text = answer.read(MOST_ANSWER + 1)
    if len(text) > MOST_ANSWER:
        raise EngineError("the engine's answer has more than {} bytes".format(MOST_ANSWER))
    if answer.length:
        # With a limit, `read` does not notice that the answer is cut.
        raise http.client.IncompleteRead(text, answer.length)
    return text


def size_of(facts: Dict[str, Any]) -> int:
    """Return the bytes of all layers of an image. Raises EngineError."""
    return sum(sizes_of([facts]))


def sizes_of(history: Any) -> List[int]:
    """Return the bytes that each step of a build added, without those that added none. Raises EngineError."""
    if not isinstance(history, list):
        raise EngineError("the engine gives a history that is no list")
    sizes: List[int] = []
    for step in history:
        size = step.get("Size") if isinstance(step, dict) else ""
        if size is not None and not (type(size) is int and 0 <= size <= MOST_SIZE):
            raise EngineError("the engine gives a size that is no number of bytes")
        if size:
            sizes.append(size)
    return sizes


def tags_of(summaries: Any) -> List[str]:
    """Return the tags of images as an engine lists them."""
    summaries = summaries if isinstance(summaries, list) else []
    lists = [summary.get("RepoTags") for summary in summaries if isinstance(summary, dict)]
    return [tag for tags in lists if isinstance(tags, list) for tag in tags if isinstance(tag, str)]


def failure(messages: bytes) -> str:
    """Return the error among an engine's messages, which are one per line, or ''."""
    if b'"error"' not in messages:
        return ""
    for line in io.BytesIO(messages):
        with contextlib.suppress(ValueError, RecursionError):
            message = json.loads(line.decode(errors="replace")) if b'"error"' in line else None
            if isinstance(message, dict) and message.get("error"):
                return str(message["error"])
    return ""


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body.decode())["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return body.decode(errors="replace").strip() or "no reason given"
