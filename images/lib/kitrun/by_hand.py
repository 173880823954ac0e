"""Ranks that a person starts with mpirun in a shell of the head, without `kit run`.

kit-mpirun is the first mpirun in PATH, so this runs before Open MPI's. It gives the processes a mark, so that `kit ps`
counts them and `kit stop` ends them. It takes a lease on their slots, so that `kit run` does not use them. It lets
mpirun end with the shell. And it lets kit-rank set the variables by which PyTorch and JAX find the other ranks, as in a
run. Runs of kit, and containers that are not the head of a cluster, get none of this.
"""

import contextlib
import fcntl
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from kitrun import fence, leases, rendezvous, store

OURS = "kit-mpirun"
RECORD = "/etc/kit/cluster.json"
# What `kit run` shows as the holder of the slots.
BY = "a shell in the head"
# Open MPI prints the map without contacting a host, in less than 0.3 s.
MAP = ("--do-not-launch", "--display-map")
MAP_S = 20.0
MAPPED = re.compile(r"^ *Data for node: (\S+)\s.*Num procs: (\d+)|^\s*Process .*\bProcess rank: (\d+)\b", re.MULTILINE)
# Open MPI's daemons start each rank with this in front of its command (images/bin/kit-rank).
KIT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
RANK = "python3 -IS %s --variables" % os.path.join(KIT, "bin", "kit-rank")
# What the daemons on the nodes get from this process, as far as a shell and Open MPI pass it on unchanged.
GIVEN = ("KIT_RUN", rendezvous.PLACES, rendezvous.ADDRESS, rendezvous.PORT)
PLAIN = re.compile(r"[\w.:,=% -]+")
PR_SET_PDEATHSIG = 1

Place = Dict[str, Any]


def main(argv: Sequence[str]) -> None:
    """Become Open MPI's program of this name."""
    fence.close()
    name = os.path.basename(argv[0])
    program = real(name)
    if program is None:
        sys.exit("%s: not found" % name)
    if "KIT_RUN" not in os.environ and os.path.exists(RECORD):
        begin(program, name, argv[1:])
    # The first word has no folder: Open MPI would take that for its prefix, and change the PATH of the ranks.
    os.execv(program, [name, *argv[1:]])  # noqa: S606  (an argv, no shell)


def real(name: str) -> Optional[str]:
    """Return the first program of this name in PATH that is not kit-mpirun, or None."""
    for folder in os.environ.get("PATH", "").split(":"):
        file = os.path.join(folder, name)
        if os.path.basename(os.path.realpath(file)) != OURS and os.path.isfile(file) and os.access(file, os.X_OK):
            return file
    return None


def begin(program: str, name: str, arguments: Sequence[str]) -> None:
    """Mark this process, take the lease, and end with the parent. mpirun gets all this from this process."""
    run = "by-hand-%d" % os.getpid()
    nodes = (store.read(RECORD) or {}).get("nodes", [])
    ranks = mapped(job_map(program, name, arguments), nodes, os.uname().nodename)
    if ranks:
        lease(run, ranks, nodes, [name, *arguments])
    os.environ["KIT_RUN"] = run
    meet(ranks, nodes)
    # The daemons on the nodes pass their environment on to the ranks there. A launch agent on the command line wins.
    os.environ.setdefault("OMPI_MCA_orte_launch_agent", agent(os.environ))
    os.environ.setdefault("OMPI_MCA_orte_fork_agent", RANK)
    end_with_parent()


