"""Reads what a VM's kernel knows: the machine, its huge pages, RDMA devices, addresses, listeners.

kit.remote.scripts puts this before observe.py. Addresses and listeners come over netlink: the programs that print the
same take ten times as long, and /proc/net/tcp has the connections of all containers.
"""

import os
import struct
import sys

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

# A folder for each size of huge pages, such as hugepages-2048kB.
HUGE_PAGES = "/sys/kernel/mm/hugepages"
RDMA_DEVICES, RDMA_CLASS = "/dev/infiniband", "/sys/class/infiniband"
DAEMON_JSON = "/etc/docker/daemon.json"
# The first entries of a table of GIDs. A table has 256, of which few are in use.
MOST_GIDS = 32


def read(path: str) -> bytes:
    """Return a file, or nothing if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def lines_of(path: str) -> "list[str]":
    return read(path).decode("utf-8", "replace").splitlines()


def entries(folder: str) -> "list[str]":
    """Return the names in a folder; nothing if it cannot be read."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def first_line(path: str) -> str:
    return "".join(lines_of(path)[:1])


def system() -> "list[str]":
    memory = [line.split()[1] for line in lines_of("/proc/meminfo") if line.startswith("MemTotal:")]
    names = [line.partition("=")[2].strip("\"'") for line in lines_of("/etc/os-release") if line[:12] == "PRETTY_NAME="]
    facts = [
        "arch %s" % os.uname().machine,
        "cores %d" % len(os.sched_getaffinity(0)),
        "python %s" % sys.version.split()[0],
        *("memory_kib %s" % number for number in memory),
        *huge_pages(),
        *("os %s" % name for name in names),
    ]
    for path in (*data_root(), "/var/lib/docker", "/var", "/"):
        try:
            disk = os.statvfs(path)
        except OSError:
            continue
        return [*facts, "disk_free_kib %d" % (disk.f_bavail * disk.f_frsize // 1024)]
    return facts


def data_root() -> "list[str]":
    """Return where the engine keeps images if its settings name a place. A module for JSON is slow to import."""
    text = " ".join(lines_of(DAEMON_JSON)).partition('"data-root"')[2].lstrip(" \t:")
    path = text[1:].partition('"')[0] if text[:1] == '"' else ""
    return [path] if path.startswith("/") and "\\" not in path else []


def huge_pages() -> "list[str]":
    """Return how much memory is in huge pages of all sizes, and how much of it is free, if there is any."""
    total = free = 0
    for name in entries(HUGE_PAGES):
        size = name[len("hugepages-") : -len("kB")]
        counts = [first_line("%s/%s/%s_hugepages" % (HUGE_PAGES, name, word)) for word in ("nr", "free")]
        if size.isdigit() and all(count.isdigit() for count in counts):
            total, free = total + int(size) * int(counts[0]), free + int(size) * int(counts[1])
    return ["hugepages_kib %d" % total, "hugepages_free_kib %d" % free] if total else []


def rdma() -> "list[str]":
    """Return the RDMA devices and the ports of their adapters, with the table of GIDs of each RoCE port."""
    rows = ["device %s" % name for name in entries(RDMA_DEVICES)]
    for adapter in entries(RDMA_CLASS):
        ports = "%s/%s/ports" % (RDMA_CLASS, adapter)
        for number in entries(ports):
            port = "%s/%s" % (ports, number)
            layer = first_line(port + "/link_layer")
            rows.append("port %s %s %s|%s" % (adapter, number, first_line(port + "/state"), layer))
            for index in range(MOST_GIDS) if layer == "Ethernet" else ():
                gid = first_line("%s/gids/%d" % (port, index))
                kind = first_line("%s/gid_attrs/types/%d" % (port, index))
                if gid and kind:
                    interface = first_line("%s/gid_attrs/ndevs/%d" % (port, index))
                    rows.append("gid %s %s %d %s|%s|%s" % (adapter, number, index, interface, kind, gid))
    return rows


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
