"""Both ends of a stream: who sends as much as possible, and who counts what arrives."""

import array
import fcntl
import socket
import struct
import termios
import time
from typing import Tuple

from .wire import HELLO_S

CHUNK = 1 << 18
# The part of a stream that does not count: TCP's start, and what a shaped link lets through at once.
START = 1 / 3


def waited() -> float:
    """Return the seconds in which this thread was ready and waited for a core, or 0 if the kernel does not say."""
    try:
        with open("/proc/thread-self/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def receive(peer: socket.socket, seconds: float) -> Tuple[int, float, float]:
    """Return the bytes that arrive after the stream's start, their seconds, and the seconds without a core.

    What waits in the kernel because this thread had no core has arrived, too, at its own time.
    """
    data = bytearray(CHUNK)
    total, counting = 0, False
    # Not longer: on a path that loses large packets, no byte comes at all.
    peer.settimeout(max(seconds, 1.0))
    now, before = time.monotonic(), waited()
    since, begin, end = now, now, now + seconds
    try:
        peer.recv_into(data)
        now = since = time.monotonic()
        begin, end = now + seconds * START, now + seconds
        while now < end:
            peer.settimeout(end - now)
            count = peer.recv_into(data)
            now = time.monotonic()
            if not count:
                break
            if counting:
                total += count
            elif now >= begin:
                counting, since, before = True, now, waited()
                total, end = -unread(peer), now + seconds * (1 - START)
    # Before Python 3.10, this is no TimeoutError.
    except socket.timeout:
        pass
    if counting:
        total += unread(peer)
    # The time is taken before the first count and after the last one. So a pause only lowers the rate.
    now = time.monotonic()
    return total, max(now - since, 1e-6), max(waited() - before, 0.0)


def unread(peer: socket.socket) -> int:
    """Return how many bytes of a stream have arrived that nobody has read."""
    count = array.array("i", [0])
    fcntl.ioctl(peer, termios.FIONREAD, count)
    return count[0]


def drain(peer: socket.socket) -> None:
    """Read what still comes, so that the answer reaches the peer, until it hangs up."""
    data = bytearray(CHUNK)
    end = time.monotonic() + HELLO_S
    peer.settimeout(HELLO_S)
    while time.monotonic() < end and peer.recv_into(data):
        pass


def pour(peer: socket.socket, seconds: float) -> None:
    """Send until the peer hangs up."""
    data = bytes(CHUNK)
    end = time.monotonic() + seconds
    peer.settimeout(seconds)
    while time.monotonic() < end:
        peer.send(data)
    hang_up(peer)


def hang_up(peer: socket.socket) -> None:
    """Close at once. What the kernel has not sent yet is dropped."""
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()
