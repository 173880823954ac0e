"""Passes layers to the host behind, over TLS with the ship's one-time certificate, or over any pair of streams."""

import contextlib
import errno
import os
import socket
import ssl
import threading
import time
import zlib
from typing import Any, BinaryIO, Dict, Optional, cast

from . import names, wire
from .layers import Layers, Stopped, Withdrawn

# Less than the time after which the host behind gives up on a silent sender.
KEEP_S = 2.0
# The most connections at the same time, and how long one may take to show the certificate, and then for its request.
CONNECTIONS = 64
HELLO_S = 10.0
# How many connections the kernel keeps until they are accepted. When strangers fill it, a host tries again a second
# later.
WAITING = 512


def serve(reading: BinaryIO, writing: BinaryIO, layers: Layers, packing: Optional["Packing"] = None) -> None:
    """Answer one request until all of it is sent, or the connection ends."""
    with contextlib.suppress(wire.Broken, OSError, Stopped, Withdrawn, ValueError):
        send(wire.read_request(reading), writing, layers, packing)


def send(wanted: Dict[str, int], writing: BinaryIO, layers: Layers, packing: Optional["Packing"] = None) -> None:
    """Send all of `wanted`, in the order in which layers arrive here. It maps a layer to the bytes of the asker."""
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
    """Compress chunks while that makes them arrive sooner, as on a slow link.

    It measures both ways from time to time, and uses the one that took less time a byte.
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
    """Return a TLS context in which both ends show, and accept, one one-time certificate. `folder` is only root's."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname = False
    tls.verify_mode = ssl.CERT_REQUIRED
    tls.load_verify_locations(cadata=certificate)
    # Python reads a key from a file only, so the file exists only while Python reads it.
    path = names.below(folder, "key.{}.{}".format(os.getpid(), threading.get_ident()))
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(certificate + key)
        tls.load_cert_chain(path)
    finally:
        os.unlink(path)
    return tls


class Listener:
    """Listen on one address of the cluster's network until closed. The system chooses the port.

    Anybody on that network can connect. Who does not show the ship's certificate in time gets nothing, and loses the
    place to a newer connection when all are taken.
    """

    def __init__(self, address: str, tls: ssl.SSLContext, layers: Layers) -> None:
        self._tls = tls
        self._layers = layers
        self._changed = threading.Lock()
        # Each connection, and whether it has shown the certificate. The oldest is the first.
        self._open: Dict[Any, bool] = {}
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.bind((address, 0))
        if self._socket.getsockname()[0] == "0.0.0.0":  # noqa: S104
            self._socket.close()
            raise OSError(errno.EADDRNOTAVAIL, "this is not an address of the cluster's network")
        self._socket.listen(WAITING)
        self.port = int(self._socket.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                plain, _ = self._socket.accept()
            except OSError as error:
                if error.errno in (errno.ECONNABORTED, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS):
                    time.sleep(0.1)
                    continue
                return
            try:
                plain.settimeout(HELLO_S)
                peer = self._tls.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
            except (OSError, ValueError):
                plain.close()
                continue
            if self._admits(peer):
                threading.Thread(target=self._answer, args=(peer,), daemon=True).start()
            else:
                peer.close()

    def _admits(self, peer: Any) -> bool:
        """Return whether there is a place for the connection. The oldest stranger may have to go."""
        with self._changed:
            if len(self._open) >= CONNECTIONS:
                stranger = next((other for other, known in self._open.items() if not known), None)
                if stranger is None:
                    return False
                del self._open[stranger]
                _hang_up(stranger)
            self._open[peer] = False
            return True

    def _answer(self, peer: Any) -> None:
        # The certificate comes in this time, and then a whole request: also from a host that sends one byte a second.
        late = threading.Timer(2 * HELLO_S, _hang_up, (peer,))
        late.daemon = True
        late.start()
        try:
            with contextlib.suppress(wire.Broken, OSError, Stopped, Withdrawn, ValueError):
                peer.do_handshake()
                with self._changed:
                    if peer not in self._open:
                        return
                    self._open[peer] = True
                wanted = wire.read_request(cast(BinaryIO, peer.makefile("rb")))
                late.cancel()
                peer.settimeout(60.0)
                send(wanted, cast(BinaryIO, peer.makefile("wb")), self._layers)
        finally:
            late.cancel()
            with self._changed:
                self._open.pop(peer, None)
            peer.close()


def _hang_up(peer: Any) -> None:
    """End a connection that another thread reads. `peer.shutdown` would take TLS away from that thread."""
    with contextlib.suppress(OSError):
        socket.socket.shutdown(peer, socket.SHUT_RDWR)
