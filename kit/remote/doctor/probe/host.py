"""What this host says about itself: its addresses, its MTUs and its routes."""

import array
import fcntl
import socket
import struct
from typing import Any, List, Optional

from .wire import Address

# Linux's numbers, which the module `socket` of old Pythons lacks.
IP_MTU = 14
SIOCGIFCONF, SIOCGIFNETMASK = 0x8912, 0x891B


def interfaces() -> List[List[Any]]:
    """Return [name, address/prefix, MTU] of each IPv4 address of this host."""
    step = 40 if struct.calcsize("P") == 8 else 32
    room = array.array("B", bytes(step * 1024))
    rows = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        place, length = room.buffer_info()
        used = struct.unpack("iL", fcntl.ioctl(sock, SIOCGIFCONF, struct.pack("iL", length, place)))[0]
        for at in range(0, used, step):
            row = room[at : at + step].tobytes()
            label = row[:16].split(b"\0")[0].decode(errors="replace")
            # With the address in the question, the kernel answers for that one of several.
            mask = fcntl.ioctl(sock, SIOCGIFNETMASK, row)[20:24]
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


def route_mtu(target: Address) -> int:
    """Return the MTU of the route to a target, for an address that no interface shows."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(target)
        return sock.getsockopt(socket.IPPROTO_IP, IP_MTU)
