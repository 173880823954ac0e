"""Writes the command line of mpirun (Open MPI 4.1) and the hostfile. Only this module knows Open MPI's options."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from kit.model import names
from kit.model.launch import Helper, LaunchPlan, Placement, RunPolicy
from kit.model.run import Place
from kit.model.spec import ClusterSpec
from kit.plan.run import allreduce, cores, gpus, roles, terminal

# The supervisor keeps runs and writes the hostfile here, in the head's container (images/lib/kitrun/store.py).
RUNS_FOLDER = names.RUNS_MOUNT
# Runs a rank and forwards whole lines: mpirun mixes the lines of busy ranks, and its --tag-output loses some.
# -I and -S ignore the rank's PYTHONPATH and site-packages, and halve the start-up time.
RELAY = ("python3", "-IS", f"{names.IMAGE_BIN}/kit-rank")
# Runs torchrun on a host, with the same program around each of its ranks.
AGENT = ("python3", "-IS", f"{names.IMAGE_BIN}/kit-torchrun")
# Marks every process of a run with torchrun: Open MPI's rank of a process is that of its host's torchrun.
AGENT_VARIABLE = "KIT_AGENT"
# Marks every process of a run on every host. Stopping and counting look for this mark, so they hit nothing else.
RUN_VARIABLE = "KIT_RUN"
# The head sets these: the number of the attempt, from 1, and the folders for what the ranks make. kit-rank makes the
# folders on each node.
CHECKPOINTS = names.CHECKPOINTS_VARIABLE
SUPERVISORS = ("KIT_ATTEMPT", "KIT_OUTPUT_DIR", CHECKPOINTS)
# The supervisor sets these: where the ranks meet, on the host of rank 0 (images/lib/kitrun/rendezvous.py). From them,
# kit-rank sets RANK and the other variables of a rank.
MEETING = ("KIT_PLACES", "MASTER_ADDR", "MASTER_PORT")
# The working folder of the ranks, if the run has code. kit-code seeds it before mpirun's daemon starts on a node.
WORK_VARIABLE = "KIT_WORKDIR"
SEED = ("python3", "-IS", f"{names.IMAGE_BIN}/kit-code")
# The GPUs that the run holds on nodes where it does not hold all: nvidia-smi's numbers, which kit-rank shows to the
# ranks. The slots themselves on nodes where kit knows of no GPU.
SLOTS_VARIABLE = "KIT_HELD_SLOTS"
# Set if the background processes of a rank may continue after it.
LEAVE_VARIABLE = "KIT_LEAVE"
# When a run fails, mpirun would sleep for a second or more between TERM and KILL, even if no rank is left. For a run
# that is stopped, the supervisor has already waited.
KILL_AT_ONCE = (("odls_base_sigkill_timeout", "0"),)
# Open MPI then notices a cut link within a minute: it probes an idle connection after 10 s, and 5 times more.
KEEPALIVE = (("oob_tcp_keepalive_time", "10"), ("oob_tcp_keepalive_intvl", "6"), ("oob_tcp_keepalive_probes", "5"))

# Words of mpirun's command line that set a parameter.
MCA_FLAGS = ("--mca", "-mca", "--gmca", "-gmca")
# Where the ranks listen if nobody set btl_tcp_port_min_v4, and the last port.
FIRST_PORT, LAST_PORT = 1024, 65535

# Ranks of one host copy through shared memory. Single-copy methods need ptrace rights, which containers lack.
TRANSPORTS = (("pml", "ob1"), ("btl", "tcp,self,vader"), ("btl_vader_single_copy_mechanism", "none"))


def hostfile(placement: Placement) -> str:
    """Return Open MPI's hostfile: `address slots=N` on each line, where N is the number of ranks there."""
    pairs = zip(placement.nodes, placement.counts, strict=True)
    return "".join(f"{node.address} slots={count}\n" for node, count in pairs)


def mca(network: str | None, run_id: str = "", code: str = "", data: Sequence[str] = ()) -> tuple[tuple[str, str], ...]:
    """Return the MCA parameters of a launch. `network` is for both channels of Open MPI: btl (data), oob (launch).

    `code` is the digest of the snapshot from which each node seeds the run's working folder, or ''. `data` are other
    networks for the data.
    """
    channels = (("btl_tcp_if_include", ",".join(data) or network), ("oob_tcp_if_include", network))
    both = tuple((name, value) for name, value in channels if value)
    # Only the head starts daemons, so only the head needs a key.
    launch = (("plm_rsh_no_tree_spawn", "1"), ("plm_rsh_num_concurrent", "256"))
    # The daemons on the nodes have the run's mark, too.
    agent = " ".join([*SEED, run_id, code, "orted"]) if code else f"env {RUN_VARIABLE}={run_id} orted"
    marked = (("orte_launch_agent", agent),) if run_id else ()
    return (*TRANSPORTS, *both, *launch, *KEEPALIVE, *KILL_AT_ONCE, *marked)


