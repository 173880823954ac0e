"""An image as an engine loads it: the tar, the config, and which layers must be in it."""

import hashlib
import json
import os
import tarfile
from typing import Any, BinaryIO, Dict, Iterator, List, Sequence, Tuple

from .engine import PART_LABEL, EngineError, SocketEngine
from .names import is_digest
from .wire import MOST_LAYERS

CHUNK = 1 << 20
_OCI = "application/vnd.oci.image."


class Archive:
    """An image as `docker load` reads it, in both formats: the engine's own, and OCI's for containerd's store.

    `layers` is the whole chain with the size of each. `files` are the paths of those that are in the archive. It has
    the same config for every engine, so a shipped image has one ID everywhere.
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
    """Return a name as containerd writes it, with its registry."""
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
    """Return the config of an image of the first layers only. Raises EngineError for one that is no JSON object."""
    try:
        whole = json.loads(config.decode())
    except (ValueError, RecursionError):
        whole = None
    if not isinstance(whole, dict):
        raise EngineError("the image's config is no JSON object")
    part = {
        "architecture": whole.get("architecture"),
        "os": whole.get("os"),
        "config": {"Labels": {PART_LABEL: owner}},
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + layer for layer in layers]},
    }
    return json.dumps(part, sort_keys=True).encode()


def config_of(facts: Dict[str, Any]) -> bytes:
    """Return an image's config, made from what the engine reports. Equal images give equal bytes.

    The engine gives its own copy only together with all layers. This one has everything that a container needs, but not
    the history of the build.
    """
    config = {
        "architecture": facts.get("Architecture") or "",
        "os": facts.get("Os") or "linux",
        "created": facts.get("Created") or "1970-01-01T00:00:00Z",
        "config": {key: value for key, value in _config(facts).items() if value not in (None, "")},
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + layer for layer in layers_of(facts)]},
    }
    if facts.get("Variant"):
        config["variant"] = facts["Variant"]
    return json.dumps(config, sort_keys=True).encode()


def _config(facts: Dict[str, Any]) -> Dict[str, Any]:
    config = facts.get("Config") or {}
    if not isinstance(config, dict):
        raise EngineError("the engine gives a config that is no object")
    return config


def layers_of(facts: Dict[str, Any]) -> List[str]:
    """Return the chain of layers, the lowest first, as bare SHA-256. Raises EngineError if it is something else."""
    root = facts.get("RootFS")
    words = (root.get("Layers") if isinstance(root, dict) else None) or []
    chain = [str(word)[len("sha256:") :] for word in words] if isinstance(words, list) else [""]
    if len(chain) > MOST_LAYERS or not all(is_digest(layer) for layer in chain):
        raise EngineError("the engine names layers that are no SHA-256")
    return chain


def fits(engine: SocketEngine, config: bytes, layers: Sequence[str], owner: str) -> int:
    """Return how many of `layers`, from the first on, the engine can reuse, so that they need not be sent.

    containerd's store may know a layer without having its bytes in a form that it can load. Only a load shows that, and
    loading layers that are here costs little.
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
