"""Takes layers from the upstream host, which may change, until all are here."""

import contextlib
import errno
import os
import socket
import ssl
import threading
import time
from typing import Any, BinaryIO, Callable, Dict, List, Optional, Tuple, cast

from . import wire
from .layers import Corrupt, Layers, Writer

# A sender that has nothing to send reports that every two seconds.
SILENCE_S = 10.0
# A sender that has only KEEP for this long counts as silent: it may be broken into. One that waits for its own upstream
# has bytes long before that, or reports the upstream as lost.
MOST_KEEP_S = 900.0
# How often to try the same upstream before reporting it as lost.
TRIES = 3
CORRUPT_TRIES = 3

Streams = Tuple[BinaryIO, BinaryIO, Callable[[], None]]


class Failed(Exception):
    """This host cannot continue. `kind`: disk, corrupt."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class Fetcher:
    """Ask the upstream for what is missing, again and again. `connect` makes the streams to an upstream.

    `most` is how many bytes all layers may have, by the operator's word. What an upstream announces beyond that, or
    beyond the free space of the disk, is not taken.
    """

    def __init__(
        self, layers: Layers, need: List[str], say: Callable[[Dict[str, Any]], None], most: int = wire.MOST_SIZE
    ) -> None:
        self._layers = layers
        self._need = need
        self._say = say
        self._most = most
        self._changed = threading.Condition()
        self._upstream: Optional[Callable[[], Streams]] = None
        self._turn = 0
        self._close: Callable[[], None] = _nothing
        self._corrupt: Dict[str, int] = {}
        self._writers: Dict[str, Writer] = {}

    def follow(self, turn: int, connect: Callable[[], Streams]) -> None:
        """Switch to this upstream, and close the connection to the one before. `turn` counts the upstreams."""
        with self._changed:
            self._upstream = connect
            self._turn = turn
            close, self._close = self._close, _nothing
            self._changed.notify_all()
        close()

    def missing(self) -> Dict[str, int]:
        """Return the layers that are incomplete, with the bytes that are here."""
        return {layer: self._layers.have(layer) for layer in self._need if not self._layers.whole(layer)}

    def again(self, layer: str) -> None:
        """Remove a layer that arrived and is wrong, so that it comes again. Raises Failed."""
        self._layers.forget(layer)
        self._count(layer)
        with self._changed:
            self._changed.notify_all()

    def wait_missing(self) -> None:
        """Wait until something is missing again."""
        with self._changed:
            while not self.missing():
                self._changed.wait()

    def run(self) -> None:
        """Fetch until nothing is missing. Raises Failed."""
        tries, turn = 0, 0
        while self.missing():
            with self._changed:
                while self._upstream is None or (tries >= TRIES and turn == self._turn):
                    self._changed.wait(1.0)
                if turn != self._turn:
                    tries, turn = 0, self._turn
                connect = self._upstream
            before = self._layers.total()
            try:
                self._once(connect, turn)
                continue
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise Failed("disk", "{}".format(error.strerror or error)) from error
                why = "{}".format(error.strerror or error)
            except wire.Broken as error:
                why = str(error)
            # A connection that brought bytes does not count as failed.
            tries = tries + 1 if self._layers.total() == before else 1
            if turn == self._turn and tries >= TRIES:
                self._say({"lost": why, "turn": turn})
            else:
                time.sleep(0.3)

    def _once(self, connect: Callable[[], Streams], turn: int) -> None:
        reading, writing, close = connect()
        with self._changed:
            if turn != self._turn:
                close()
                return
            self._close = close
        try:
            need = {layer: self._writer_at(layer) for layer in self.missing()}
            wire.write_line(writing, {"need": need})
            self._take(reading)
        finally:
            with contextlib.suppress(OSError, ValueError):
                close()

    def _writer_at(self, layer: str) -> int:
        writer = self._writers.get(layer)
        return writer.at if writer else self._layers.have(layer)

    def _take(self, reading: BinaryIO) -> None:
        while True:
            kind, payload = wire.next_frame(reading, MOST_KEEP_S)
            if kind == wire.END:
                return
            if kind != wire.HEADER:
                raise wire.Broken("it sent bytes of no layer")
            self._layer(reading, *wire.read_header(payload))

    def _layer(self, reading: BinaryIO, layer: str, size: int, at: int) -> None:
        if layer not in self._need or self._layers.whole(layer):
            raise wire.Broken("it sent a layer that was not requested")
        self._has_room(layer, size)
        writer = self._writers.get(layer)
        if writer is None:
            writer = self._writers[layer] = Writer(self._layers, layer, size)
        if writer.at != at or writer.size != size:
            # More bytes are here than the layer has, or another upstream announced another size.
            writer.close()
            del self._writers[layer]
            self._layers.forget(layer)
            self._count(layer)
            raise wire.Broken("the bytes that came before of the layer {} are wrong".format(layer[:12]))
        try:
            while not writer.complete:
                kind, payload = wire.next_frame(reading, MOST_KEEP_S)
                if kind != wire.DATA:
                    raise wire.Broken("it stopped in the middle of a layer")
                writer.write(payload)
            del self._writers[layer]
            writer.finish()
        except Corrupt as error:
            self._writers.pop(layer, None)
            self._count(layer)
            raise wire.Broken("the layer {} came with wrong bytes".format(layer[:12])) from error

    def _has_room(self, layer: str, size: int) -> None:
        """Check a size that an upstream announces, before a byte of the layer is written. Raises Broken and Failed."""
        here = self._layers.have(layer)
        if self._layers.total() - here + size > self._most:
            raise wire.Broken("it announced more bytes than the operator")
        disk = os.statvfs(self._layers.folder)
        free = disk.f_bavail * disk.f_frsize
        if size - here > free:
            # Other layers may follow.
            raise Failed("disk", "at least {:,} bytes are to come, and {:,} are free".format(size - here, free))

    def _count(self, layer: str) -> None:
        """Count how often a layer was wrong, and give up after some times."""
        count = self._corrupt[layer] = self._corrupt.get(layer, 0) + 1
        self._say({"corrupt": layer, "count": count})
        if count >= CORRUPT_TRIES:
            raise Failed("corrupt", "the layer {} came with wrong bytes {} times".format(layer[:12], count))


def _nothing() -> None:
    pass


def over_tls(address: str, port: int, tls: ssl.SSLContext) -> Callable[[], Streams]:
    """Return a function that connects to another host's listener."""

    def connect() -> Streams:
        plain = socket.create_connection((address, port), timeout=SILENCE_S)
        try:
            peer = tls.wrap_socket(plain)
        except (OSError, ValueError):
            plain.close()
            raise
        peer.settimeout(SILENCE_S)

        def close() -> None:
            # Not `peer.shutdown`, which removes TLS while a thread reads, so that the thread gets a ValueError.
            with contextlib.suppress(OSError):
                socket.socket.shutdown(peer, socket.SHUT_RDWR)
            peer.close()

        return cast(BinaryIO, peer.makefile("rb", 2 * wire.CHUNK)), cast(BinaryIO, peer.makefile("wb")), close

    return connect
