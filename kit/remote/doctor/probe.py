"""Measures between hosts for kit doctor. Runs on a VM's own Python, 3.6 or newer, and arrives on standard input.

An order is a line of JSON on standard input, and gets one line of JSON with the same `serial`. The program ends with
its input, which ends with the connection, or if no order comes for LIFE_S. It writes no file.

It listens on the cluster's address only. Everybody who can reach a port can connect, so a peer first answers a
challenge with the secret of this examination, which came with the first order, and the program proves that it knows the
secret, too. Packets have a proof as well, and an answer is never longer than the question.
"""

import array
import errno
import fcntl
import hmac
import json
import os
import queue
import select
import selectors
import signal
import socket
import struct
import sys
import termios
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

LIFE_S = 120
# A stranger who connects has this time for the answer, and this number of them may try at the same time.
HELLO_S = 5.0
MOST_STRANGERS = 64
CHALLENGE, PROOF = 16, 32
# What a peer wants: round trips; to send; to receive. And for how many milliseconds.
ASK = struct.Struct("!cI")
ECHO, UP, DOWN = b"E", b"U", b"D"
LONGEST_S = 10.0
CHUNK = 1 << 18
PINGS = 8
CLOCK = struct.Struct("!d")
# Bytes, their seconds, and the seconds in which this thread waited for a core.
TOTALS = struct.Struct("!Qdd")
# The part of a stream that does not count: TCP's start, and what a shaped link lets through at once.
START = 1 / 3
# Connections that are tried at the same time. A program may have 1,024 open files.
WIDTH = 400
# Linux's numbers, which the module `socket` of old Pythons lacks.
IP_MTU_DISCOVER, IP_PMTUDISC_PROBE, IP_MTU = 10, 3, 14
SIOCGIFCONF, SIOCGIFNETMASK = 0x8912, 0x891B
# Headers of IPv4 and UDP. Every path carries the smallest packet; the largest is the longest that IPv4 knows.
HEADERS, SMALLEST, LARGEST = 28, 576, 65535
MARK = struct.Struct("!4scI4sH")
MAGIC, QUESTION, REPLY, SEAL = b"kitm", b"q", b"a", 16
# How long an answer to a packet may take, how often each is sent, and how many sizes are tried at once.
PACKET_S, TRIES, SIZES = 0.3, 2, 8
RESOLVE_S = 3.0
Address = Tuple[str, int]


class Stranger(Exception):
    """Another program has answered."""


def proof(secret: bytes, word: bytes, challenge: bytes) -> bytes:
    return hmac.new(secret, word + challenge, "sha256").digest()


def word_of(number: int) -> str:
    """Return the name of an error, which all systems share. "" for 0."""
    return errno.errorcode.get(number, "EIO") if number else ""


def exactly(peer: socket.socket, count: int) -> bytes:
    """Receive exactly `count` bytes. Raises OSError."""
    data = b""
    while len(data) < count:
        part = peer.recv(count - len(data))
        if not part:
            raise ConnectionError(errno.ECONNRESET, "the other side hung up")
        data += part
    return data


