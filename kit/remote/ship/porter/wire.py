"""Frames in which layers travel between two hosts: one byte of kind, four of length, the payload.

A layer is a HEADER ({"layer", "size", "at"}) and then its bytes from `at` on in DATA and PACKED frames, until it is
whole. KEEP means that the sender lives and has nothing to send yet. END means that it has sent everything.
"""

import json
import struct
import zlib
from typing import Any, BinaryIO, Dict, Tuple

HEADER, DATA, PACKED, KEEP, END = b"H", b"D", b"Z", b"K", b"E"
# The unit of reading, sending and writing. The last of N hosts in a chain is N chunks behind.
CHUNK = 256 * 1024
_HEAD = struct.Struct(">cI")


class Broken(Exception):
    """The other end is gone, or does not follow the protocol."""


def write_frame(stream: BinaryIO, kind: bytes, payload: bytes = b"") -> None:
    """Send one frame at once."""
    stream.write(_HEAD.pack(kind, len(payload)) + payload)
    stream.flush()


def write_header(stream: BinaryIO, layer: str, size: int, at: int) -> None:
    write_frame(stream, HEADER, json.dumps({"layer": layer, "size": size, "at": at}).encode())


def read_frame(stream: BinaryIO) -> Tuple[bytes, bytes]:
    """Return (kind, payload) of the next frame; a PACKED one is returned as DATA. Raises Broken."""
    kind, length = _HEAD.unpack(_exactly(stream, _HEAD.size))
    if length > 2 * CHUNK:
        raise Broken("a frame of an impossible length")
    payload = _exactly(stream, length)
    if kind == PACKED:
        try:
            return DATA, zlib.decompress(payload)
        except zlib.error as error:
            raise Broken("a packed frame that cannot be unpacked") from error
    return kind, payload


def _exactly(stream: BinaryIO, count: int) -> bytes:
    data = stream.read(count)
    if data is None or len(data) != count:
        raise Broken("the connection ended")
    return data


def write_line(stream: BinaryIO, value: Dict[str, Any]) -> None:
    stream.write(json.dumps(value).encode() + b"\n")
    stream.flush()


def read_line(stream: BinaryIO) -> Dict[str, Any]:
    """Return one line of JSON. Raises Broken at the end of the stream."""
    line = stream.readline(1 << 24)
    if not line.endswith(b"\n"):
        raise Broken("the connection ended")
    try:
        value = json.loads(line.decode())
    except ValueError as error:
        raise Broken("a line that is not JSON") from error
    if not isinstance(value, dict):
        raise Broken("a line that is not a JSON object")
    return value
