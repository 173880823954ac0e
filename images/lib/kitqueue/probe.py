"""Asks hosts whether they answer, before a run starts there."""

import errno
import select
import socket
import time
from typing import Dict, Mapping, Set

ANSWER_S = 3.0


def silent(addresses: Mapping[str, str], port: object) -> Set[str]:
    """Return the hosts whose port takes no connection within ANSWER_S. `addresses` are those of the hosts."""
    if not isinstance(port, int):
        return set(addresses)
    left = set(addresses)
    waiting: Dict[int, str] = {}
    sockets = []
    poll = select.poll()
    try:
        for host, address in addresses.items():
            one = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
            sockets.append(one)
            one.setblocking(False)
            if one.connect_ex((address, port)) in (0, errno.EINPROGRESS):
                waiting[one.fileno()] = host
                poll.register(one, select.POLLOUT)
        end = time.monotonic() + ANSWER_S
        while waiting and time.monotonic() < end:
            for fd, _ in poll.poll(max(0.0, end - time.monotonic()) * 1000):
                poll.unregister(fd)
                one = next(one for one in sockets if one.fileno() == fd)
                if not one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    left.discard(waiting[fd])
                del waiting[fd]
    finally:
        for one in sockets:
            one.close()
    return left
