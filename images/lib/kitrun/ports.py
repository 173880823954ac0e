"""A TCP port of this node, reserved for as long as a run needs it.

A run first binds a name in the kernel's abstract namespace. All containers in the host's network share that namespace,
and the name goes away with its holder, so two runs that start at once never choose the same port. Ports come from
outside the range of outgoing connections, so that none of those takes the port either.
"""

import errno
import random
import socket
from typing import Tuple

LOWEST, HIGHEST = 10000, 60999
TRIES = 200
RANGE = "/proc/sys/net/ipv4/ip_local_port_range"


def taken_by_kernel() -> Tuple[int, int]:
    """Return the range of ports that the kernel uses for outgoing connections."""
    try:
        with open(RANGE) as file:
            low, high = (int(word) for word in file.read().split())
    except (OSError, ValueError):
        return 32768, 60999
    return low, high


def hold(address: str) -> Tuple[int, socket.socket]:
    """Return (port, holder) of a port at this address on which nobody listens. Close the holder to release the port.

    Raises OSError if the address is not this node's, or if no port is free.
    """
    low, high = taken_by_kernel()
    choice = [port for port in range(LOWEST, HIGHEST + 1) if not low <= port <= high] or list(range(1024, LOWEST))
    for port in random.sample(choice, min(TRIES, len(choice))):
        holder = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            holder.bind("\0kit-port-%d" % port)
            with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
                probe.bind((address, port))
            return port, holder
        except OSError as error:
            holder.close()
            if error.errno != errno.EADDRINUSE:
                raise
    raise OSError(errno.EADDRINUSE, "no free port at %s" % address)
