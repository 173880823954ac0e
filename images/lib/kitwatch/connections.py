"""What the kernel counts for each TCP connection of this host, by sock_diag(7): no program and no right is needed.

A connection that has bytes under way is busy. Its bytes for each busy second are what its path lets through, whatever
its ends do in the rest of the time.
"""

import socket
import struct
from typing import Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY = 4, 20
NLM_F_REQUEST, NLM_F_DUMP, NLMSG_ERROR, NLMSG_DONE = 0x1, 0x300, 2, 3
INET_DIAG_INFO = 2
ESTABLISHED, CLOSE_WAIT = 1, 8
_HEADER = struct.Struct("=IHHII")
# inet_diag_req_v2: family, protocol, extensions, pad, states, and an empty inet_diag_sockid.
_REQUEST = struct.Struct("=BBBxI48x")
# inet_diag_msg: family, state, timer, retrans; ports, source and destination, interface, cookie; expires, …, inode.
_MESSAGE = struct.Struct("=BBBB2s2s16s16sI8s20x")
# Where tcp_info of Linux 4.10 and newer has the bytes that arrived, and microseconds: busy, and of these those in which
# the other end took nothing more.
_ACKED, _BUSY, _REFUSED = 120, 168, 176
_MOST = 100000


class Counters(NamedTuple):
    """Since the connection began: bytes that arrived, and the seconds in which others were under way."""

    sent: int
    busy: float


def connections() -> Dict[bytes, Tuple[str, Counters]]:
    """Return {cookie of the connection: (address of the other end, counters)}; {} if the kernel does not say it."""
    try:
        return dict(_dump())
    except (OSError, struct.error):
        return {}


class Peers:
    """Sums up the connections to each other address, between two looks."""

    def __init__(self) -> None:
        self._before: Optional[Dict[bytes, Tuple[str, Counters]]] = None

    def look(self) -> List[Dict[str, object]]:
        """Return [{"address", "sent" (bytes), "busy" (seconds)}] since the look before; [] for the first one."""
        now = connections()
        before, self._before = self._before, now
        if before is None:
            return []
        sums: Dict[str, List[float]] = {}
        for cookie, (address, counters) in now.items():
            # A connection that is new has counted only since it began.
            old = before[cookie][1] if cookie in before else Counters(0, 0.0)
            row = sums.setdefault(address, [0, 0.0])
            row[0] += max(counters.sent - old.sent, 0)
            row[1] += max(counters.busy - old.busy, 0.0)
        return [
            {"address": address, "sent": int(sent), "busy": round(busy, 6)}
            for address, (sent, busy) in sorted(sums.items())
            if sent
        ]


def _dump() -> Iterator[Tuple[bytes, Tuple[str, Counters]]]:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_SOCK_DIAG) as netlink:
        netlink.settimeout(2.0)
        states = 1 << ESTABLISHED | 1 << CLOSE_WAIT
        body = _REQUEST.pack(socket.AF_INET, socket.IPPROTO_TCP, 1 << INET_DIAG_INFO - 1, states)
        netlink.send(
            _HEADER.pack(_HEADER.size + len(body), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST | NLM_F_DUMP, 1, 0) + body
        )
        seen: Set[bytes] = set()
        while len(seen) < _MOST:
            data = netlink.recv(1 << 18)
            at = 0
            while at + _HEADER.size <= len(data):
                length, kind = _HEADER.unpack_from(data, at)[:2]
                if kind in (NLMSG_DONE, NLMSG_ERROR) or length < _HEADER.size:
                    return
                connection = _message(data[at + _HEADER.size : at + length])
                if connection is not None:
                    seen.add(connection[0])
                    yield connection
                at += length + 3 & ~3


def _message(data: bytes) -> Optional[Tuple[bytes, Tuple[str, Counters]]]:
    """Return a connection to another address than its own, or None."""
    family, _, _, _, _, _, source, target, _, cookie = _MESSAGE.unpack_from(data)
    if family != socket.AF_INET or source[:4] == target[:4]:
        return None
    at = _MESSAGE.size
    while at + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, at)
        if length < 4:
            return None
        if kind == INET_DIAG_INFO and length >= 4 + _REFUSED + 8:
            return cookie, (socket.inet_ntoa(target[:4]), counters(data[at + 4 : at + length]))
        at += length + 3 & ~3
    return None


def counters(info: bytes) -> Counters:
    """Return the counters in a tcp_info."""
    acked, busy, refused = (struct.unpack_from("=Q", info, at)[0] for at in (_ACKED, _BUSY, _REFUSED))
    return Counters(acked, max(busy - refused, 0) / 1e6)
