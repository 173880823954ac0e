"""Frames between stagers: one byte of kind, four of length, a JSON object, packed where that is shorter.

On a connection for pieces, the bytes of a piece follow its header, and then the checksums of its extents. Each
connection is written by one end only, after one frame that says what it is for: TLS with one reader and one writer.

The other end may be a host that somebody broke into. So every length has a limit, and every value is checked.
"""

import json
import socket
import struct
import zlib
from typing import Any, Dict, FrozenSet, Iterable, Iterator, List, Sequence, Tuple

from kitdata.manifest import EXTENT, SUM_BYTES
from kitdata.plan import MOST_PARTS
from kitdata.source import Entry

PLAIN, PACKED = b"J", b"Z"
_HEAD = struct.Struct(">cI")
_ENCODER = json.JSONEncoder(separators=(",", ":"))
# The most bytes of a frame of somebody who has shown the certificate, also after unpacking.
MOST_FRAME = 1 << 26
MOST_HELLO = 4096
# Items of a list in one frame.
BATCH = 5000
# Items share a frame up to this number of bytes. One item alone may have more, but not as many as MOST_FRAME.
FULL = 1 << 25
# Of a row of a list, in bytes: the most that JSON takes for a character of the path, and for all else together.
_CHARACTER, _REST = 12, 128
# What is worth packing.
_WORTH = 1024
# Unit of sending and of passing on. The last of N hosts is N chunks behind the first.
CHUNK = 256 * 1024


class Broken(Exception):
    """The other end is gone, or does not follow the protocol."""


class Closed(Broken):
    """The other end closed the connection between two frames."""


def packed(value: Dict[str, Any]) -> bytes:
    """Return an object as a frame."""
    return _frame(_ENCODER.encode(value))


def _frame(json_text: str) -> bytes:
    text = json_text.encode()
    if len(text) > _WORTH:
        small = zlib.compress(text, 1)
        return _HEAD.pack(PACKED, len(small)) + small
    return _HEAD.pack(PLAIN, len(text)) + text


def frames(reports: Iterable[Tuple[int, List[Any]]]) -> Iterator[bytes]:
    """Yield (round, report) pairs as frames {"round", "reports"}, in their order. No frame has too many bytes."""
    texts: List[str] = []
    size, last = 0, -1
    for round_, report in reports:
        text = _ENCODER.encode(report)
        if texts and (round_ != last or size + len(text) > FULL):
            yield _together(last, texts)
            texts, size = [], 0
        texts.append(text)
        size, last = size + len(text) + 1, round_
    if texts:
        yield _together(last, texts)


def _together(round_: int, texts: Sequence[str]) -> bytes:
    return _frame('{"round":%d,"reports":[%s]}' % (round_, ",".join(texts)))


def weight(entry: Entry) -> int:
    """Return how many bytes this file can take in a frame at most."""
    return _CHARACTER * len(entry.path) + _REST


def batches(entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    """Yield the files of a list in parts, each of which has room in a frame."""
    at = 0
    while at < len(entries):
        batch = entries[at : at + BATCH]
        while len(batch) > 1 and sum(map(weight, batch)) > FULL:
            batch = batch[: len(batch) // 2]
        yield batch
        at += len(batch)


def send(peer: socket.socket, value: Dict[str, Any]) -> None:
    """Send one object. Raises OSError."""
    peer.sendall(packed(value))


def receive(peer: socket.socket, most: int = MOST_FRAME) -> Dict[str, Any]:
    """Return the next object. Raises Closed, Broken or OSError."""
    head = bytearray(_HEAD.size)
    _first(peer, head)
    kind, length = _HEAD.unpack(head)
    if length > most or kind not in (PLAIN, PACKED):
        raise Broken("a frame of an impossible length or kind")
    text = bytearray(length)
    fill(peer, memoryview(text))
    if kind == PACKED:
        unpack = zlib.decompressobj()
        try:
            text = bytearray(unpack.decompress(bytes(text), most))
        except zlib.error:
            raise Broken("a frame that cannot be unpacked") from None
        if not unpack.eof:
            raise Broken("a frame of an impossible length")
    try:
        value = json.loads(text.decode())
    except (ValueError, RecursionError):
        raise Broken("a frame that is not JSON") from None
    if not isinstance(value, dict):
        raise Broken("a frame that is no JSON object")
    return value


def _first(peer: socket.socket, head: bytearray) -> None:
    count = peer.recv_into(head)
    if not count:
        raise Closed("the connection ended")
    fill(peer, memoryview(head)[count:])


def fill(peer: socket.socket, view: memoryview) -> None:
    """Receive exactly as many bytes as `view` has room for. Raises Broken or OSError."""
    while view:
        count = peer.recv_into(view)
        if not count:
            raise Broken("the connection ended")
        view = view[count:]


def integer(value: Any, most: int = 1 << 50) -> int:
    """Return a number from 0 to `most`. Raises Broken for anything else."""
    if type(value) is not int or not 0 <= value <= most:
        raise Broken("a number that cannot be")
    return value


def integers(value: Any, most: int = 1 << 50) -> List[int]:
    """Return a list of numbers from 0 to `most`. Raises Broken for anything else."""
    if not isinstance(value, list):
        raise Broken("this is not a list")
    return [integer(item, most) for item in value]


class Header:
    """What comes before a piece: which one of which round, its size, and the hosts that it then passes to."""

    def __init__(self, value: Dict[str, Any], hosts: int) -> None:
        self.round = integer(value.get("round"))
        self.piece = integer(value.get("piece"))
        self.size = integer(value.get("size"), EXTENT)
        self.sums = integer(value.get("sums"), MOST_PARTS)
        self.route = integers(value.get("route"), hosts - 1)
        if len(set(self.route)) != len(self.route):
            raise Broken("a way that leads in a circle")

    @property
    def sum_bytes(self) -> int:
        return self.sums * SUM_BYTES


def digits(numbers: Iterable[int], count: int) -> str:
    """Return a set of numbers below `count` as hexadecimal digits: four numbers a digit."""
    mask = bytearray(-(-count // 8))
    for number in numbers:
        mask[number >> 3] |= 1 << (number & 7)
    return mask.hex()


def numbers(text: str) -> FrozenSet[int]:
    """Return the set of numbers that `digits` wrote. Raises ValueError."""
    data = bytes.fromhex(text)
    return frozenset(at * 8 + bit for at, byte in enumerate(data) if byte for bit in range(8) if byte >> bit & 1)
