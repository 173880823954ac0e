"""The program `kit-data order [hello]`: passes an order of the operator on to the stager of this container.

It starts for each order on each host, so it imports little. Root of the host also runs it outside of the container:
see kit/remote/scripts/data_order.sh. With `hello`, it first prints what the stager answers to a hello, as a line
`kit-data hello {…}`, and then `kit-data go`: from there on, an order reaches this stager. It also prints TAKEN on
standard error. If the stager has ended meanwhile, it prints nothing, and has read nothing of the order.
"""

import contextlib
import errno
import json
import os
import socket
import stat
import sys
import threading
import time
from typing import List, Optional

SOCKET, SOCKET_PATH = "KIT_DATA_SOCKET", "/run/kit-data/socket"
# From the start of a container to its first order.
START_S = 15.0
TAKEN = b"taken\n"
_PART = 1 << 16
USAGE = "usage: kit-data order [hello]"


def main(arguments: List[str]) -> int:
    path = os.environ.get(SOCKET, SOCKET_PATH)
    if arguments == ["order"]:
        return order(path)
    if arguments == ["order", "hello"]:
        # The stager stays for some seconds after a hello, so the connection after it reaches the same one.
        answer = hello(path)
        return order(path, b"kit-data hello " + answer + b"\nkit-data go\n") if answer else 1
    print(USAGE, file=sys.stderr)
    return 2


def hello(path: str) -> Optional[bytes]:
    """Return the line that the stager answers to a hello; None if it has ended."""
    with contextlib.suppress(OSError), _connected(path) as peer, peer.makefile("rb") as answers:
        peer.sendall(b'{"op": "hello"}\n')
        line = answers.readline()
        return line.strip() if line.endswith(b"\n") else None
    return None


def order(path: str, first: bytes = b"") -> int:
    """Pass standard input on to the stager of this container, and its answers to standard output, after `first`."""
    try:
        peer = _connected(path)
    except OSError as error:
        if first:
            return 1
        text = "the stager does not run: %s" % error.strerror
        print(json.dumps({"failed": {"kind": "internal", "host": None, "text": text}}), flush=True)
        return 1
    if first:
        _write(2, TAKEN)
        _write(1, first)
    threading.Thread(target=_feed, args=(peer,), daemon=True).start()
    with contextlib.suppress(OSError):
        while True:
            data = peer.recv(_PART)
            if not data:
                break
            _write(1, data)
    # Not through the interpreter's end, which waits for the thread that reads.
    os._exit(0)


def _connected(path: str) -> socket.socket:
    """Connect to the stager, which listens a moment after its container has started. Raises OSError."""
    end = time.monotonic() + START_S
    while True:
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            _connect(peer, path)
            return peer
        except OSError as error:
            peer.close()
            if not isinstance(error, (FileNotFoundError, ConnectionRefusedError)) or time.monotonic() > end:
                raise
        time.sleep(0.02)


def _connect(peer: socket.socket, path: str) -> None:
    """Connect to the socket at a path, but not through a link: outside of the container it could lead anywhere."""
    handle = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISSOCK(os.fstat(handle).st_mode):
            raise OSError(errno.ENOTSOCK, os.strerror(errno.ENOTSOCK))
        peer.connect("/proc/self/fd/%d" % handle)
    finally:
        os.close(handle)


def _feed(peer: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            data = os.read(0, _PART)
            if not data:
                break
            peer.sendall(data)
        peer.shutdown(socket.SHUT_WR)


def _write(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]
