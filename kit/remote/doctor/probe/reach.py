"""Connects to ports of all peers, and looks up their names."""

import errno
import queue
import selectors
import socket
import threading
import time
from typing import Any, List, Optional, Sequence

from .wire import Address, word_of

# Connections that are tried at the same time. A program may have 1,024 open files.
WIDTH = 400
RESOLVE_S = 3.0


def reach(targets: Sequence[Address], seconds: float) -> List[str]:
    """Connect to all targets at once. Return "" for each that accepted, and otherwise the error's name."""
    faults = [errno.ETIMEDOUT] * len(targets)
    for first in range(0, len(targets), WIDTH):
        with selectors.DefaultSelector() as waiting:
            for at in range(first, min(first + WIDTH, len(targets))):
                peer = socket.socket()
                peer.setblocking(False)
                fault = peer.connect_ex(targets[at])
                if fault == errno.EINPROGRESS:
                    waiting.register(peer, selectors.EVENT_WRITE, at)
                else:
                    faults[at] = fault
                    peer.close()
            end = time.monotonic() + seconds
            while waiting.get_map() and time.monotonic() < end:
                for key, _ in waiting.select(max(end - time.monotonic(), 0)):
                    peer = key.fileobj  # type: ignore[assignment]
                    faults[key.data] = peer.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                    waiting.unregister(peer)
                    peer.close()
            for key in list(waiting.get_map().values()):
                key.fileobj.close()  # type: ignore[union-attr]
    return [word_of(fault) for fault in faults]


def resolved(names: Sequence[str]) -> List[Optional[List[str]]]:
    """Return the IPv4 addresses of each name, as programs see them. None if there is no answer in time."""
    answers: List[Optional[List[str]]] = [None] * len(names)
    todo: "queue.Queue[Any]" = queue.Queue()
    for place in enumerate(names):
        todo.put(place)

    def work() -> None:
        while True:
            try:
                at, name = todo.get_nowait()
            except queue.Empty:
                return
            try:
                rows = socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)
                answers[at] = sorted({str(row[4][0]) for row in rows})[:16]
            except (OSError, UnicodeError):
                answers[at] = []

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(16, len(names)))]
    for thread in threads:
        thread.start()
    end = time.monotonic() + RESOLVE_S
    for thread in threads:
        thread.join(max(end - time.monotonic(), 0))
    return list(answers)
