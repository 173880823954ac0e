"""Measures TCP between two hosts. Runs on a VM's own Python (3.6 or newer) or in a container, and needs nothing of kit.

tcp.py listen ADDRESS PORT LIMIT: takes connections of those who know the secret, until one says good-bye, or for LIMIT
seconds. tcp.py connect ADDRESS PORT SECONDS: prints one JSON object: half round trips by size, and the rate of a
stream. The secret is the first line of standard input of both. It never crosses the network: a caller answers a
challenge with it, as in kit.remote.tune.wire_probe. An answer that somebody overhears is of no use for another one.
"""

import hmac
import json
import os
import socket
import statistics
import sys
import threading
import time
from typing import Any, Dict, List

PING, STREAM, BYE = b"P", b"S", b"B"
SIZES = ((8, 2000), (1024, 2000), (65536, 200))
CHALLENGE, ANSWER = 16, 32
BUFFER = 1 << 20
# What a shaped link lets through at once, and TCP's slow start, are no measure of the wire.
IGNORED_S = 0.5
WINDOWS = 5
HELLO_S = 5.0
CONNECT_S = 20.0
# On busy hosts, round trips of a size end after LATENCY_S seconds, but not before the first LEAST of them.
LATENCY_S, LEAST = 5.0, 20
# Round trips before those that count.
WARM = 20


def exactly(link: socket.socket, count: int) -> bytes:
    """Receive exactly `count` bytes, or raise ConnectionError."""
    data = b""
    while len(data) < count:
        part = link.recv(count - len(data))
        if not part:
            raise ConnectionError("the other side hung up")
        data += part
    return data


def answer_to(challenge: bytes, secret: bytes) -> bytes:
    return hmac.new(secret, challenge, "sha256").digest()


def listen(address: str, port: int, limit: float, secret: bytes) -> int:
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((address, port))
    server.listen(8)
    end = time.monotonic() + limit
    over = threading.Event()
    while not over.is_set() and time.monotonic() < end:
        server.settimeout(0.2)
        try:
            link, _ = server.accept()
        except socket.timeout:
            continue
        # A silent stranger must not block others.
        threading.Thread(target=serve, args=(link, secret, over, limit), daemon=True).start()
    return 0 if over.is_set() else 3


def serve(link: socket.socket, secret: bytes, over: threading.Event, limit: float) -> None:
    try:
        link.settimeout(HELLO_S)
        challenge = os.urandom(CHALLENGE)
        link.sendall(challenge)
        if not hmac.compare_digest(exactly(link, ANSWER), answer_to(challenge, secret)):
            return
        link.settimeout(limit)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        what = exactly(link, 1)
        if what == PING:
            echo(link)
        elif what == STREAM:
            link.sendall(json.dumps(rates(link)).encode() + b"\n")
        elif what == BYE:
            over.set()
    except (OSError, ValueError):
        pass
    finally:
        link.close()


def echo(link: socket.socket) -> None:
    size = int.from_bytes(exactly(link, 4), "big")
    while True:
        try:
            link.sendall(exactly(link, size))
        except ConnectionError:
            return


def rates(link: socket.socket) -> List[float]:
    """Bytes a second in each window of the stream, after its beginning."""
    buffer = bytearray(BUFFER)
    marks = [(time.monotonic(), 0)]
    # The sender starts its clock here, because a busy host may get here late.
    link.sendall(STREAM)
    total = 0
    while True:
        got = link.recv_into(buffer)
        if not got:
            break
        total += got
        now = time.monotonic()
        if now - marks[-1][0] > 0.01:
            marks.append((now, total))
    marks.append((time.monotonic(), total))
    begin, end = marks[0][0] + IGNORED_S, marks[-1][0]
    edges = [begin + (end - begin) * n / WINDOWS for n in range(WINDOWS + 1)]
    at = [min(marks, key=lambda mark: abs(mark[0] - edge)) for edge in edges]
    # The last mark is the end, which may be long after the last byte.
    rates_seen = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in zip(at, at[1:]) if b[0] > a[0] and b[1] > a[1]]
    # All bytes may arrive at once if this host paused until then.
    return rates_seen or [total / (marks[-1][0] - marks[0][0])]


def dial(address: str, port: int, secret: bytes, what: bytes) -> socket.socket:
    end = time.monotonic() + CONNECT_S
    while True:
        try:
            link = socket.create_connection((address, port), timeout=3)
            break
        except OSError as error:
            # The listener may still be starting.
            if time.monotonic() > end:
                raise ConnectionError("no connection to %s:%d: %s" % (address, port, error)) from None
            time.sleep(0.1)
    link.settimeout(60)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    link.sendall(answer_to(exactly(link, CHALLENGE), secret) + what)
    return link


def latency(address: str, port: int, secret: bytes, size: int, repeats: int) -> List[float]:
    """Measure half round trips of `size` bytes, in seconds; at most `repeats` of them."""
    link = dial(address, port, secret, PING)
    link.sendall(size.to_bytes(4, "big"))
    data = b"x" * size
    times: List[float] = []
    end = time.monotonic() + LATENCY_S
    while len(times) < WARM + repeats and (len(times) < WARM + LEAST or time.monotonic() < end):
        began = time.perf_counter()
        link.sendall(data)
        exactly(link, size)
        times.append((time.perf_counter() - began) / 2)
    link.close()
    return times[WARM:]


def stream(address: str, port: int, secret: bytes, seconds: float) -> List[float]:
    link = dial(address, port, secret, STREAM)
    data = memoryview(bytes(BUFFER))
    exactly(link, 1)
    end = time.monotonic() + IGNORED_S + seconds
    link.sendall(data)
    while time.monotonic() < end:
        link.sendall(data)
    link.shutdown(socket.SHUT_WR)
    answer = b""
    while not answer.endswith(b"\n"):
        part = link.recv(65536)
        if not part:
            raise ConnectionError("the listener went away during the stream")
        answer += part
    link.close()
    return [float(rate) for rate in json.loads(answer.decode())]


def connect(address: str, port: int, seconds: float, secret: bytes) -> int:
    rows = []
    for size, repeats in SIZES:
        times = latency(address, port, secret, size, repeats)
        half = statistics.median(times)
        rows.append(row(size, half, min(times), max(times), len(times)))
    windows = stream(address, port, secret, seconds)
    rate = statistics.median(windows)
    wire = row(BUFFER, BUFFER / rate, BUFFER / max(windows), BUFFER / min(windows), len(windows))
    dial(address, port, secret, BYE).close()
    tests = [{"test": "latency", "ranks": 2, "rows": rows}, {"test": "bandwidth", "ranks": 2, "rows": [wire]}]
    print(
        json.dumps({"workload": "perf", "simulated": False, "ranks": 2, "hosts": 2, "through": "tcp", "tests": tests})
    )
    return 0


def row(size: int, seconds: float, least: float, most: float, repeats: int) -> Dict[str, Any]:
    rate = size / seconds
    return {
        "bytes": size, "seconds": seconds, "min_s": least, "max_s": most, "repeats": repeats,
        "algbw": rate, "busbw": rate,
    }  # fmt: skip


def main(words: List[str]) -> int:
    secret = sys.stdin.readline().strip().encode()
    what, address, port, limit = words[0], words[1], int(words[2]), float(words[3])
    try:
        return {"listen": listen, "connect": connect}[what](address, port, limit, secret)
    except OSError as error:
        print("tcp probe: %s" % error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
