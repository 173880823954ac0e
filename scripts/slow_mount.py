"""Mount a file system of one file whose server answers slowly, as a store far away does.

nsenter --mount … python3 slow_mount.py FOLDER BYTES SECONDS 3<>/dev/fuse

It mounts over FOLDER the file `data` with BYTES zero bytes. Each lookup, open and read takes SECONDS. SIGTERM detaches
the mount, and the program ends when nobody has the file open any more. It needs root, and imports nothing of kit.
"""

import ctypes
import os
import signal
import struct
import sys
import time
from typing import Any

# Linux: include/uapi/linux/fuse.h.
_LOOKUP, _FORGET, _GETATTR, _OPEN, _READ, _RELEASE, _FLUSH, _INIT, _BATCH_FORGET = 1, 2, 3, 14, 15, 18, 25, 26, 42
_VERSION = (7, 31)
_HEADER = struct.Struct("=IIQQIIIHH")
_ROOT, _FILE = 1, 2
_MOST = 1 << 17
_DETACH = 2
_NO_SUCH_FILE, _NO_SUCH_CALL = 2, 38
_CONNECTION = 3


def main(folder: str, size: int, seconds: float) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={_CONNECTION},rootmode=40000,user_id=0,group_id=0,allow_other"
    if libc.mount(b"slow", os.fsencode(folder), b"fuse.slow", ctypes.c_ulong(0), options.encode()):
        raise OSError(ctypes.get_errno(), "cannot mount at " + folder)

    def end(_number: int, _frame: Any) -> None:
        libc.umount2(os.fsencode(folder), _DETACH)

    signal.signal(signal.SIGTERM, end)
    while True:
        try:
            request = os.read(_CONNECTION, _MOST + (1 << 16))
        except OSError:
            # Nobody uses the mount any more.
            return
        _, operation, unique, node, *_ = _HEADER.unpack_from(request)
        if operation in (_LOOKUP, _OPEN, _READ):
            time.sleep(seconds)
        if operation not in (_FORGET, _BATCH_FORGET):
            error, body = answer(operation, node, request[_HEADER.size :], size)
            os.write(_CONNECTION, struct.pack("=IiQ", 16 + len(body), -error, unique) + body)


def answer(operation: int, node: int, body: bytes, size: int) -> tuple[int, bytes]:
    """Return errno or 0, and the answer to a request."""
    if operation == _LOOKUP and (node != _ROOT or body != b"data\0"):
        return _NO_SUCH_FILE, b""
    if operation == _READ:
        _, offset, count = struct.unpack_from("=QQI", body)
        return 0, bytes(max(0, min(count, size - offset)))
    answers = {
        _INIT: struct.pack("=IIIIHHIIHHI28x", *_VERSION, _MOST, 0, 12, 9, _MOST, 1, _MOST // 4096, 0, 0),
        _LOOKUP: struct.pack("=QQQQII", _FILE, 0, 0, 0, 0, 0) + attributes(_FILE, size),
        _GETATTR: struct.pack("=QII", 0, 0, 0) + attributes(node, size),
        _OPEN: struct.pack("=QII", 0, 0, 0),
        _RELEASE: b"",
        _FLUSH: b"",
    }
    return (0, answers[operation]) if operation in answers else (_NO_SUCH_CALL, b"")


def attributes(node: int, size: int) -> bytes:
    mode, length = (0o40755, 0) if node == _ROOT else (0o100644, size)
    return struct.pack("=QQQQQQIIIIIIIIII", node, length, length // 512, *(0,) * 6, mode, 1, 0, 0, 0, 4096, 0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
