"""An SSH agent on this host that has no key: it passes each question to the operator, who decides what to answer."""

import contextlib
import os
import queue
import socket
import threading
from typing import Callable, Dict

# The largest message (OpenSSH's own limit), and the most connections of one fetch.
MOST, MOST_LINKS = 256 * 1024, 1000
# The operator may have to touch a key.
ANSWER_S = 90.0
_FAILURE = b"\x05"


class Agent:
    """Listens at `path`, in a folder of root alone. `ask(link, message)` sends a question on."""

    def __init__(self, path: str, ask: Callable[[int, bytes], None]) -> None:
        self.path = path
        self._ask = ask
        self._answers: Dict[int, "queue.Queue[bytes]"] = {}
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(path)
        os.chmod(path, 0o600)
        self._listener.listen(8)
        threading.Thread(target=self._serve, daemon=True).start()

    def answer(self, link: int, message: bytes) -> None:
        if link in self._answers:
            self._answers[link].put(message)

    def _serve(self) -> None:
        for link in range(MOST_LINKS):
            connection, _ = self._listener.accept()
            self._answers[link] = queue.Queue()
            threading.Thread(target=self._talk, args=(link, connection), daemon=True).start()

    def _talk(self, link: int, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, queue.Empty), connection, connection.makefile("rb") as stream:
            while True:
                count = int.from_bytes(stream.read(4), "big")
                if not 0 < count <= MOST:
                    return
                self._ask(link, stream.read(count))
                message = self._answers[link].get(timeout=ANSWER_S) or _FAILURE
                connection.sendall(len(message).to_bytes(4, "big") + message)
