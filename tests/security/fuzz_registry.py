"""What an engine answers about images and registries, and reports while it builds. `read` may raise only KitError."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, cast

import requests
from docker.utils.json_stream import json_stream

from kit.errors import KitError
from kit.model.image import HashedFile, ImageContent
from kit.model.plan import Pull
from kit.remote.engine import registry
from kit.remote.engine.client import Engine

NAME = "r.example.com/team/kit:cpu-0123"
DIGEST = "sha256:" + "ab" * 32
STEP = Pull(image="kit:cpu-0123", source=NAME, digest=DIGEST, why="")
CONTENT = ImageContent(repository="kit", flavour="cpu", files={"Dockerfile": b"FROM x\n"}, executables=frozenset())


def _lines(*messages: object) -> bytes:
    return b"".join(json.dumps(message).encode() + b"\r\n" for message in messages)


SAMPLES: tuple[bytes, ...] = (
    json.dumps(
        {
            "Descriptor": {"mediaType": "application/vnd.oci.image.index.v1+json", "digest": DIGEST, "size": 1609},
            "Platforms": [{"architecture": "amd64", "os": "linux"}, {"architecture": "unknown", "os": "unknown"}],
        }
    ).encode(),
    json.dumps(
        {
            "Id": DIGEST, "Size": 1234567, "Architecture": "amd64", "Os": "linux", "Created": "2026-01-01T00:00:00Z",
            "Config": {"Env": ["A=1"]}, "RootFS": {"Type": "layers", "Layers": [DIGEST]},
        }
    ).encode(),
    _lines(
        {"status": "Pulling from team/kit", "id": DIGEST},
        {"status": "Pulling fs layer", "progressDetail": {}, "id": "1f2e"},
        {"status": "Downloading", "progressDetail": {"current": 1000, "total": 9000}, "id": "1f2e"},
        {"status": "Download complete", "progressDetail": {}, "id": "1f2e"},
        {"status": "Extracting", "progressDetail": {"current": 1, "units": "s"}, "id": "1f2e"},
        {"status": f"Digest: {DIGEST}"},
        {"status": f"Status: Downloaded newer image for {NAME}"},
    ),
    _lines(
        {"status": "The push refers to repository [r.example.com/team/kit]"},
        {"status": "Pushing", "progressDetail": {"current": 512, "total": 4096}, "id": "1f2e"},
        {"status": "Pushed", "progressDetail": {}, "id": "1f2e"},
        {"progressDetail": {}, "aux": {"Tag": "cpu-0123", "Digest": DIGEST, "Size": 1609}},
    ),
    _lines({"errorDetail": {"message": "denied"}, "error": "denied: requested access to the resource is denied"}),
    _lines(
        {"stream": "Step 1/2 : FROM debian:bookworm-slim"},
        {"stream": "\n"},
        {"stream": " ---> 1f2e3d4c5b6a\n"},
        {"stream": "Step 2/2 : RUN make"},
        {"stream": " ---> Running in 0123456789ab\n"},
        {"stream": "cc -O2 -o a a.c\n"},
        {"aux": {"ID": DIGEST}},
        {"errorDetail": {"code": 2}, "error": "The command '/bin/sh -c make' returned a non-zero code: 2"},
    ),
)  # fmt: skip


class _Api:
    """The SDK's low-level client: it decodes an answer as the SDK does."""

    stderr = ""

    def __init__(self, answer: bytes) -> None:
        self.api = self
        self._answer = answer
        self.removed: list[str] = []

    def _json(self) -> Any:
        response = requests.Response()
        response._content = self._answer
        return response.json()

    def _stream(self) -> Iterator[Any]:
        chunks: Any = (self._answer[at : at + 5000] for at in range(0, len(self._answer), 5000))
        return cast(Iterator[Any], json_stream(chunks))

    def inspect_distribution(self, name: str, **_: Any) -> Any:
        return self._json()

    def inspect_image(self, name: str) -> Any:
        return self._json()

    def push(self, repository: str, **_: Any) -> Iterator[Any]:
        return self._stream()

    def pull(self, repository: str, **_: Any) -> Iterator[Any]:
        return self._stream()

    def build(self, **_: Any) -> Iterator[Any]:
        return self._stream()

    def tag(self, *_: str) -> None:
        pass

    def remove_image(self, name: str, **_: Any) -> None:
        pass

    def remove_container(self, name: str, **_: Any) -> None:
        self.removed.append(name)


class _Building(_Api):
    """An engine that has the image which it reports to have built."""

    def inspect_image(self, name: str) -> Any:
        return {"Id": DIGEST, "Size": 1}


def read(answer: bytes) -> None:
    """Give the answer to each reader, and raise the last error."""
    failure: KitError | None = None
    for reader in _readers(answer):
        try:
            reader()
        except KitError as error:
            failure = error
            if len(error.message) > 200_000:
                raise AssertionError("an error has the whole answer") from error
    if failure is not None:
        raise failure


def _readers(answer: bytes) -> tuple[Callable[[], object], ...]:
    engine, builder = Engine(_Api(answer), host="bad"), Engine(_Building(answer), host="bad")
    files: dict[str, bytes | HashedFile] = {}
    return (
        lambda: registry.look_up(engine, NAME, None),
        lambda: engine.image(NAME),
        lambda: registry.push(builder, "kit:cpu-0123", NAME, None, lambda text, fraction: None),
        lambda: registry.pull(engine, STEP, None, lambda text, fraction: None),
        lambda: engine.pull("debian:bookworm-slim", on_progress=lambda text, fraction: None),
        lambda: builder.build(CONTENT, beside=files, arguments={}, on_step=lambda step: None),
    )
