"""Reads addresses and listeners from the kernel, over netlink. kit.remote.scripts puts this before observe.py.

The programs that print the same take ten times as long, and /proc/net/tcp has the connections of all containers.
"""

import struct

# The C module: `socket` around it takes longer to import than all of this.
MYPY = False
if MYPY:
    import socket
    from collections.abc import Iterator
else:
    import _socket as socket

# Numbers of the kernel, which do not change.
NETLINK_ROUTE, NETLINK_SOCK_DIAG = 0, 4
NLMSG_ERROR, NLMSG_DONE = 2, 3
RTM_GETADDR, SOCK_DIAG_BY_FAMILY = 22, 20
IFA_ADDRESS, IFA_LOCAL = 1, 2
TCP_LISTEN = 10


def kernel_table(protocol: int, kind: int, request: bytes) -> "Iterator[bytes]":
    """Yield the rows of a table of the kernel, over netlink. Programs that print it take ten times as long."""
    link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol)
    # The flags are REQUEST and DUMP.
    link.send(struct.pack("=LHHLL", 16 + len(request), kind, 0x301, 0, 0) + request)
    while True:
        data = link.recv(1048576)
        while data:
            length, answer = struct.unpack_from("=LH", data)
            if answer == NLMSG_DONE:
                link.close()
                return
            if answer == NLMSG_ERROR:
                raise OSError
            yield data[16:length]
            data = data[(length + 3) & ~3 :]


def addresses() -> "list[str]":
    """Return the beginning of each line of `ip -4 -o addr show`."""
    lines = []
    for row in kernel_table(NETLINK_ROUTE, RTM_GETADDR, struct.pack("=BBBBL", socket.AF_INET, 0, 0, 0, 0)):
        _, prefix, _, _, index = struct.unpack_from("=BBBBL", row)
        values, rest = {}, row[8:]
        while len(rest) >= 4:
            length, kind = struct.unpack_from("=HH", rest)
            values[kind] = rest[4:length]
            rest = rest[(length + 3) & ~3 :]
        local = values.get(IFA_LOCAL) or values[IFA_ADDRESS]
        peer = values.get(IFA_ADDRESS, local)
        shown = socket.inet_ntoa(local)
        shown += "/%d" % prefix if peer == local else " peer %s/%d" % (socket.inet_ntoa(peer), prefix)
        lines.append("%d: %s inet %s" % (index, socket.if_indextoname(index), shown))
    return lines


def default_routes() -> "list[str]":
    """Return what matters of `ip -4 route show default`."""
    with open("/proc/net/route") as routes:
        rows = [line.split() for line in routes]
    return ["default dev %s" % row[0] for row in rows[1:] if row[1] == row[7] == "00000000" and row[0] != "*"]


def listening() -> "list[str]":
    """Return where programs listen, as /proc/net/tcp shows it. That file lists the connections of all containers."""
    request = struct.pack("=BBBBL48x", socket.AF_INET, socket.IPPROTO_TCP, 0, 0, 1 << TCP_LISTEN)
    rows = kernel_table(NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, request)
    return ["%08X:%04X" % (*struct.unpack_from("=L", row, 8), *struct.unpack_from(">H", row, 4)) for row in rows]
