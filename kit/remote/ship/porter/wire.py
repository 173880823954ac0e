"""Frames in which layers travel between two hosts: one byte of kind, four of length, the payload.

A layer is a HEADER ({"layer", "size", "at"}) and then its bytes from `at` on in DATA and PACKED frames, until it is
whole. KEEP means that the sender lives and has nothing to send yet. END means that it has sent everything.

The other end may be a host that somebody broke into. So every length has a limit, and every value is checked here.
"""

import json
import struct
import time
import zlib
from typing import Any, BinaryIO, Dict, NamedTuple, Tuple

from .names import is_digest

HEADER, DATA, PACKED, KEEP, END = b"H", b"D", b"Z", b"K", b"E"
# The unit of reading, sending and writing. The last of N hosts in a chain is N chunks behind.
CHUNK = 256 * 1024
# The longest payload, packed or not.
MOST_FRAME = 2 * CHUNK
MOST_HEADER = 4096
# The longest line of the operator, and of another host.
MOST_LINE = 1 << 24
MOST_REQUEST = 1 << 20
# The most layers of an image, and the most bytes of one. Engines allow 127 layers.
MOST_LAYERS = 1024
MOST_SIZE = 1 << 50
_HEAD = struct.Struct(">cI")


class Broken(Exception):
    """The other end is gone, or does not follow the protocol."""


class Header(NamedTuple):
    """What a HEADER announces: the layer, its size, and from which byte on it comes."""

    layer: str
    size: int
    at: int


def write_frame(stream: BinaryIO, kind: bytes, payload: bytes = b"") -> None:
    """Send one frame at once."""
    stream.write(_HEAD.pack(kind, len(payload)) + payload)
    stream.flush()


def write_header(stream: BinaryIO, layer: str, size: int, at: int) -> None:
    """Announce a layer."""
    write_frame(stream, HEADER, json.dumps({"layer": layer, "size": size, "at": at}).encode())


def read_header(payload: bytes) -> Header:
    """Return what a HEADER announces. Raises Broken."""
    value = _value(payload, MOST_HEADER)
    header = Header(value.get("layer", ""), value.get("size", -1), value.get("at", -1))
    if not (is_digest(header.layer) and is_count(header.size) and is_count(header.at)):
        raise Broken("it announced something that is no layer")
    return header


def read_frame(stream: BinaryIO) -> Tuple[bytes, bytes]:
    """Return (kind, payload) of the next frame; a PACKED one is returned as DATA. Raises Broken."""
    kind, length = _HEAD.unpack(_exactly(stream, _HEAD.size))
    if length > MOST_FRAME:
        raise Broken("a frame of an impossible length")
    payload = _exactly(stream, length)
    return (DATA, _unpacked(payload)) if kind == PACKED else (kind, payload)


def next_frame(stream: BinaryIO, seconds: float) -> Tuple[bytes, bytes]:
    """Return the next frame that is no KEEP. Raises Broken, also if there is only KEEP for this long."""
    end = time.monotonic() + seconds
    while True:
        kind, payload = read_frame(stream)
        if kind != KEEP:
            return kind, payload
        if time.monotonic() > end:
            raise Broken("it sent no byte of a layer for {:.0f} s".format(seconds))


def _unpacked(payload: bytes) -> bytes:
    """Return the bytes of a PACKED frame. The limit is that of any frame, however well its bytes pack."""
    unpack = zlib.decompressobj()
    try:
        data = unpack.decompress(payload, MOST_FRAME)
        # The end of the packed stream, its checksum, may need one more call, which brings no bytes.
        if not unpack.eof and unpack.decompress(unpack.unconsumed_tail, 1):
            raise Broken("a packed frame of an impossible length")
    except zlib.error as error:
        raise Broken("a packed frame that cannot be unpacked") from error
    if not unpack.eof or unpack.unused_data:
        raise Broken("a packed frame that cannot be unpacked")
    return data


def _exactly(stream: BinaryIO, count: int) -> bytes:
    data = stream.read(count)
    if data is None or len(data) != count:
        raise Broken("the connection ended")
    return data


def write_line(stream: BinaryIO, value: Dict[str, Any]) -> None:
    """Send one line of JSON at once."""
    stream.write(json.dumps(value).encode() + b"\n")
    stream.flush()


def read_line(stream: BinaryIO, most: int = MOST_LINE) -> Dict[str, Any]:
    """Return one line of JSON of at most `most` bytes. Raises Broken at the end of the stream."""
    line = stream.readline(most)
    if not line.endswith(b"\n"):
        raise Broken("a line of an impossible length" if len(line) == most else "the connection ended")
    return _value(line, most)


def read_request(stream: BinaryIO) -> Dict[str, int]:
    """Return what another host wants: layers, with the bytes that it has of each. Raises Broken."""
    need = read_line(stream, MOST_REQUEST).get("need")
    if not isinstance(need, dict) or len(need) > MOST_LAYERS:
        raise Broken("it requested something that is no list of layers")
    if not all(is_digest(layer) and is_count(at) for layer, at in need.items()):
        raise Broken("it requested something that is no layer")
    return need


def is_count(value: object) -> bool:
    """Return whether this is a number of bytes."""
    return type(value) is int and 0 <= value <= MOST_SIZE


def _value(text: bytes, most: int) -> Dict[str, Any]:
    if len(text) > most:
        raise Broken("a line of an impossible length")
    try:
        value = json.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise Broken("a line that is not JSON") from error
    if not isinstance(value, dict):
        raise Broken("a line that is not a JSON object")
    return value