def listening_ports(args: Sequence[str]) -> tuple[tuple[str, range], ...]:
    """Return where Open MPI listens if it does not use ephemeral ports: who does, and the range.

    `args` are the user's own arguments. Ranks take the first free port of theirs, by default from 1024.
    """
    known = {args[at + 1]: args[at + 2] for at, word in enumerate(args[:-2]) if word in MCA_FLAGS}
    first, count = _whole(known.get("btl_tcp_port_min_v4", "")), _whole(known.get("btl_tcp_port_range_v4", ""))
    first = first or FIRST_PORT
    ranks = range(first, min(first + (count or LAST_PORT), LAST_PORT + 1))
    made = [("the ranks of MPI", ranks)] if ranks else []
    for name in ("oob_tcp_static_ipv4_ports", "oob_tcp_dynamic_ipv4_ports"):
        # `10000-10099,10200`: the first part is enough to see whether a firewall knows of it.
        low, _, high = known.get(name, "").partition(",")[0].partition("-")
        if _whole(low):
            made.append(("the daemons of mpirun", range(_whole(low), min(_whole(high) or _whole(low), LAST_PORT) + 1)))
    return tuple(made)


def words_of(command: Sequence[str]) -> tuple[str, ...]:
    """Return the command as mpirun takes it: a word `:` would end it, and begin another program."""
    return ("sh", "-c", f"exec {shlex.join(command)}") if ":" in command else tuple(command)


def _whole(word: str) -> int:
    return int(word) if word.isascii() and word.isdigit() and len(word) < 6 else 0


def yields(spec: ClusterSpec, placement: Placement, cpus: int = 0) -> bool:
    """Return whether waiting ranks give up their core: as kit.yaml says, or if a node has more ranks than cores.

    `cpus` is how many CPUs the run may use on each host, or 0.
    """
    if spec.mpi.yield_when_idle != "auto":
        return spec.mpi.yield_when_idle
    pairs = zip(placement.nodes, placement.counts, strict=True)
    return any((node.cores and count > node.cores) or 0 < cpus < count for node, count in pairs)


def binding(spec: ClusterSpec) -> str:
    """Return mpirun's --bind-to. With auto, kit-rank binds ranks that have GPUs for themselves."""
    return "none" if spec.mpi.bind_to == "auto" else spec.mpi.bind_to


