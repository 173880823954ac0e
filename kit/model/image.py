"""The content of an image: the rendered Dockerfile and the files beside it, from which its tag is computed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct


class ImageContent(Struct, frozen=True, kw_only=True):
    """`files` maps a path in the build context to its bytes; Dockerfile is one of them."""

    repository: str
    flavour: str
    files: Mapping[str, bytes]
    executables: frozenset[str] = frozenset()

    @property
    def tag(self) -> str:
        """Return `repository:flavour-<12 hex digits>`. Equal content has the same tag on every machine."""
        digest = hashlib.sha256()
        for path in sorted(self.files):
            content = self.files[path]
            digest.update(f"{path}\0{int(path in self.executables)}\0{len(content)}\0".encode())
            digest.update(content)
        return f"{self.repository}:{self.flavour}-{digest.hexdigest()[:12]}"


class Wheel(Struct, frozen=True, kw_only=True):
    """A Python wheel for a build. `digest` is the SHA-256 of its content, in hex."""

    name: str
    digest: str


class HashedFile(Struct, frozen=True, kw_only=True):
    """A file of this machine for a build. `digest` is the SHA-256 that its content must have, in hex."""

    path: Path
    digest: str
