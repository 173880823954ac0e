"""The roles of a run with a parameter server: which host runs which server, and which variables set a rank's role.

Workers are ranks 0..W-1 on slots, as in any run. After them come the servers, on one host after the other, and the
scheduler on the head; they hold no slot. images/bin/kit-role gives each rank its role.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kit.errors import InputError
from kit.model import names
from kit.model.launch import Helper, Node, Placement, RunRequest

WRAPPER = ("python3", "-IS", f"{names.IMAGE_BIN}/kit-role")
# Names of ps-lite. For each attempt, the supervisor chooses a port on the head (images/lib/kitrun/ports.py).
WORKERS, SERVERS, ROOT = "DMLC_NUM_WORKER", "DMLC_NUM_SERVER", "DMLC_PS_ROOT_URI"
ROOT_PORT = "DMLC_PS_ROOT_PORT"
# kit-role sets these for each rank, so a user cannot set them for all ranks.
_OWN = ("DMLC_ROLE", "DMLC_NODE_HOST")
# Limits of kit-role in seconds: for all ranks to join, and for the others to stay after one has left.
JOIN, LEAVE = "KIT_JOIN_S", "KIT_LEAVE_S"


def check(request: RunRequest) -> None:
    """Raise InputError for options that conflict."""
    if request.launcher != "ps":
        if request.servers is not None:
            raise InputError(
                f"--servers {request.servers} has no effect without a parameter server",
                hint=f"use --launcher ps --servers {request.servers}, or remove --servers",
            )
        return
    if request.servers is None:
        raise InputError(
            "--launcher ps needs a number of servers",
            hint="add --servers; start with one for each host",
        )
    if request.servers < 1:
        raise InputError(
            f"--servers {request.servers} is not a number of servers", hint="use --servers with a number from 1"
        )
    if request.policy.min_np is not None:
        raise InputError(
            "--min-np continues with fewer workers, but a parameter server has a fixed number of workers",
            hint="remove --min-np; --retries starts the whole run again",
        )
    for name, _ in request.env:
        if name in (WORKERS, SERVERS, ROOT, *_OWN):
            raise InputError(f"-x {name}: --launcher ps sets this variable", hint=f"remove -x {name}")


def helpers(placement: Placement, head: Node, servers: int) -> tuple[Helper, ...]:
    """Return the servers, on the run's hosts in turn, then the scheduler on the head.

    Raises InputError if ps-lite cannot use an address.
    """
    for node in (head, *placement.nodes):
        if ":" in node.address:
            raise InputError(
                f"--launcher ps: MXNet's parameter server supports IPv4 only, but {node.name} has {node.address}",
                hint="choose an IPv4 network with --network",
            )
    nodes = placement.nodes
    chosen = [nodes[number % len(nodes)] for number in range(servers)]
    return (
        *(Helper(role="server", node=node.name, address=node.address) for node in chosen),
        Helper(role="scheduler", node=head.name, address=head.address),
    )


def crowded(placement: Placement, behind: Sequence[Helper]) -> str | None:
    """Return a warning if a host gets more servers than cores (or slots, if it has more of those), or None.

    Servers hold no slot. How many of them work well beside the workers varies, but not more than there are cores. A
    dry run contacts no host and knows only the slots.
    """
    counts = Counter(helper.node for helper in behind if helper.role == "server")
    for node in placement.nodes:
        room, what = (node.cores, "core") if node.cores >= node.slots else (node.slots, "slot")
        if counts[node.name] > room:
            hosts = f"{len(placement.nodes)} host{'s' if len(placement.nodes) > 1 else ''}"
            return (
                f"{counts.total()} servers on {hosts} put {counts[node.name]} on {node.name}, "
                f"which has {room} {what}{'s' if room > 1 else ''} for them and its workers"
            )
    return None


def hostfile(placement: Placement, behind: Sequence[Helper]) -> str:
    """Return the hostfile for mpirun's mapper `seq`: one address on each line, in the order of ranks."""
    pairs = zip(placement.nodes, placement.counts, strict=True)
    addresses = [node.address for node, count in pairs for _ in range(count)]
    return "".join(f"{address}\n" for address in (*addresses, *(helper.address for helper in behind)))


def variables(placement: Placement, behind: Sequence[Helper], *, join: float | None) -> dict[str, str]:
    """Return the variables that are the same for all ranks."""
    scheduler = behind[-1]
    values = {WORKERS: str(placement.np), SERVERS: str(len(behind) - 1), ROOT: scheduler.address}
    if join is not None:
        values[JOIN] = f"{join:g}"
    return values
