"""A TCP port of this node or of another one, reserved for as long as a run needs it.

All runs of a cluster reserve their ports here, on the head. A run first binds a name in the kernel's abstract
namespace. All containers in the host's network share that namespace, and the name goes away with its holder, so two
runs that start at once never choose the same port. Ports come from outside the range of outgoing connections, so that
none of those takes the port either.
"""

import errno
import random
import socket
from typing import Container, Tuple

LOWEST, HIGHEST = 10000, 60999
TRIES = 200
# How long another node has to answer.
FAR_S = 1.0
RANGE = "/proc/sys/net/ipv4/ip_local_port_range"


def taken_by_kernel() -> Tuple[int, int]:
    """Return the range of ports that the kernel uses for outgoing connections."""
    try:
        with open(RANGE) as file:
            low, high = (int(word) for word in file.read().split())
    except (OSError, ValueError):
        return 32768, 60999
    return low, high


def hold(address: str, far: str = "", used: Container[int] = ()) -> Tuple[int, socket.socket]:
    """Return (port, holder) of a port at this address ('' for all addresses of this node) on which nobody listens.

    With `far`, the port is one of that address on another node. Ports in `used` are left out. Close the holder to
    release the port. Raises OSError if the address is not this node's, or if no port is free.
    """
    low, high = taken_by_kernel()
    choice = [port for port in range(LOWEST, HIGHEST + 1) if not low <= port <= high] or list(range(1024, LOWEST))
    for port in random.sample(choice, min(TRIES, len(choice))):
        if port in used:
            continue
        holder = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            holder.bind("\0kit-port-%d" % port)
            if far:
                refuse_listener(far, port)
            else:
                with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
                    probe.bind((address, port))
            return port, holder
        except OSError as error:
            holder.close()
            if error.errno != errno.EADDRINUSE:
                raise
    raise OSError(errno.EADDRINUSE, "no free port at %s" % (far or address or "this node"))


def refuse_listener(address: str, port: int) -> None:
    """Raise OSError (EADDRINUSE) if somebody on another node accepts connections at this port."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.settimeout(FAR_S)
        if probe.connect_ex((address, port)) == 0:
            raise OSError(errno.EADDRINUSE, "port %d at %s" % (port, address))