def waited() -> float:
    """Return the seconds in which this thread was ready and waited for a core, or 0 if the kernel does not say."""
    try:
        with open("/proc/thread-self/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def interfaces() -> List[List[Any]]:
    """Return [name, address/prefix, MTU] of each IPv4 address of this host."""
    step = 40 if struct.calcsize("P") == 8 else 32
    room = array.array("B", bytes(step * 1024))
    rows = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        place, length = room.buffer_info()
        used = struct.unpack("iL", fcntl.ioctl(asked, SIOCGIFCONF, struct.pack("iL", length, place)))[0]
        for at in range(0, used, step):
            row = room[at : at + step].tobytes()
            label = row[:16].split(b"\0")[0].decode(errors="replace")
            # With the address in the question, the kernel answers for that one of several.
            mask = fcntl.ioctl(asked, SIOCGIFNETMASK, row)[20:24]
            prefix = bin(int.from_bytes(mask, "big")).count("1")
            name = label.split(":")[0]
            rows.append([name, "%s/%d" % (socket.inet_ntoa(row[20:24]), prefix), mtu_of(name)])
    return rows


def mtu_of(interface: str) -> int:
    try:
        with open("/sys/class/net/%s/mtu" % interface) as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0


def default_route() -> Optional[str]:
    """Return the interface of the default route with the smallest metric."""
    try:
        with open("/proc/net/route") as file:
            rows = [line.split() for line in file]
    except OSError:
        return None
    routes = [(int(row[6]), row[0]) for row in rows if len(row) > 7 and row[1] == row[7] == "00000000"]
    return min(routes)[1] if routes else None


class Door:
    """Listens for the peers: on ports that only accept, on one for measurements, and on one for packets."""

    def __init__(self, address: str, secret: bytes) -> None:
        self.address, self.secret = address, secret
        self.strangers = threading.BoundedSemaphore(MOST_STRANGERS)
        self.plain: List[socket.socket] = []
        self.arrived = threading.Condition()
        self.acknowledged: Set[Tuple[int, bytes, int]] = set()
        self.control = self.bound(0)
        self.packets = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.packets.bind((address, 0))
        self.packets.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE)
        self.packets.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        for work, words in ((self.accept, (self.control,)), (self.answer_packets, ())):
            threading.Thread(target=work, args=words, daemon=True).start()

    def bound(self, port: int) -> socket.socket:
        listener = socket.socket()
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((self.address, port))
            listener.listen(512)
        except OSError:
            listener.close()
            raise
        return listener

    def open(self, first: int, last: int, taken: bool) -> Tuple[int, str]:
        """Listen on the first free port of a range. Return it and "", or the first port and the error.

        With `taken`, a port in use is no error: another program listens there.
        """
        fault = errno.EADDRINUSE
        for port in range(first, last + 1):
            try:
                listener = self.bound(port)
            except OSError as error:
                fault = error.errno or errno.EINVAL
                if fault == errno.EADDRINUSE and not taken:
                    continue
                break
            self.plain.append(listener)
            threading.Thread(target=self.accept, args=(listener,), daemon=True).start()
            return port, ""
        return first, "" if taken and fault == errno.EADDRINUSE else word_of(fault)

    def close(self) -> None:
        """Stop listening on the ports that only accept."""
        for listener in self.plain:
            # It wakes the thread that waits there. A plain close does not.
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        self.plain = []

    def accept(self, listener: socket.socket) -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError as error:
                if error.errno in (errno.EINVAL, errno.EBADF):
                    # It was closed.
                    return
                time.sleep(0.01)
                continue
            if listener is self.control and self.strangers.acquire(blocking=False):
                threading.Thread(target=self.serve, args=(peer,), daemon=True).start()
            else:
                peer.close()

    def serve(self, peer: socket.socket) -> None:
        try:
            peer.settimeout(HELLO_S)
            challenge = os.urandom(CHALLENGE)
            peer.sendall(challenge)
            answer = exactly(peer, PROOF + CHALLENGE)
            if not hmac.compare_digest(answer[:PROOF], proof(self.secret, b"caller", challenge)):
                return
            peer.sendall(proof(self.secret, b"listener", answer[PROOF:]))
            what, milliseconds = ASK.unpack(exactly(peer, ASK.size))
            seconds = min(milliseconds / 1000, LONGEST_S)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if what == ECHO:
                for _ in range(PINGS):
                    exactly(peer, 1)
                    peer.sendall(CLOCK.pack(time.time()))
            elif what == UP:
                peer.sendall(TOTALS.pack(*receive(peer, seconds)))
                drain(peer)
            elif what == DOWN:
                # The reader hangs up. It may wait for a core first.
                pour(peer, seconds + HELLO_S)
        except (OSError, struct.error):
            pass
        finally:
            self.strangers.release()
            peer.close()

    def packet(self, kind: bytes, number: int, salt: bytes, size: int) -> bytes:
        head = MARK.pack(MAGIC, kind, number, salt, size)
        return head + proof(self.secret, b"packet", head)[:SEAL]

    def answer_packets(self) -> None:
        while True:
            try:
                data, sender = self.packets.recvfrom(LARGEST)
                magic, kind, number, salt, size = MARK.unpack_from(data)
                sealed = data[MARK.size : MARK.size + SEAL]
                right = magic == MAGIC and hmac.compare_digest(
                    sealed, proof(self.secret, b"packet", data[: MARK.size])[:SEAL]
                )
                if right and kind == QUESTION and size == len(data) + HEADERS:
                    self.packets.sendto(self.packet(REPLY, number, salt, size), sender)
                elif right and kind == REPLY:
                    with self.arrived:
                        self.acknowledged.add((number, salt, size))
                        self.arrived.notify_all()
            except (OSError, struct.error):
                continue

    def dial(self, target: Address, what: bytes, seconds: float) -> socket.socket:
        """Connect to a peer's door. Raises OSError, and Stranger if another program answers."""
        peer = socket.create_connection(target, timeout=HELLO_S)
        try:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            mine = os.urandom(CHALLENGE)
            peer.sendall(proof(self.secret, b"caller", exactly(peer, CHALLENGE)) + mine)
            if not hmac.compare_digest(exactly(peer, PROOF), proof(self.secret, b"listener", mine)):
                raise Stranger
            peer.sendall(ASK.pack(what, int(seconds * 1000)))
        except BaseException:
            peer.close()
            raise
        return peer


