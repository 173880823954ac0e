"""The bare rate of TCP: runs on a host's own Python (3.6 or newer) or a node's, fed to it by standard input.

python3 - ADDRESS PORT NEXT NEXTPORT SECONDS: takes what the neighbour before sends, and sends to the next one
meanwhile. Says {"received": bytes, "seconds": s} as JSON, of the time in which bytes came.
"""

import json
import socket
import sys
import threading
import time
from typing import Dict

PATIENCE_S = 20.0
CHUNK = 1 << 18
# On a host that stands still for the whole time there is a rate, too.
LEAST = 8


def connected(address: str, port: int) -> socket.socket:
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            return socket.create_connection((address, port), timeout=PATIENCE_S)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def send(address: str, port: int, seconds: float) -> None:
    data = bytes(CHUNK)
    peer = connected(address, port)
    try:
        end = time.monotonic() + seconds
        sent = 0
        while sent < LEAST or time.monotonic() < end:
            peer.sendall(data)
            sent += 1
    finally:
        peer.close()


def receive(listener: socket.socket, found: "Dict[str, float]") -> None:
    peer, _ = listener.accept()
    peer.settimeout(PATIENCE_S)
    data = bytearray(CHUNK)
    began = None
    while True:
        count = peer.recv_into(data)
        now = time.monotonic()
        if not count:
            break
        if began is None:
            # What the first bytes found in the buffers on their way says nothing about the wire.
            began, found["received"] = now, -count
        found["received"] += count
        found["seconds"] = now - began


def main() -> None:
    address, port, after, after_port, seconds = sys.argv[1:6]
    found = {"received": 0, "seconds": 0.0}
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, int(port)))
        listener.listen(1)
        listener.settimeout(PATIENCE_S)
        threads = [
            threading.Thread(target=send, args=(after, int(after_port), float(seconds)), daemon=True),
            threading.Thread(target=receive, args=(listener, found), daemon=True),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(2 * PATIENCE_S + float(seconds))
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
