"""The operator as a source of layers: questions go out as lines, and frames come in through standard input."""

import contextlib
import io
import queue
from typing import Any, Callable, Dict

from . import fetch, wire

# Room for frames of the operator's that are not taken yet.
PIPE = 8


class Pipe(io.RawIOBase):
    """Frames that came on standard input, as a stream."""

    def __init__(self) -> None:
        self._chunks: queue.Queue[bytes] = queue.Queue(maxsize=PIPE)
        self._rest = b""
        self._over = False

    def put(self, data: bytes) -> bool:
        """Whether they were taken (or nobody wants them any more) within half a second."""
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
        # Whoever waits for more is woken; where there is no room, nobody waits.
        with contextlib.suppress(queue.Full):
            self._chunks.put_nowait(b"")


class Ask(io.RawIOBase):
    """The other direction: what is asked for, as a line to the operator."""

    def __init__(self, say: Callable[[Dict[str, Any]], None], serial: int) -> None:
        self._say = say
        self._serial = serial

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._say({"ask": wire.read_line(io.BytesIO(bytes(data)))["need"], "serial": self._serial})
        return len(data)
