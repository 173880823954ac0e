"""Hands layers on to the host behind: over TLS with the ship's one-time certificate, or any pair of streams."""

import contextlib
import os
import socket
import ssl
import threading
import time
import zlib
from typing import Any, BinaryIO, Dict, Optional

from . import wire
from .layers import Layers, Stopped, Withdrawn

# The host behind gives up on a sender that is silent for longer than its own patience, which is more than this.
KEEP_S = 2.0


def serve(reading: BinaryIO, writing: BinaryIO, layers: Layers, packing: Optional["Packing"] = None) -> None:
    """Answer one asker until it has all that it wanted. Ends with its connection."""
    with contextlib.suppress(wire.Broken, OSError, Stopped, Withdrawn, ValueError):
        asked = wire.read_line(reading)
        send({str(layer): int(at) for layer, at in asked["need"].items()}, writing, layers, packing)


def send(wanted: Dict[str, int], writing: BinaryIO, layers: Layers, packing: Optional["Packing"] = None) -> None:
    """All of `wanted` (the bytes of each that the asker has), in the order in which they come to be here."""
    wanted = dict(wanted)
    while wanted:
        layer = layers.next_of(wanted, KEEP_S)
        if layer is None:
            wire.write_frame(writing, wire.KEEP)
            continue
        reader = layers.reader(layer)
        try:
            at = min(wanted.pop(layer), reader.size)
            wire.write_header(writing, layer, reader.size, at)
            while at < reader.size:
                chunk = reader.read(at, KEEP_S)
                if not chunk:
                    wire.write_frame(writing, wire.KEEP)
                    continue
                at += len(chunk)
                if packing is None:
                    wire.write_frame(writing, wire.DATA, chunk)
                else:
                    packing.write(writing, chunk)
        finally:
            reader.close()
    wire.write_frame(writing, wire.END)


class Packing:
    """Packs chunks while that makes them arrive sooner: on a slow link it does, on a fast one it would only cost.

    Both ways are tried from time to time, and the one that took less time a byte is kept to.
    """

    LEVEL = 1
    TRIAL = 8
    ROUND = 64

    def __init__(self) -> None:
        self._count = 0
        self._pack = True
        self._seconds = {True: 0.0, False: 0.0}
        self._bytes = {True: 1, False: 1}

    def write(self, writing: BinaryIO, chunk: bytes) -> None:
        turn = self._count % self.ROUND
        if turn == 0:
            self._seconds, self._bytes = {True: 0.0, False: 0.0}, {True: 1, False: 1}
        if turn < 2 * self.TRIAL:
            pack = turn >= self.TRIAL
        else:
            if turn == 2 * self.TRIAL:
                self._pack = self._speed(True) > self._speed(False)
            pack = self._pack
        start = time.monotonic()
        payload = zlib.compress(chunk, self.LEVEL) if pack else chunk
        if pack and len(payload) < len(chunk):
            wire.write_frame(writing, wire.PACKED, payload)
        else:
            wire.write_frame(writing, wire.DATA, chunk)
        self._seconds[pack] += time.monotonic() - start
        self._bytes[pack] += len(chunk)
        self._count += 1

    def _speed(self, pack: bool) -> float:
        return self._bytes[pack] / max(self._seconds[pack], 1e-9)


def context(folder: str, certificate: str, key: str, server: bool) -> ssl.SSLContext:
    """TLS in which both ends show the same one-time certificate, and take no other. `folder` is root's alone."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = False
    made.verify_mode = ssl.CERT_REQUIRED
    made.load_verify_locations(cadata=certificate)
    # Python takes a key from a file only: one that is there for as long as it is read.
    path = os.path.join(folder, "key.{}.{}".format(os.getpid(), threading.get_ident()))
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(certificate + key)
        made.load_cert_chain(path)
    finally:
        os.unlink(path)
    return made


class Listener:
    """Listens on one address of the cluster's network, a port of the system's choice, until it is closed."""

    def __init__(self, address: str, tls: ssl.SSLContext, layers: Layers) -> None:
        self._tls = tls
        self._layers = layers
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.bind((address, 0))
        self._socket.listen(16)
        self.port = int(self._socket.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                plain, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(plain,), daemon=True).start()

    def _answer(self, plain: Any) -> None:
        # Who does not show the certificate in time gets nothing, not even a thread for long.
        plain.settimeout(10.0)
        try:
            peer = self._tls.wrap_socket(plain, server_side=True)
        except (OSError, ValueError):
            plain.close()
            return
        with contextlib.closing(peer):
            peer.settimeout(60.0)
            serve(peer.makefile("rb"), peer.makefile("wb"), self._layers)
