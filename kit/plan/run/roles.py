"""The roles of a run with a parameter server: which servers are on which host, and what tells each rank its role. Pure.

Workers are ranks 0..W-1, placed on slots like those of any run. Behind them come the servers, one host after the other,
and the scheduler on the head: they hold no slot. images/bin/kit-role makes each rank what it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kit.errors import InputError
from kit.model import names
from kit.model.launch import Helper, Node, Placement, RunRequest

WRAPPER = ("python3", "-IS", f"{names.IMAGE_BIN}/kit-role")
# ps-lite's own names. The supervisor chooses the port, on the head, for each attempt anew (images/lib/kitrun/ports.py).
WORKERS, SERVERS, ROOT = "DMLC_NUM_WORKER", "DMLC_NUM_SERVER", "DMLC_PS_ROOT_URI"
ROOT_PORT = "DMLC_PS_ROOT_PORT"
# What kit-role sets for each rank, so that nobody may for all.
_OWN = ("DMLC_ROLE", "DMLC_NODE_HOST")
# Limits of kit-role: seconds in which all have to join, and for which the others may stay when somebody has left.
JOIN, LEAVE = "KIT_JOIN_S", "KIT_LEAVE_S"


def check(request: RunRequest) -> None:
    """Raises InputError for what does not go together."""
    if request.launcher == "mpi":
        if request.servers is not None:
            raise InputError(
                f"--servers {request.servers} has no effect without a parameter server",
                hint=f"write --launcher ps --servers {request.servers}, or leave --servers out",
            )
        return
    if request.servers is None:
        raise InputError(
            "--launcher ps needs a number of servers",
            hint="add --servers; start with one for each host",
        )
    if request.servers < 1:
        raise InputError(
            f"--servers {request.servers} is not a number of servers", hint="write --servers with a number from 1"
        )
    if request.policy.min_np is not None:
        raise InputError(
            "--min-np would go on with fewer workers, and a parameter server's number of them is fixed",
            hint="leave --min-np out; --retries starts the whole run again",
        )
    for name, _ in request.env:
        if name in (WORKERS, SERVERS, ROOT, *_OWN):
            raise InputError(f"-x {name}: --launcher ps sets it itself", hint=f"leave -x {name} out")


def helpers(placement: Placement, head: Node, servers: int) -> tuple[Helper, ...]:
    """The servers, one on each of the run's hosts after the other, and last the scheduler, on the head.

    Raises InputError where the addresses are none that ps-lite can use.
    """
    for node in (head, *placement.nodes):
        if ":" in node.address:
            raise InputError(
                f"--launcher ps: MXNet's parameter server knows IPv4 only, and {node.name} has {node.address}",
                hint="choose an IPv4 network with --network",
            )
    nodes = placement.nodes
    chosen = [nodes[number % len(nodes)] for number in range(servers)]
    return (
        *(Helper(role="server", node=node.name, address=node.address) for node in chosen),
        Helper(role="scheduler", node=head.name, address=head.address),
    )


def crowded(placement: Placement, behind: Sequence[Helper]) -> str | None:
    """Which host gets more servers than it has cores (or slots, where those are more); None where none does.

    Servers hold no slot, and how many do well beside the workers nobody knows; more than cores do not. In a dry run,
    which asks no host, slots are all that is known.
    """
    counts = Counter(helper.node for helper in behind if helper.role == "server")
    for node in placement.nodes:
        room, what = (node.cores, "core") if node.cores >= node.slots else (node.slots, "slot")
        if counts[node.name] > room:
            hosts = f"{len(placement.nodes)} host{'s' if len(placement.nodes) > 1 else ''}"
            return (
                f"{counts.total()} servers on {hosts} are {counts[node.name]} on {node.name}, "
                f"which has {room} {what}{'s' if room > 1 else ''} for them and its workers"
            )
    return None


def hostfile(placement: Placement, behind: Sequence[Helper]) -> str:
    """For mpirun's mapper `seq`: an address a line, rank by rank."""
    pairs = zip(placement.nodes, placement.counts, strict=True)
    addresses = [node.address for node, count in pairs for _ in range(count)]
    return "".join(f"{address}\n" for address in (*addresses, *(helper.address for helper in behind)))


def variables(placement: Placement, behind: Sequence[Helper], *, join: float | None) -> dict[str, str]:
    """What is the same for all ranks."""
    scheduler = behind[-1]
    told = {WORKERS: str(placement.np), SERVERS: str(len(behind) - 1), ROOT: scheduler.address}
    if join is not None:
        told[JOIN] = f"{join:g}"
    return told
