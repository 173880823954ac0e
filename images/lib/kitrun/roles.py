"""The roles of a run with MXNet's parameter server: the ranks behind the command's own (see kit.plan.run.roles).

`helpers` are [{"role", "node", "address"}]: servers, and last the scheduler, which is on the node of the supervisor.
"""

import os
from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Sequence

if TYPE_CHECKING:
    import socket

ROOT_ADDRESS, ROOT_PORT = "DMLC_PS_ROOT_URI", "DMLC_PS_ROOT_PORT"

Helpers = Sequence[Mapping[str, Any]]


def name(rank: int, np: int, helpers: Helpers) -> str:
    """Return `worker 3`, `server 0` or `scheduler`; '' in a run without helpers."""
    if not helpers:
        return ""
    if rank < np:
        return "worker %d" % rank
    role = str(helpers[min(rank - np, len(helpers) - 1)]["role"])
    return "server %d" % (rank - np) if role == "server" else role


def hostfile(text: str, helpers: Helpers) -> str:
    """Return the hostfile for Open MPI 4.1's mapper `seq`, which places roles.

    That mapper knows mpirun's own node only by its host name.
    """
    if not helpers:
        return text
    here = helpers[-1]["address"]
    return "".join("%s\n" % (os.uname().nodename if line == here else line) for line in text.splitlines())


def hold_port(environment: Dict[str, str], helpers: Helpers) -> "Optional[socket.socket]":
    """Choose the scheduler's port, unless the environment has one. Return its holder, to be closed at the end, or None.

    Raises OSError if the address is not this node's, or if no port is free.
    """
    if not helpers or ROOT_PORT in environment:
        return None
    # Imported only here: `random` and `socket` are slow to import, and few runs have helpers.
    from kitrun import ports

    port, holder = ports.hold(environment[ROOT_ADDRESS])
    environment[ROOT_PORT] = str(port)
    return holder
