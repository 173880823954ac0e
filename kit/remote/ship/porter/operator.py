"""The operator as a source of layers: requests go out as lines, and frames come in through standard input."""

import contextlib
import io
import queue
from typing import Any, Callable, Dict, Optional

from . import fetch, wire

# How many of the operator's chunks wait here at most.
PIPE = 8


class Pipe(io.RawIOBase):
    """Present frames from standard input as a stream."""

    def __init__(self) -> None:
        self._chunks: queue.Queue[bytes] = queue.Queue(maxsize=PIPE)
        self._rest = b""
        self._over = False

    def put(self, data: bytes) -> bool:
        """Queue the bytes. Return whether that worked within half a second, or nobody reads them any more."""
        if self._over:
            return True
        try:
            self._chunks.put(data, timeout=0.5)
        except queue.Full:
            return False
        return True

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            try:
                self._rest = self._chunks.get(timeout=0.1 if self._over else fetch.SILENCE_S)
            except queue.Empty:
                if self._over:
                    return 0
                raise wire.Broken("the operator is silent") from None
            if not self._rest:
                return 0
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def end(self) -> None:
        self._over = True
        # Wake a waiting reader. If the queue is full, no reader is waiting.
        with contextlib.suppress(queue.Full):
            self._chunks.put_nowait(b"")


class Ask(io.RawIOBase):
    """The other direction: send a request for layers to the operator, as a line.

    `answered` is the request that the operator has answered already, if any.
    """

    def __init__(
        self, say: Callable[[Dict[str, Any]], None], serial: int, answered: Optional[Dict[str, int]] = None
    ) -> None:
        self._say = say
        self._serial = serial
        self._answered = answered

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        need = wire.read_line(io.BytesIO(bytes(data)))["need"]
        if self._answered is None:
            self._say({"ask": need, "serial": self._serial})
        elif need != self._answered:
            raise wire.Broken("the operator has answered another request")
        return len(data)
