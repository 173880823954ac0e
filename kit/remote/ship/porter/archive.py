"""An image as an engine takes it: the tar, the config, and which layers have to be in it."""

import hashlib
import json
import os
import tarfile
from typing import Any, BinaryIO, Dict, Iterator, List, Sequence, Tuple

from .engine import PART_LABEL, EngineError, SocketEngine

CHUNK = 1 << 20
_OCI = "application/vnd.oci.image."


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


def fits(engine: SocketEngine, config: bytes, layers: Sequence[str], owner: str) -> int:
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
