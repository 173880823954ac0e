"""The roles of a run with MXNet's parameter server: the ranks behind the command's own, as kit.plan.run.roles places them.

`helpers` are [{"role", "node", "address"}]: servers, and last the scheduler, which is on the node of the supervisor.
"""

import os

from kitrun import ports

ROOT_ADDRESS, ROOT_PORT = "DMLC_PS_ROOT_URI", "DMLC_PS_ROOT_PORT"


def name(rank, np, helpers):
    """`worker 3`, `server 0`, `scheduler`; '' in a run without such."""
    if not helpers:
        return ""
    if rank < np:
        return "worker %d" % rank
    role = helpers[min(rank - np, len(helpers) - 1)]["role"]
    return "server %d" % (rank - np) if role == "server" else role


def hostfile(text, helpers):
    """Open MPI 4.1's mapper `seq`, which places roles, knows the node that mpirun is on by its own name alone."""
    if not helpers:
        return text
    here = helpers[-1]["address"]
    return "".join("%s\n" % (os.uname().nodename if line == here else line) for line in text.splitlines())


def hold_port(environment, helpers):
    """Choose the scheduler's port, where nobody named one. Returns its holder, to be closed at the end, or None.

    Raises OSError where the node has not the address, or no port is free.
    """
    if not helpers or ROOT_PORT in environment:
        return None
    port, holder = ports.hold(environment[ROOT_ADDRESS])
    environment[ROOT_PORT] = str(port)
    return holder
