"""What two probes say to each other: the proof that they know the secret, and the forms of what follows."""

import errno
import hmac
import socket
import struct
from typing import Tuple

# A stranger who connects has this time for the answer.
HELLO_S = 5.0
CHALLENGE, PROOF = 16, 32
# What a peer wants: round trips; to send; to receive. And for how many milliseconds.
ASK = struct.Struct("!cI")
ECHO, UP, DOWN = b"E", b"U", b"D"
PINGS = 8
CLOCK = struct.Struct("!d")
# Bytes, their seconds, and the seconds in which this thread waited for a core.
TOTALS = struct.Struct("!Qdd")
# Headers of IPv4 and UDP, and the longest packet that IPv4 knows.
HEADERS, LARGEST = 28, 65535
MARK = struct.Struct("!4scI4sH")
MAGIC, QUESTION, REPLY, SEAL = b"kitm", b"q", b"a", 16
Address = Tuple[str, int]


class Stranger(Exception):
    """Another program has answered."""


def proof(secret: bytes, word: bytes, challenge: bytes) -> bytes:
    return hmac.new(secret, word + challenge, "sha256").digest()


def exactly(peer: socket.socket, count: int) -> bytes:
    """Receive exactly `count` bytes. Raises OSError."""
    data = b""
    while len(data) < count:
        part = peer.recv(count - len(data))
        if not part:
            raise ConnectionError(errno.ECONNRESET, "the other side hung up")
        data += part
    return data


def word_of(number: int) -> str:
    """Return the name of an error, which all systems share. "" for 0."""
    return errno.errorcode.get(number, "EIO") if number else ""
