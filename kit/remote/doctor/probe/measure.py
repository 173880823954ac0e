"""Measures round trips, clocks and rates to one peer."""

import errno
import select
import time
from typing import Any, Dict, List

from .door import Door
from .streams import CHUNK, hang_up, receive, waited
from .wire import CLOCK, DOWN, ECHO, HELLO_S, PINGS, TOTALS, UP, Address, exactly


def send(door: Door, target: Address, seconds: float) -> List[float]:
    """Return what the target received: bytes, seconds, and the larger wait for a core of both ends."""
    peer = door.dial(target, UP, seconds)
    data = bytes(CHUNK)
    waiting = select.poll()
    waiting.register(peer.fileno(), select.POLLIN | select.POLLOUT)
    peer.setblocking(False)
    answer, before = b"", waited()
    end = time.monotonic() + seconds + HELLO_S
    try:
        while len(answer) < TOTALS.size:
            if time.monotonic() > end:
                raise TimeoutError("timed out")
            for _, event in waiting.poll(100):
                if event & select.POLLIN:
                    part = peer.recv(TOTALS.size - len(answer))
                    if not part:
                        raise ConnectionError(errno.ECONNRESET, "the other side hung up")
                    answer += part
                elif event & select.POLLOUT:
                    try:
                        peer.send(data)
                    except BlockingIOError:
                        continue
                else:
                    raise ConnectionError(errno.ECONNRESET, "the connection broke")
    finally:
        hang_up(peer)
    total, took, theirs = TOTALS.unpack(answer)
    return [total, took, max(theirs, waited() - before)]


def fetch(door: Door, target: Address, seconds: float) -> List[float]:
    """Return what arrives from the target: bytes, seconds, and the seconds without a core."""
    peer = door.dial(target, DOWN, seconds)
    try:
        return list(receive(peer, seconds))
    finally:
        hang_up(peer)


def pings(door: Door, target: Address) -> List[float]:
    """Return the shortest round trip, and the target's clock minus this one's, in seconds."""
    peer = door.dial(target, ECHO, 1)
    best: List[float] = []
    try:
        peer.settimeout(HELLO_S)
        for _ in range(PINGS):
            mine, began = time.time(), time.monotonic()
            peer.sendall(b".")
            theirs = CLOCK.unpack(exactly(peer, CLOCK.size))[0]
            trip = time.monotonic() - began
            if not best or trip < best[0]:
                best = [trip, theirs - mine - trip / 2]
    finally:
        peer.close()
    return best


def measure(door: Door, target: Address, seconds: float) -> Dict[str, Any]:
    """Measure round trips, then the rate to the target, then the rate from it."""
    trip, clock = pings(door, target)
    return {
        "rtt": trip,
        "clock": clock,
        "there": send(door, target, seconds),
        "back": fetch(door, target, seconds),
    }
