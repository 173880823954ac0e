"""Takes wanted layers out of an engine, into a folder of layers, from where other parts pass them on.

An engine cannot export one layer. `docker save` writes the whole image to its disk before it sends the first byte. A
push sends only what the registry lacks, the newest layers first, but compresses them, which is slow. So this program
gets a few layers by a push to a registry inside itself, and a whole image by a save.
"""

import contextlib
import hashlib
import os
import tarfile
import zlib
from typing import Any, Iterator, List, Set

from .capture import Capture
from .layers import Corrupt, Layers, Stopped, Writer
from .wire import CHUNK

BLOBS = "blobs/sha256/"
OLD_LAYER = "/layer.tar"
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
# A push compresses at about a third of the speed at which a save writes.
SAVE_IS_FASTER = 3


class SourceError(Exception):
    """The engine did not give the layers that it has."""


def fill(engine: Any, image: str, chain: List[str], wanted: Set[str], layers: Layers) -> str:
    """Bring `wanted` of the image's `chain` into `layers`. Return how: "", push or save.

    Raises SourceError, and OSError if the disk is full.
    """
    wanted = {layer for layer in wanted if not layers.whole(layer)}
    if not wanted:
        return ""
    if _few(engine.sizes(image), chain, wanted):
        _by_push(engine, image, wanted, layers)
        wanted = {layer for layer in wanted if not layers.whole(layer)}
        if not wanted:
            return "push"
    _by_save(engine, image, wanted, layers)
    lacking = [layer for layer in wanted if not layers.whole(layer)]
    if lacking:
        raise SourceError("the engine saved {} without its layer {}".format(image, lacking[0][:12]))
    return "save"


def _few(sizes: List[int], chain: List[str], wanted: Set[str]) -> bool:
    """Return whether the wanted layers are a small part of the image. `sizes` has the last step's first."""
    distinct = list(dict.fromkeys(chain))
    if set(distinct) <= wanted:
        return False
    first = min(distinct.index(layer) for layer in wanted)
    return sum(sizes[: len(distinct) - first]) * SAVE_IS_FASTER < sum(sizes)


def _by_push(engine: Any, image: str, wanted: Set[str], layers: Layers) -> None:
    """Take what a push brings. That is nothing if the engine cannot reach this program, as an engine in a VM."""

    def take(stream: Iterator[bytes]) -> None:
        _admit(stream, wanted, layers)

    capture = Capture(take, lambda: layers.stopped or all(layers.whole(layer) for layer in wanted))
    try:
        # A killed kit may have left its tag.
        for tag in engine.tags():
            if Capture.NAME.fullmatch(tag):
                engine.remove(tag)
        # `stop` waits for this flag, so clear it before the check: no tag may follow a stop.
        engine.still.clear()
        if layers.stopped:
            engine.still.set()
            raise Stopped
        engine.tag(image, capture.repository, capture.TAG)
        try:
            capture.wait(lambda: engine.push(capture.repository, capture.TAG))
        finally:
            engine.remove("{}:{}".format(capture.repository, capture.TAG))
    finally:
        capture.close()


def _by_save(engine: Any, image: str, wanted: Set[str], layers: Layers) -> None:
    try:
        with engine.save(image) as stream, tarfile.open(fileobj=stream, mode="r|", bufsize=4 * CHUNK) as tar:
            for member in tar:
                if not member.isfile():
                    continue
                file = tar.extractfile(member)
                name = member.name
                if file is None:
                    continue
                if name.startswith(BLOBS) and name[len(BLOBS) :] in wanted:
                    _named(file, name[len(BLOBS) :], member.size, layers)
                elif name.startswith(BLOBS) or name.endswith(OLD_LAYER):
                    # Old engines use other names, and containerd's store names layers by their compressed bytes.
                    _admit(_chunks(file), wanted, layers)
    except tarfile.TarError as error:
        raise SourceError("the engine's tar of {} cannot be read: {}".format(image, error)) from error


def _named(file: Any, layer: str, size: int, layers: Layers) -> None:
    """Write a layer whose name is known, so that others can read it while it comes."""
    writer = Writer(layers, layer, size)
    try:
        skip = writer.at
        for chunk in _chunks(file):
            if skip >= len(chunk):
                skip -= len(chunk)
                continue
            writer.write(chunk[skip:])
            skip = 0
        writer.finish()
    except Corrupt as error:
        raise SourceError("the engine gave other bytes for the layer {}".format(layer[:12])) from error
    finally:
        writer.close()


def _admit(stream: Iterator[bytes], wanted: Set[str], layers: Layers) -> None:
    """Write a layer whose name is known only at its end. Drop it if it is not wanted."""
    handle, path = layers.nameless()
    try:
        digest = hashlib.sha256()
        with os.fdopen(handle, "wb", buffering=0) as file:
            for chunk in _unpacked(stream):
                digest.update(chunk)
                left = memoryview(chunk)
                while left:
                    left = left[file.write(left) :]
        layer = digest.hexdigest()
        if layer in wanted and not layers.whole(layer):
            layers.admit(path, layer)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def _chunks(file: Any) -> Iterator[bytes]:
    for chunk in iter(lambda: file.read(4 * CHUNK), b""):
        yield chunk


def _unpacked(stream: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the uncompressed bytes of a stream that may be compressed by gzip."""
    unpack: Any = None
    first = True
    for chunk in stream:
        if first and chunk:
            first = False
            if chunk.startswith(ZSTD):
                raise SourceError(
                    "the engine keeps a layer compressed by zstd, as its base has it, and kit cannot unpack it; "
                    "build the base with gzip, or let hosts pull the image (registry: in kit.yaml)"
                )
            if chunk.startswith(GZIP):
                unpack = zlib.decompressobj(31)
        if unpack is None:
            yield chunk
            continue
        left = chunk
        while left:
            try:
                data = unpack.decompress(left, 16 * CHUNK)
            except zlib.error as error:
                raise SourceError("the engine packed a layer in a way that cannot be read: {}".format(error)) from error
            yield data
            left = unpack.unconsumed_tail
            if unpack.eof and unpack.unused_data:
                # pigz and other programs write several members, one after the other.
                left, unpack = unpack.unused_data, zlib.decompressobj(31)
