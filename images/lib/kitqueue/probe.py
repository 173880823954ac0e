"""Asks hosts whether they answer, before a run starts there."""

import errno
import select
import socket
import time
from typing import Dict, Mapping, Optional, Set, Tuple

ANSWER_S = 3.0
# How long to wait before another attempt at hosts that refuse.
AGAIN_S = 0.2


def silent(addresses: Mapping[str, str], port: object) -> Set[str]:
    """Return the hosts whose port takes no connection within ANSWER_S. `addresses` are those of the hosts.

    Ask a host that refuses again: its container may be starting. When the head's starts, this runs before its sshd.
    """
    if not isinstance(port, int):
        return set(addresses)
    left, refusing = set(addresses), set(addresses)
    waiting: Dict[int, Tuple[str, socket.socket]] = {}
    poll = select.poll()
    now = again = time.monotonic()
    end = now + ANSWER_S
    try:
        while left and now < end:
            if now >= again:
                for host in list(refusing):
                    one = _connecting(addresses[host], port)
                    if one is not None:
                        waiting[one.fileno()] = host, one
                        poll.register(one, select.POLLOUT)
                        refusing.discard(host)
                again = now + AGAIN_S
            for fd, _ in poll.poll((min(again, end) - now if refusing else end - now) * 1000):
                poll.unregister(fd)
                host, one = waiting.pop(fd)
                if one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    refusing.add(host)
                else:
                    left.discard(host)
                one.close()
            now = time.monotonic()
    finally:
        for _, one in waiting.values():
            one.close()
    return left


def _connecting(address: str, port: int) -> Optional[socket.socket]:
    """Return a socket that is connecting, or None if the connection was refused at once."""
    one = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    one.setblocking(False)
    if one.connect_ex((address, port)) in (0, errno.EINPROGRESS):
        return one
    one.close()
    return None
