"""Where the ranks of an attempt meet, by the variables that PyTorch reads, and the number of ranks on each host.

It is the same for ranks that somebody starts with mpirun in the head (by_hand). kit-rank computes the variables of a
single rank from these.
"""

from typing import TYPE_CHECKING, Any, Mapping, MutableMapping, Optional, Sequence, Set

if TYPE_CHECKING:
    import socket

# `gpu1=2 gpu2=2`: the hosts in the order of their ranks, each with its number of ranks.
PLACES = "KIT_PLACES"
ADDRESS, PORT = "MASTER_ADDR", "MASTER_PORT"

Places = Sequence[Mapping[str, Any]]


def prepare(
    environment: MutableMapping[str, str], places: Places, *, head: str, used: Set[int]
) -> "Optional[socket.socket]":
    """Set the variables, except those that have a value: the user chose it.

    Return the holder of the port, to be closed at the attempt's end, or None. `used` has the ports of earlier attempts
    and gets this one. Raises OSError if no port is free.
    """
    if not places:
        return None
    first = places[0]
    environment[PLACES] = " ".join("%s=%d" % (place["node"], place["ranks"]) for place in places)
    if not environment.get(ADDRESS):
        environment[ADDRESS] = first["address"]
    if environment.get(PORT):
        return None
    # Imported only here: `random` and `socket` are slow to import.
    from kitrun import ports

    # Rank 0 may listen on all addresses of its host, so the port is one that is free on all of them.
    far = "" if first["node"] == head else first["address"]
    port, holder = ports.hold("", far=far, used=used)
    used.add(port)
    environment[PORT] = str(port)
    return holder
