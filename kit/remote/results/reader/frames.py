"""The frames in which files travel.

A frame is a kind (H, D or E), a length of four bytes, and that many bytes. A file is H (JSON: at, size, time, mode), D
with its bytes from `at` on, and E (JSON: sha256 of the whole file, changed). H or E may have an error instead.
"""

import json
import struct
import sys
from typing import Any, BinaryIO, Tuple

HEAD = struct.Struct(">cI")
# The longest frame that kit sends.
LONGEST = 1 << 20


def frame(kind: bytes, payload: bytes) -> None:
    out = sys.stdout.buffer
    out.write(HEAD.pack(kind, len(payload)) + payload)


def note(kind: bytes, **fields: Any) -> None:
    frame(kind, json.dumps(fields).encode())


def read_frame(stream: BinaryIO) -> Tuple[bytes, bytes]:
    head = stream.read(HEAD.size)
    if not head:
        return b"", b""
    if len(head) < HEAD.size:
        sys.exit("the connection ended early")
    kind, length = HEAD.unpack(head)
    if length > LONGEST:
        sys.exit("a frame of an impossible length")
    payload = stream.read(length)
    if len(payload) < length:
        sys.exit("the connection ended early")
    return kind, payload