def receive(peer: socket.socket, seconds: float) -> Tuple[int, float, float]:
    """Return the bytes that arrive after the stream's start, their seconds, and the seconds without a core.

    What waits in the kernel because this thread had no core has arrived, too, at its own time.
    """
    data = bytearray(CHUNK)
    total, counting = 0, False
    # Not longer: on a path that loses large packets, no byte comes at all.
    peer.settimeout(max(seconds, 1.0))
    now, before = time.monotonic(), waited()
    since, begin, end = now, now, now + seconds
    try:
        peer.recv_into(data)
        now = since = time.monotonic()
        begin, end = now + seconds * START, now + seconds
        while now < end:
            peer.settimeout(end - now)
            count = peer.recv_into(data)
            now = time.monotonic()
            if not count:
                break
            if counting:
                total += count
            elif now >= begin:
                counting, since, before = True, now, waited()
                total, end = -unread(peer), now + seconds * (1 - START)
    except TimeoutError:
        pass
    if counting:
        total += unread(peer)
    # The time is taken before the first count and after the last one. So a pause only lowers the rate.
    now = time.monotonic()
    return total, max(now - since, 1e-6), max(waited() - before, 0.0)


def unread(peer: socket.socket) -> int:
    """Return how many bytes of a stream have arrived that nobody has read."""
    count = array.array("i", [0])
    fcntl.ioctl(peer, termios.FIONREAD, count)
    return count[0]


def drain(peer: socket.socket) -> None:
    """Read what still comes, so that the answer reaches the peer, until it hangs up."""
    data = bytearray(CHUNK)
    end = time.monotonic() + HELLO_S
    peer.settimeout(HELLO_S)
    while time.monotonic() < end and peer.recv_into(data):
        pass


def pour(peer: socket.socket, seconds: float) -> None:
    """Send until the peer hangs up."""
    data = bytes(CHUNK)
    end = time.monotonic() + seconds
    peer.settimeout(seconds)
    while time.monotonic() < end:
        peer.send(data)
    hang_up(peer)


def hang_up(peer: socket.socket) -> None:
    """Close at once. What the kernel has not sent yet is dropped."""
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


def send(door: Door, target: Address, seconds: float) -> List[float]:
    """Return what the target received: bytes, seconds, and the larger wait for a core of both ends."""
    peer = door.dial(target, UP, seconds)
    data = bytes(CHUNK)
    waiting = select.poll()
    waiting.register(peer.fileno(), select.POLLIN | select.POLLOUT)
    peer.setblocking(False)
    answer, before = b"", waited()
    end = time.monotonic() + seconds + HELLO_S
    try:
        while len(answer) < TOTALS.size:
            if time.monotonic() > end:
                raise TimeoutError("timed out")
            for _, event in waiting.poll(100):
                if event & select.POLLIN:
                    part = peer.recv(TOTALS.size - len(answer))
                    if not part:
                        raise ConnectionError(errno.ECONNRESET, "the other side hung up")
                    answer += part
                elif event & select.POLLOUT:
                    try:
                        peer.send(data)
                    except BlockingIOError:
                        continue
                else:
                    raise ConnectionError(errno.ECONNRESET, "the connection broke")
    finally:
        hang_up(peer)
    total, took, theirs = TOTALS.unpack(answer)
    return [total, took, max(theirs, waited() - before)]


def fetch(door: Door, target: Address, seconds: float) -> List[float]:
    """Return what arrives from the target: bytes, seconds, and the seconds without a core."""
    peer = door.dial(target, DOWN, seconds)
    try:
        return list(receive(peer, seconds))
    finally:
        hang_up(peer)


def pings(door: Door, target: Address) -> List[float]:
    """Return the shortest round trip, and the target's clock minus this one's, in seconds."""
    peer = door.dial(target, ECHO, 1)
    best: List[float] = []
    try:
        peer.settimeout(HELLO_S)
        for _ in range(PINGS):
            mine, began = time.time(), time.monotonic()
            peer.sendall(b".")
            theirs = CLOCK.unpack(exactly(peer, CLOCK.size))[0]
            trip = time.monotonic() - began
            if not best or trip < best[0]:
                best = [trip, theirs - mine - trip / 2]
    finally:
        peer.close()
    return best


def measure(door: Door, target: Address, seconds: float) -> Dict[str, Any]:
    """Measure round trips, then the rate to the target, then the rate from it."""
    trip, clock = pings(door, target)
    return {
        "rtt": trip,
        "clock": clock,
        "there": send(door, target, seconds),
        "back": fetch(door, target, seconds),
    }


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


