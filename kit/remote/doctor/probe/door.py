"""Listens for the peers, and connects to theirs."""

import errno
import hmac
import os
import socket
import struct
import threading
import time
from typing import List, Set, Tuple

from .streams import drain, pour, receive
from .wire import (
    ASK,
    CHALLENGE,
    CLOCK,
    DOWN,
    ECHO,
    HEADERS,
    HELLO_S,
    LARGEST,
    MAGIC,
    MARK,
    PINGS,
    PROOF,
    QUESTION,
    REPLY,
    SEAL,
    TOTALS,
    UP,
    Address,
    Stranger,
    exactly,
    proof,
    word_of,
)

# How many strangers may try to answer at the same time.
MOST_STRANGERS = 64
# How long a stream goes on at most.
LONGEST_S = 10.0
# Linux's numbers, which the module `socket` of old Pythons lacks.
IP_MTU_DISCOVER, IP_PMTUDISC_PROBE = 10, 3


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
