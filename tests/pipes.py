"""What a process that is being read line by line still says."""

from __future__ import annotations

import subprocess
import threading
from typing import IO


def rest(process: subprocess.Popen[str], *, timeout: float) -> tuple[str, str]:
    """Both streams to their end, and the process's end. Raises subprocess.TimeoutExpired after `timeout` seconds.

    After a readline(), communicate() is no help: it reads the descriptors, and loses what came along with the line.
    """
    texts = ["", ""]

    def read(place: int, stream: IO[str] | None) -> None:
        if stream:
            texts[place] = stream.read()

    if process.stdin:
        process.stdin.close()
    streams = [process.stdout, process.stderr]
    readers = [threading.Thread(target=read, args=numbered, daemon=True) for numbered in enumerate(streams)]
    for reader in readers:
        reader.start()
    process.wait(timeout)
    for reader in readers:
        reader.join(timeout)
        if reader.is_alive():
            raise subprocess.TimeoutExpired(process.args, timeout)
    return texts[0], texts[1]


def read_until(process: subprocess.Popen[str], stream: IO[str] | None, words: str) -> str:
    """What the process writes to this stream, to the end of the first line with these words."""
    assert stream is not None
    text = ""
    while words not in text:
        line = stream.readline()
        assert line, f"{words!r} never came; {text}{rest(process, timeout=60)}"
        text += line
    return text