class Path:
    """The search for the largest packet that reaches one peer."""

    def __init__(self, target: Address, most: int) -> None:
        self.target = target
        # The largest size that arrived, and the smallest that did not.
        self.arrived, self.lost = 0, most + 1
        self.sizes = [SMALLEST, most] if most > SMALLEST else [most]

    def learn(self, arrived: Sequence[int]) -> None:
        self.arrived = max(arrived, default=self.arrived)
        self.lost = min([self.lost] + [size for size in self.sizes if size > self.arrived])
        gap = self.lost - self.arrived
        if not self.arrived or gap <= 1:
            self.sizes = []
        else:
            step = max(gap / (SIZES + 1), 1)
            self.sizes = sorted({self.arrived + int(step * n) for n in range(1, SIZES + 1) if int(step * n) < gap})


def largest_packets(door: Door, targets: Sequence[Address], most: int) -> List[Optional[int]]:
    """Return the largest packet that arrives at each target with the don't-fragment bit. None if not even a small one.

    All targets at once. Each round sends several sizes, and a lost one twice.
    """
    most = min(most, LARGEST)
    paths = [Path(target, most) for target in targets]
    while any(path.sizes for path in paths):
        salt = os.urandom(4)
        missing = {(number, salt, size) for number, path in enumerate(paths) for size in path.sizes}
        for _ in range(TRIES):
            for number, _, size in sorted(missing - door.acknowledged):
                question = door.packet(QUESTION, number, salt, size)
                try:
                    door.packets.sendto(question + bytes(size - HEADERS - len(question)), paths[number].target)
                except OSError:
                    # It does not even leave this host.
                    continue
            with door.arrived:
                door.arrived.wait_for(lambda: missing <= door.acknowledged, PACKET_S)  # noqa: B023
        for number, path in enumerate(paths):
            path.learn([size for size in path.sizes if (number, salt, size) in door.acknowledged])
    return [path.arrived or None for path in paths]


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


class Probe:
    """Does the orders."""

    def __init__(self) -> None:
        self.secret = b""
        self.door: Optional[Door] = None

    def hello(self, order: Dict[str, Any]) -> Dict[str, Any]:
        self.secret = bytes.fromhex(order["secret"])
        return {"name": socket.gethostname(), "interfaces": interfaces(), "route": default_route()}

    def listen(self, order: Dict[str, Any]) -> Dict[str, Any]:
        self.door = door = Door(order["address"], self.secret)
        return {
            "ports": [door.open(first, last, taken) for first, last, taken in order["ports"]],
            "control": door.control.getsockname()[1],
            "packets": door.packets.getsockname()[1],
        }

    def reach(self, order: Dict[str, Any]) -> Dict[str, Any]:
        names: List[Optional[List[str]]] = []
        resolving = threading.Thread(target=lambda: names.extend(resolved(order["names"])), daemon=True)
        resolving.start()
        faults = reach([(address, port) for address, port in order["targets"]], order["seconds"])
        resolving.join()
        return {"faults": faults, "names": names}

    def packets(self, order: Dict[str, Any]) -> Dict[str, Any]:
        targets = [(address, port) for address, port in order["targets"]]
        local = order["mtu"] or route_mtu(targets[0])
        return {"local": min(local, LARGEST), "largest": largest_packets(self.opened(), targets, local)}

    def measure(self, order: Dict[str, Any]) -> Dict[str, Any]:
        address, port = order["target"]
        try:
            return measure(self.opened(), (address, port), order["seconds"])
        except Stranger:
            return {"fault": "EPROTO"}
        except OSError as error:
            return {"fault": word_of(error.errno or errno.ETIMEDOUT)}

    def close(self, _order: Dict[str, Any]) -> Dict[str, Any]:
        self.opened().close()
        return {}

    def opened(self) -> Door:
        if self.door is None:
            raise ValueError("there was no order to listen")
        return self.door


def route_mtu(target: Address) -> int:
    """Return the MTU of the route to a target, for an address that no interface shows."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        asked.connect(target)
        return asked.getsockopt(socket.IPPROTO_IP, IP_MTU)


def main() -> None:
    probe = Probe()
    does: Dict[str, Callable[[Dict[str, Any]], Dict[str, Any]]] = {
        "hello": probe.hello,
        "listen": probe.listen,
        "reach": probe.reach,
        "packets": probe.packets,
        "measure": probe.measure,
        "close": probe.close,
    }
    orders: "queue.Queue[Any]" = queue.Queue()

    def read() -> None:
        for line in sys.stdin.buffer:
            orders.put(line)
        # The connection has ended: so does every measurement.
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while True:
        signal.alarm(LIFE_S)
        order = json.loads(orders.get().decode())
        try:
            answer = does[order["do"]](order)
        except (OSError, ValueError, KeyError) as error:
            answer = {"failed": str(error)}
        answer["serial"] = order["serial"]
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
