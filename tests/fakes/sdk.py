"""The docker SDK's low level, as far as handing out an image's layers needs it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import docker

from tests.fakes.socket_engine import push_layer, sha, tar_of

LONG = 30.0


class Api:
    """It has one image. `broken` is raised in the middle of a save, which goes on while `go` is set."""

    def __init__(self, image: str, layers: list[bytes]) -> None:
        self.image = image
        self.layers = layers
        self.saved = tar_of({"blobs/sha256/" + sha(layer): layer for layer in layers})
        self.tags = [image]
        self.saves = 0
        self.timeout = 600.0
        self.broken: Exception | None = None
        self.go = threading.Event()
        self.go.set()

    def inspect_image(self, image: str) -> dict[str, Any]:
        if image != self.image:
            raise docker.errors.ImageNotFound("404", explanation=f"No such image: {image}")
        return {"Os": "linux", "RootFS": {"Layers": ["sha256:" + sha(layer) for layer in self.layers]}}

    def history(self, image: str) -> list[dict[str, Any]]:
        return [{"Size": len(layer)} for layer in reversed(self.layers)] + [{"Size": 0}]

    def images(self) -> list[dict[str, Any]]:
        return [{"RepoTags": self.tags}, {"RepoTags": None}]

    def tag(self, image: str, repository: str, tag: str) -> None:
        self.tags.append(f"{repository}:{tag}")

    def remove_image(self, image: str, noprune: bool) -> None:
        assert noprune
        self.tags.remove(image)

    def push(self, repository: str, tag: str, auth_config: dict[str, str]) -> str:
        # Without these the SDK would send the user's own.
        assert auth_config == {"username": "", "password": ""}
        assert f"{repository}:{tag}" in self.tags
        taken = all(push_layer(repository, layer) for layer in reversed(self.layers))
        return "" if taken else '{"error": "denied"}'

    def get_image(self, image: str, chunk_size: int) -> Iterator[bytes]:
        self.saves += 1
        for at in range(0, len(self.saved), 10_000):
            assert self.go.wait(LONG)
            yield self.saved[at : at + 10_000]
            if self.broken:
                raise self.broken