def job_map(program: str, name: str, arguments: Sequence[str]) -> str:
    """Return what Open MPI prints about where it would start ranks; '' if it reports nothing."""
    try:
        done = subprocess.run(
            [name, *MAP, *arguments],
            executable=program,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=MAP_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace")


def mapped(text: str, nodes: Sequence[Mapping[str, Any]], host: str) -> Dict[str, int]:
    """Return the number of ranks of each node of the cluster in Open MPI's map, the node of rank 0 first.

    `host` is this node's own name, the head's.
    """
    names = {"localhost": 0, "127.0.0.1": 0, host: 0, host.partition(".")[0]: 0}
    for index, node in enumerate(nodes):
        names[str(node.get("address"))] = names[str(node.get("name"))] = index
    ranks, lowest = {}, {}  # type: Dict[str, int], Dict[str, int]
    name = None  # type: Optional[str]
    for shown, count, rank in MAPPED.findall(text):
        if shown:
            name = str(nodes[names[shown]]["name"]) if shown in names and nodes else None
        if name is not None and shown:
            ranks[name] = ranks.get(name, 0) + int(count)
        elif name is not None:
            lowest[name] = min(lowest.get(name, int(rank)), int(rank))
    return {name: ranks[name] for name in sorted(ranks, key=lambda name: lowest.get(name, sys.maxsize))}


def meet(ranks: Mapping[str, int], nodes: Sequence[Mapping[str, Any]]) -> None:
    """Choose where the ranks meet, for as long as this process lives. Without a free port, mpirun still starts."""
    addresses = {str(node["name"]): str(node["address"]) for node in nodes}
    slices = [{"node": name, "address": addresses[name], "ranks": count} for name, count in ranks.items()]
    try:
        holder = rendezvous.prepare(os.environ, slices, head=str(nodes[0]["name"]) if nodes else "", used=set())
    except OSError as error:
        sys.stderr.write("kit: the ranks get no MASTER_PORT: %s\n" % (error.strerror or error))
        return
    if holder is not None:
        # mpirun keeps it until it ends, like the lock of the lease.
        os.set_inheritable(holder.detach(), True)


def agent(environ: Mapping[str, str]) -> str:
    """Return the command that starts Open MPI's daemon on a node, with the variables that it needs there."""
    given = ["%s=%s" % (name, environ[name]) for name in GIVEN if PLAIN.fullmatch(environ.get(name, ""))]
    return "env %s orted" % " ".join(shlex.quote(word) for word in given)


def lease(run: str, ranks: Mapping[str, int], nodes: Sequence[Mapping[str, Any]], command: List[str]) -> None:
    """Hold slots as long as this process lives. Without a lease, for example on a full disk, mpirun still starts."""
    with contextlib.suppress(OSError), leases.starting():
        folder = leases.hand_folder()
        os.makedirs(folder, mode=0o700, exist_ok=True)
        for name in os.listdir(folder):
            if not store.locked(os.path.join(folder, name)):
                os.unlink(os.path.join(folder, name))
        held = set()  # type: set[Tuple[str, int]]
        for holder in leases.held():
            held.update(leases.slots_of(holder["places"]))
        record = {"id": run, "by": BY, "command": command, "started": time.time(), "places": places(ranks, nodes, held)}
        file = os.open(os.path.join(folder, run), os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        fcntl.flock(file, fcntl.LOCK_EX)
        os.write(file, json.dumps(record).encode())
        # mpirun keeps the lock until it ends. It closes the file in the processes that it starts.
        os.set_inheritable(file, True)


def places(ranks: Mapping[str, int], nodes: Sequence[Mapping[str, Any]], held: "set[Tuple[str, int]]") -> List[Place]:
    """Return the places of the ranks, on free slots as far as there are any. More ranks than slots hold all slots."""
    result = []
    for node in nodes:
        name, count = str(node["name"]), ranks.get(str(node["name"]), 0)
        if count:
            slots = sorted(range(int(node.get("slots", 0))), key=lambda slot: ((name, slot) in held, slot))
            result.append({"node": name, "address": str(node["address"]), "ranks": count, "slots": slots[:count]})
    return result


def end_with_parent() -> None:
    """Let the kernel send TERM when the shell that started this has ended. A command under nohup goes on."""
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        return
    # Imported only here, because it is slow to import, and not every Python has it.
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes

        parent = os.getppid()
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
        if os.getppid() != parent:
            sys.exit(128 + signal.SIGTERM)
