"""Measures the bare rate of TCP. Runs on a host's Python (3.6 or newer) or in a node, and arrives on standard input.

python3 -I - ADDRESS PORT NEXT NEXTPORT SECONDS: receives from the previous neighbor and sends to the next one at the
same time. Prints {"received": bytes, "seconds": s} as JSON, for the time in which bytes arrived.

Everybody who can reach the port can connect, so a sender first answers a challenge with the probe's secret. kit writes
a line with the secret before this program: a command line would show it to every user of the host.
"""

import hmac
import json
import os
import socket
import sys
import threading
import time
from typing import Dict

PATIENCE_S = 20.0
CHUNK = 1 << 18
# Blocks to send at least, so that a host that pauses for the whole time still has a rate.
LEAST = 8
CHALLENGE, ANSWER = 16, 32
# A stranger who connects has this time for the answer, and this number of strangers may try at the same time.
HELLO_S = 5.0
MOST_STRANGERS = 16


def answer_to(challenge: bytes, secret: bytes) -> bytes:
    return hmac.new(secret, challenge, "sha256").digest()


def exactly(peer: socket.socket, count: int) -> bytes:
    """Receive exactly `count` bytes. Raises OSError."""
    data = b""
    while len(data) < count:
        part = peer.recv(count - len(data))
        if not part:
            raise ConnectionError("the other side hung up")
        data += part
    return data


def connected(address: str, port: int) -> socket.socket:
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            return socket.create_connection((address, port), timeout=PATIENCE_S)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def send(address: str, port: int, seconds: float, secret: bytes) -> None:
    data = bytes(CHUNK)
    peer = connected(address, port)
    try:
        peer.sendall(answer_to(exactly(peer, CHALLENGE), secret))
        end = time.monotonic() + seconds
        sent = 0
        while sent < LEAST or time.monotonic() < end:
            peer.sendall(data)
            sent += 1
    finally:
        peer.close()


class Door:
    """Lets in the first peer that knows the secret. Others wait in threads, so that a silent one blocks nobody."""

    def __init__(self, listener: socket.socket, secret: bytes) -> None:
        self.listener, self.secret = listener, secret
        self.strangers = threading.BoundedSemaphore(MOST_STRANGERS)
        self.lock = threading.Lock()
        self.guest = None  # type: socket.socket | None

    def wait(self) -> socket.socket:
        """Return the peer. Raises OSError if none comes in PATIENCE_S."""
        end = time.monotonic() + PATIENCE_S
        self.listener.settimeout(0.1)
        while self.guest is None:
            if time.monotonic() > end:
                raise socket.timeout("timed out")
            try:
                peer, _ = self.listener.accept()
            except socket.timeout:
                continue
            if self.strangers.acquire(blocking=False):
                threading.Thread(target=self.check, args=(peer,), daemon=True).start()
            else:
                peer.close()
        return self.guest

    def check(self, peer: socket.socket) -> None:
        try:
            peer.settimeout(HELLO_S)
            challenge = os.urandom(CHALLENGE)
            peer.sendall(challenge)
            right = hmac.compare_digest(exactly(peer, ANSWER), answer_to(challenge, self.secret))
            with self.lock:
                if right and self.guest is None:
                    self.guest = peer
                    return
        except OSError:
            pass
        finally:
            self.strangers.release()
        peer.close()


def receive(listener: socket.socket, totals: "Dict[str, float]", seconds: float, secret: bytes) -> None:
    peer = Door(listener, secret).wait()
    peer.settimeout(PATIENCE_S)
    data = bytearray(CHUNK)
    began = None
    end = time.monotonic() + seconds + 2 * PATIENCE_S
    while time.monotonic() < end:
        count = peer.recv_into(data)
        now = time.monotonic()
        if not count:
            break
        if began is None:
            # The first bytes were in buffers on the way and say nothing about the wire.
            began, totals["received"] = now, -count
        totals["received"] += count
        totals["seconds"] = now - began


def main(secret: bytes) -> None:
    address, port, after, after_port, seconds = sys.argv[1:6]
    totals = {"received": 0, "seconds": 0.0}
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, int(port)))
        listener.listen(MOST_STRANGERS)
        threads = [
            threading.Thread(target=send, args=(after, int(after_port), float(seconds), secret), daemon=True),
            threading.Thread(target=receive, args=(listener, totals, float(seconds), secret), daemon=True),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(2 * PATIENCE_S + float(seconds))
    sys.stdout.write(json.dumps(totals) + "\n")


if __name__ == "__main__":
    main(bytes.fromhex(globals()["SECRET"]))
