"""What a process that is being read line by line still says."""

from __future__ import annotations

import subprocess
import threading
from typing import IO


def rest(process: subprocess.Popen[str], *, timeout: float) -> tuple[str, str]:
    """Both streams to their end, and the process's end. Raises subprocess.TimeoutExpired after `timeout` seconds.

    After a readline(), communicate() is no help: it reads the descriptors, and loses what came along with the line.
    """
    said = ["", ""]

    def read(place: int, stream: IO[str] | None) -> None:
        if stream:
            said[place] = stream.read()

    if process.stdin:
        process.stdin.close()
    streams = [process.stdout, process.stderr]
    readers = [threading.Thread(target=read, args=each, daemon=True) for each in enumerate(streams)]
    for reader in readers:
        reader.start()
    process.wait(timeout)
    for reader in readers:
        reader.join(timeout)
        if reader.is_alive():
            raise subprocess.TimeoutExpired(process.args, timeout)
    return said[0], said[1]
