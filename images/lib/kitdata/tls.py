"""Connections between stagers: both ends show, and accept, one certificate that was made for one staging."""

import contextlib
import errno
import os
import socket
import ssl
import tempfile
import threading
import time
from typing import Any, Callable, Dict, Tuple

from kitdata import wire

# How many connections there may be at the same time, and how many seconds one may take to show the certificate.
CONNECTIONS = 256
HELLO_S = 10.0
CONNECT_S = 10.0
# How many connections the kernel keeps until they are accepted. When strangers fill it, a host tries again a second
# later.
WAITING = 512
# A connection on which nothing moves for this long is broken. Longer than a busy disk needs, and than the lead waits.
STALL_S = 30.0

Handler = Callable[[Any, Dict[str, Any]], None]


def contexts(certificate: str, key: str, folder: str) -> Tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the TLS contexts of a server and of a client. `folder` is in memory. Raises OSError, ValueError."""
    # Python reads a key from a file only, so the file exists only while Python reads it.
    handle, path = tempfile.mkstemp(dir=folder)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(certificate + "\n" + key)
        return _context(certificate, path, True), _context(certificate, path, False)
    finally:
        os.unlink(path)


def _context(certificate: str, path: str, server: bool) -> ssl.SSLContext:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname = False
    tls.verify_mode = ssl.CERT_REQUIRED
    tls.load_verify_locations(cadata=certificate)
    tls.load_cert_chain(path)
    return tls


def connect(address: str, port: int, tls: ssl.SSLContext, hello: Dict[str, Any]) -> Any:
    """Return a connection to another stager, on which `hello` was sent. Raises OSError, ValueError."""
    plain = socket.create_connection((address, port), timeout=CONNECT_S)
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer = tls.wrap_socket(plain)
        wire.send(peer, hello)
        peer.settimeout(STALL_S)
    except BaseException:
        plain.close()
        raise
    return peer


def hang_up(peer: Any) -> None:
    """End a connection that another thread uses. `peer.shutdown` would take TLS away from that thread."""
    with contextlib.suppress(OSError):
        socket.socket.shutdown(peer, socket.SHUT_RDWR)


class Listener:
    """Listen on one address of the cluster's network until closed. The system chooses the port.

    Anybody on that network can connect. A connection that does not show the certificate in time gets nothing, and
    loses its place to a newer one when all are taken. `handler` gets the connection and its first frame.
    """

    def __init__(self, address: str, tls: ssl.SSLContext, handler: Handler) -> None:
        self._tls = tls
        self._handler = handler
        self._lock = threading.Lock()
        # Each connection, and whether it has shown the certificate. The oldest is the first.
        self._open: Dict[Any, bool] = {}
        self._closed = False
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            self._socket.bind((address, 0))
            if self._socket.getsockname()[0] == "0.0.0.0":  # noqa: S104
                raise OSError(errno.EADDRNOTAVAIL, "this is not an address of the cluster's network")
            self._socket.listen(WAITING)
        except BaseException:
            self._socket.close()
            raise
        self.port = int(self._socket.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections, and end those that are open."""
        with self._lock:
            self._closed = True
            peers = list(self._open)
        # `close` alone does not wake a thread that waits in accept.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for peer in peers:
            hang_up(peer)

    def _accept(self) -> None:
        while True:
            try:
                plain, _ = self._socket.accept()
            except OSError as error:
                if not self._closed and error.errno in (
                    *(errno.ECONNABORTED, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS),
                ):
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
        with self._lock:
            if self._closed:
                return False
            if len(self._open) >= CONNECTIONS:
                stranger = next((other for other, known in self._open.items() if not known), None)
                if stranger is None:
                    return False
                del self._open[stranger]
                hang_up(stranger)
            self._open[peer] = False
            return True

    def _answer(self, peer: Any) -> None:
        # The certificate comes in this time, and then a whole frame: also from a host that sends one byte a second.
        late = threading.Timer(2 * HELLO_S, hang_up, (peer,))
        late.daemon = True
        late.start()
        try:
            with contextlib.suppress(wire.Broken, OSError, ValueError):
                peer.do_handshake()
                with self._lock:
                    if peer not in self._open:
                        return
                    self._open[peer] = True
                hello = wire.receive(peer, wire.MOST_HELLO)
                late.cancel()
                peer.settimeout(STALL_S)
                self._handler(peer, hello)
        finally:
            late.cancel()
            with self._lock:
                self._open.pop(peer, None)
            peer.close()