def launch_plan(
    *,
    run_id: str,
    spec: ClusterSpec,
    placement: Placement,
    network: str | None,
    command: Sequence[str],
    env: Mapping[str, str],
    forward: Sequence[str] = (),
    oversubscribe: bool = False,
    places: Sequence[Place] = (),
    policy: RunPolicy | None = None,
    helpers: Sequence[Helper] = (),
    code: str = "",
    workdir: str = "",
    torchrun: bool = False,
    elastic: bool = False,
    in_terminal: bool = False,
    devices: Mapping[str, str] = MappingProxyType({}),
    data: Sequence[str] = (),
) -> LaunchPlan:
    """Return the launch as data. `env` is set for every rank; `forward` names variables of the head.

    `devices` are the variables by which kit-rank chooses GPUs and CPUs (kit.plan.run.gpus, kit.plan.run.cores).

    `data` are networks for the data of MPI, in place of `network`, which then only starts the ranks.

    `code` is the digest of the snapshot in whose copy the ranks start, or ''. `workdir` is a folder in it, or ''.
    `in_terminal`: the command gets a terminal, so rank 0 only holds the slot (images/lib/kitrun/terminal.py).

    With `torchrun`, mpirun starts one torchrun on each host, and torchrun starts the ranks there. With `elastic`, no
    mpirun will start the ranks (kit.plan.run.elastic), and nobody reads its arguments in kit.yaml.

    With `helpers`, the ranks are the workers of a parameter server, and the helpers follow them (kit.plan.run.roles).
    """
    policy = policy or RunPolicy()
    if (torchrun or elastic) and binding(spec) != "none":
        # All ranks of a host would inherit the CPUs to which mpirun binds their torchrun, and an elastic run has no
        # mpirun. So kit-rank binds each rank.
        devices = {**devices, cores.BIND_VARIABLE: binding(spec)}
    argv = ["mpirun", "--allow-run-as-root", *_processes(placement, helpers, torchrun=torchrun)]
    argv += ["--hostfile", f"{_folder(run_id)}/hostfile"]
    argv += ["--map-by", "seq" if helpers else "ppr:1:node" if torchrun else "slot"]
    argv += ["--bind-to", "none" if cores.BIND_VARIABLE in devices else binding(spec)]
    if code:
        argv += ["--wdir", "/".join([_folder(run_id), names.WORK, *filter(None, [workdir])])]
    chosen = allreduce.parameters(spec, placement, (*env, *forward))
    share = int(devices.get(cores.COUNT_VARIABLE, "0"))
    idle = (("mpi_yield_when_idle", "1"),) if yields(spec, placement, share) else ()
    for name, value in (*mca(network, run_id, code, data), *chosen, *idle):
        argv += ["--mca", name, value]
    if oversubscribe:
        argv += ["--oversubscribe"]
    # A user cannot replace the run's mark.
    ours = {RUN_VARIABLE: run_id, **held_slots(places, placement), **devices}
    ours |= _manner(run_id, placement, policy, helpers, code=bool(code), torchrun=torchrun)
    variables = {**ours, **{name: value for name, value in env.items() if name not in ours}}
    supervisors = (*SUPERVISORS, *([roles.ROOT_PORT] if helpers else MEETING))
    for name in (*variables, *(f for f in (*supervisors, *forward) if f not in variables)):
        argv += ["-x", name]
    argv += [] if elastic else spec.mpi.args
    # The words of an elastic run are for kit-elastic.
    words = terminal.HOLD if in_terminal else tuple(command) if elastic else words_of(command)
    argv += [*_wrapper(helpers, torchrun=torchrun), *words]
    return LaunchPlan(
        run_id=run_id,
        placement=placement,
        hostfile=roles.hostfile(placement, helpers) if helpers else hostfile(placement),
        argv=tuple(argv),
        env=dict(variables),
        command=tuple(command),
        places=tuple(places),
        policy=policy,
        helpers=tuple(helpers),
        code=code,
        torchrun=torchrun,
    )


def _folder(run_id: str) -> str:
    return f"{RUNS_FOLDER}/{run_id}"


def _manner(
    run_id: str, placement: Placement, policy: RunPolicy, helpers: Sequence[Helper], *, code: bool, torchrun: bool
) -> dict[str, str]:
    """Return the variables by which the programs around a rank know where it starts, what it is, and how it ends."""
    values = {WORK_VARIABLE: f"{_folder(run_id)}/{names.WORK}"} if code else {}
    if helpers:
        values |= roles.variables(placement, helpers, join=policy.start_timeout)
    if torchrun:
        values[AGENT_VARIABLE] = "torchrun"
    if not policy.clean:
        values[LEAVE_VARIABLE] = "1"
    return values


def _wrapper(helpers: Sequence[Helper], *, torchrun: bool) -> tuple[str, ...]:
    """Return the words that mpirun starts before those of the command."""
    if torchrun:
        return AGENT
    return (*RELAY, *roles.WRAPPER) if helpers else RELAY


def _processes(placement: Placement, helpers: Sequence[Helper], *, torchrun: bool) -> tuple[str, ...]:
    """Return the words for the number of processes that mpirun starts, and for the one that gets standard input."""
    if not torchrun:
        return "-np", str(placement.np + len(helpers))
    # mpirun would give it to the torchrun of the first host. But torchrun numbers the hosts in the order of their
    # addresses, as text, so rank 0 may be on another one.
    nodes = placement.nodes
    first = min(range(len(nodes)), key=lambda number: nodes[number].address)
    return "-np", str(len(nodes)), "--stdin", str(first)


def held_slots(places: Sequence[Place], placement: Placement) -> dict[str, str]:
    """Return KIT_HELD_SLOTS (`gpu1=0 gpu2=0,1`) if the run does not hold all GPUs, or slots, of a node.

    A node with MIG is always there: CUDA shows a process one MIG device only, so kit-rank must deal them to the ranks.
    """
    numbers = {place.node: place.slots for place in places} | gpus.held(placement, places)
    whole = {node.name: 0 if node.mig else node.gpus or node.slots for node in placement.nodes}
    partly = [name for name, held in numbers.items() if len(held) < whole[name] or not whole[name]]
    words = [f"{name}={','.join(map(str, numbers[name]))}" for name in partly]
    return {SLOTS_VARIABLE: " ".join(words)} if words else {}
