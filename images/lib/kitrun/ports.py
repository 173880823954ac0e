"""A TCP port of this node for as long as a run needs one.

Whoever takes a port binds a name in the kernel's abstract namespace first, which all containers in the host's network
share and which goes with its holder: two runs that start at once never choose the same. Ports come from outside the range
from which the kernel takes those of outgoing connections, so that none of them gets in between either.
"""

import errno
import random
import socket

LOWEST, HIGHEST = 10000, 60999
TRIES = 200
RANGE = "/proc/sys/net/ipv4/ip_local_port_range"


def taken_by_kernel():
    try:
        with open(RANGE) as file:
            low, high = (int(word) for word in file.read().split())
    except (OSError, ValueError):
        return 32768, 60999
    return low, high


def hold(address):
    """(port, its holder): nobody listens on the port at this address. Close the holder when it is not needed any more.

    Raises OSError where the address is not this node's, or no port is free.
    """
    low, high = taken_by_kernel()
    choice = [port for port in range(LOWEST, HIGHEST + 1) if not low <= port <= high] or range(1024, LOWEST)
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
