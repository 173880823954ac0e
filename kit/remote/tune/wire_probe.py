"""Measures the bare rate of TCP. Runs on a host's Python (3.6 or newer) or in a node, and arrives on standard input.

python3 - ADDRESS PORT NEXT NEXTPORT SECONDS: receives from the previous neighbor and sends to the next one at the same
time. Prints {"received": bytes, "seconds": s} as JSON, for the time in which bytes arrived.
"""

import json
import socket
import sys
import threading
import time
from typing import Dict

PATIENCE_S = 20.0
CHUNK = 1 << 18
# Blocks to send at least, so that a host that pauses for the whole time still has a rate.
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


def receive(listener: socket.socket, totals: "Dict[str, float]") -> None:
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
            # The first bytes were in buffers on the way and say nothing about the wire.
            began, totals["received"] = now, -count
        totals["received"] += count
        totals["seconds"] = now - began


def main() -> None:
    address, port, after, after_port, seconds = sys.argv[1:6]
    totals = {"received": 0, "seconds": 0.0}
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, int(port)))
        listener.listen(1)
        listener.settimeout(PATIENCE_S)
        threads = [
            threading.Thread(target=send, args=(after, int(after_port), float(seconds)), daemon=True),
            threading.Thread(target=receive, args=(listener, totals), daemon=True),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(2 * PATIENCE_S + float(seconds))
    sys.stdout.write(json.dumps(totals) + "\n")


if __name__ == "__main__":
    main()
