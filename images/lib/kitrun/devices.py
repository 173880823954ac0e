"""The GPUs and the cores of a rank, chosen from what its node has. kit-rank imports this in runs that need it.

A run holds GPUs of the node (KIT_HELD_SLOTS) or all of them. Its ranks see all that it holds, or each sees its own
share (KIT_GPUS_PER_RANK), by local rank. A rank with its own share may be bound to the cores near it (KIT_BIND_NEAR).
A run may hold some of the node's CPUs only (kitrun.cores).
"""

import os
import re
import subprocess
from typing import Dict, FrozenSet, List, MutableMapping, NamedTuple, Optional, Sequence, Tuple

from kitrun import cores
from kitrun.cores import cpu_list, read, siblings
from kitrun.once import once

HELD, SHARE, NEAR, REPORT, *_ = VARIABLES = (
    "KIT_HELD_SLOTS",
    "KIT_GPUS_PER_RANK",
    "KIT_BIND_NEAR",
    "KIT_REPORT_BINDINGS",
    *cores.VARIABLES,
)
VISIBLE = "CUDA_VISIBLE_DEVICES"
# Which of the visible GPUs `jax.distributed.initialize()` takes, by their places in VISIBLE.
OF_JAX = "JAX_LOCAL_DEVICE_IDS"
# The driver's control device. Every container with a GPU has it.
CONTROL = "/dev/nvidiactl"
# A GPU that has fallen off the bus can make nvidia-smi hang.
PATIENCE_S = 20
FIELDS = "uuid,pci.bus_id,index"

_GPU = re.compile(r"GPU \d+: .*\(UUID: (GPU-[0-9a-zA-Z-]+)\)")
_MIG = re.compile(r"\s+MIG .*\(UUID: (MIG-[0-9a-zA-Z/-]+)\)")
_NODE = re.compile(r"nvidia\d+$")
# nvidia-smi underlines the header of its topology.
_STYLE = re.compile(r"\x1b\[[0-9;]*m")


# The name of a GPU that kit's lab pretends ends with this. Each report about such a GPU says so.
PRETENDED = "(PRETENDED)"

NONE = "this node sees no GPU, and each rank gets %d for itself: run kit deploy if it has one, or use --gpus-per-rank 0"


class NoDevicesError(Exception):
    """The rank cannot have the GPUs that it should get. The text says why."""


class Device(NamedTuple):
    """What a rank can compute on: a GPU, or a MIG device of one.

    `name` is its UUID, or its number if nvidia-smi does not list it. `pci` is the GPU's bus id, 00000000:07:00.0, and
    `number` its number, both '' in that case.
    """

    name: str
    pci: str
    number: str


# In the place of a GPU that nvidia-smi leaves out because it is lost.
LOST = Device(name="", pci="", number="")


class Seat(NamedTuple):
    """The place of a rank among the ranks of its run on this node."""

    rank: str
    node: str
    local: int
    size: int
    # A server or the scheduler of a parameter server. It gets no GPU for itself.
    helper: bool


def take(environ: "MutableMapping[str, str]") -> str:
    """Show this rank its GPUs, and bind this process if the run says so. Return a line about it, or ''.

    Raises NoDevicesError.
    """
    held, share, near, report, *cpus = (environ.pop(name, "") for name in VARIABLES)
    seat = seat_of(environ)
    why = own_cpus(cpus, seat) if any(cpus) else ""
    share_of = 0 if seat.helper or not share.isdigit() else int(share)
    mine: Optional[List[Device]] = None
    bound = ""
    if VISIBLE not in environ:
        numbers = held_numbers(held, seat.node)
        if not os.path.exists(CONTROL):
            if share_of:
                raise NoDevicesError(NONE % share_of)
        elif numbers is not None or share_of:
            run = held_devices(devices(must=share_of > 0), numbers)
            mine = own_devices(run, seat, share_of)
            show(environ, mine)
            if share_of or len(mine) < len(run):
                # JAX would take the one whose place is the local rank, which this rank does not see.
                environ.setdefault(OF_JAX, ",".join(map(str, range(len(mine)))))
            if near and share_of:
                bound = bind(run, seat, share_of)
    if not report:
        return ""
    gpus = gpu_words(environ, mine)
    if os.path.exists(CONTROL) and PRETENDED in ask("-L")[0]:
        gpus = "%s %s" % (gpus, PRETENDED)
    return "rank %s on %s: %s; %s\n" % (seat.rank, seat.node, gpus, bound or core_words(why))


def seat_of(environ: "MutableMapping[str, str]") -> Seat:
    """Return the place of this rank, as torchrun or Open MPI describes it."""

    def number(*names: str) -> int:
        words = [environ[name] for name in names if environ.get(name, "").isdigit()]
        return int(words[0]) if words else -1

    prefix = "" if "KIT_AGENT" in environ else "OMPI_COMM_WORLD_"
    rank, workers = number(prefix + "RANK"), number("DMLC_NUM_WORKER")
    return Seat(
        rank=str(max(0, rank)),
        node=environ.get("KIT_NODE", "this machine"),
        local=max(0, number(prefix + "LOCAL_RANK")),
        size=max(1, number("LOCAL_WORLD_SIZE" if not prefix else prefix + "LOCAL_SIZE")),
        helper=-1 < workers <= rank,
    )


# GPUs


def held_numbers(text: str, node: str) -> "Optional[List[int]]":
    """Return the numbers of `gpu1=0,1 gpu2=1` for this node, or None if the run holds all of it."""
    held = dict(word.split("=", 1) for word in text.split() if "=" in word)
    numbers = held.get(node, "").split(",")
    return [int(number) for number in numbers] if all(number.isdigit() for number in numbers) else None


def devices(must: bool) -> "List[Device]":
    """Return the GPUs that this node sees, in nvidia-smi's order, with LOST in the place of a lost one.

    If nvidia-smi lists none, return numbers, or with `must` raise NoDevicesError if it failed.
    """
    text, error = ask("--query-gpu=%s,mig.mode.current" % FIELDS, "--format=csv,noheader")
    if "not a valid field" in error:
        # Drivers before 450 do not know MIG.
        text, error = ask("--query-gpu=%s" % FIELDS, "--format=csv,noheader")
    rows = [[word.strip() for word in line.split(",")] for line in text.splitlines()]
    rows = [row for row in rows if len(row) in (3, 4) and row[0].startswith("GPU-")]
    migs = mig_devices() if any(row[3:] == ["Enabled"] for row in rows) else {}
    result: List[Device] = []
    behind = 0
    for row in rows:
        if error and row[2].isdigit():
            # Those behind a lost GPU keep their numbers: other runs may hold them.
            result += [LOST] * (int(row[2]) - behind)
            behind = int(row[2]) + 1
        # A GPU with MIG cannot be used as a whole.
        names = migs.get(row[0], []) if row[3:] == ["Enabled"] else [row[0]]
        result += [Device(name=name, pci=row[1], number=row[2]) for name in names]
    if any(device.name for device in result):
        return result
    if error and must:
        raise NoDevicesError("nvidia-smi fails: %s" % error)
    count = sum(1 for name in os.listdir("/dev") if _NODE.match(name))
    return [Device(name=str(number), pci="", number="") for number in range(count)]


def mig_devices() -> "Dict[str, List[str]]":
    """Return the UUIDs of the MIG devices of each GPU that has some."""
    names: Dict[str, List[str]] = {}
    gpu = ""
    for line in ask("-L")[0].splitlines():
        whole, part = _GPU.match(line), _MIG.match(line)
        if whole:
            gpu = whole.group(1)
        elif part and gpu:
            names.setdefault(gpu, []).append(part.group(1))
    return names


def ask(*words: str) -> "Tuple[str, str]":
    """Return what nvidia-smi prints, and '' or its first line if it fails. A missing nvidia-smi prints nothing.

    One rank asks it for all ranks of the run on this node.
    """
    run = os.environ.get("KIT_RUN", "local")
    return once("%s nvidia-smi %s" % (run, " ".join(words)), seat_of(os.environ).size, lambda: answer_of(*words))


def answer_of(*words: str) -> "Tuple[str, str]":
    """Return what this call of nvidia-smi prints, and '' or its first line if it fails.

    It also fails after a whole answer, for example with code 14 if a GPU's infoROM is corrupted.
    """
    try:
        done = subprocess.run(
            ["timeout", str(PATIENCE_S), "nvidia-smi", *words],
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except OSError:
        return "", ""
    text = done.stdout.decode("utf-8", "replace")
    if done.returncode in (0, 127):
        return ("", "") if done.returncode else (text, "")
    if done.returncode == 124:
        return "", "it did not end within %d s" % PATIENCE_S
    return text, (text.strip().splitlines() or ["exit code %d" % done.returncode])[0]


def held_devices(there: "Sequence[Device]", numbers: "Optional[Sequence[int]]") -> "List[Device]":
    """Return the devices that the run holds on this node. Raises NoDevicesError if the node lacks one."""
    seen = [device for device in there if device.name]
    if numbers is None:
        return seen
    if not any(device.pci for device in there):
        return [Device(name=str(number), pci="", number="") for number in numbers]
    missing = [number for number in numbers if number >= len(there) or not there[number].name]
    if missing:
        text = "the run holds GPU %d of this node, which sees %d: run kit deploy" % (max(missing), len(seen))
        raise NoDevicesError(text)
    return [there[number] for number in numbers]


def own_devices(run: "Sequence[Device]", seat: Seat, share: int) -> "List[Device]":
    """Return what this rank gets of the run's devices: its share, or without one all of them.

    CUDA shows a process one MIG device only. So ranks that share MIG devices get one each.
    """
    mig = any(device.name.startswith("MIG-") for device in run)
    if mig and share > 1:
        raise NoDevicesError("each rank gets %d GPUs, but CUDA can use only one MIG device in a process" % share)
    if not share:
        return [run[seat.local % len(run)]] if mig else list(run)
    mine = list(run[seat.local * share : (seat.local + 1) * share])
    if len(mine) < share:
        text = "%d ranks on this node get %d each for themselves, but it sees %s: start fewer ranks, or run kit deploy"
        there = "%d GPU%s" % (len(run), "" if len(run) == 1 else "s") if run else "no GPU"
        raise NoDevicesError(text % (max(seat.size, seat.local + 1), share, there))
    return mine


def show(environ: "MutableMapping[str, str]", mine: "Sequence[Device]") -> None:
    environ[VISIBLE] = ",".join(device.name for device in mine)
    if not any(device.pci for device in mine):
        # CUDA's own order begins with the fastest GPU, and kit's numbers are nvidia-smi's.
        environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")


# Cores


def own_cpus(variables: "Sequence[str]", seat: Seat) -> str:
    """Bind this process to the CPUs of its run here. Return why, in words. Raises NoDevicesError."""

    def near(slots: int) -> "List[FrozenSet[int]]":
        there = devices(must=False) if os.path.exists(CONTROL) else []
        return near_slots(near_cores(there), slots) if any(device.pci for device in there) else []

    try:
        return cores.take(variables, seat.node, seat=(seat.local, seat.size), near=near)
    except cores.TooFewError as error:
        raise NoDevicesError(str(error)) from None


def near_slots(gpus: "Sequence[FrozenSet[int]]", slots: int) -> "List[FrozenSet[int]]":
    """Return the CPUs near the GPUs of each slot. Slots divide GPUs as in kit.plan.run.gpus."""
    sides = []
    for slot in range(slots):
        first = slot * len(gpus) // slots
        mine = gpus[first : max(first + 1, (slot + 1) * len(gpus) // slots)]
        sides.append(frozenset().union(*mine) if all(mine) else frozenset())
    return sides


def bind(run: "Sequence[Device]", seat: Seat, share: int) -> str:
    """Bind this process to its part of the cores near its GPUs. Return its cores, in words."""
    allowed = frozenset(os.sched_getaffinity(0))
    near = near_cores(run)
    ranks = min(seat.size, len(run) // share)
    sides = [frozenset().union(*near[local * share : (local + 1) * share]) & allowed for local in range(ranks)]
    side = sides[seat.local] if seat.local < ranks else frozenset()
    if not side:
        return core_words("not bound: the cores near its GPU are not known")
    if side == allowed:
        return core_words("not bound: all of them are near its GPU")
    alike = [local for local in range(ranks) if sides[local] == side]
    os.sched_setaffinity(0, part(side, alike.index(seat.local), len(alike)))
    return core_words("near its GPU")


def part(cpus: "FrozenSet[int]", index: int, ranks: int) -> "FrozenSet[int]":
    """Return one rank's part of the CPUs: whole cores, all of which differ from those of the other ranks.

    If there are more ranks than cores, return all.
    """
    whole = sorted({min(siblings(cpu) & cpus or {cpu}): siblings(cpu) & cpus or {cpu} for cpu in cpus}.items())
    if len(whole) < ranks:
        return cpus
    first, last = index * len(whole) // ranks, (index + 1) * len(whole) // ranks
    return frozenset().union(*(threads for _, threads in whole[first:last]))


def near_cores(run: "Sequence[Device]") -> "List[FrozenSet[int]]":
    """Return the CPUs near each device: from the PCI bus, else from nvidia-smi. Empty if neither knows them."""
    near = [bus_cores(device.pci) for device in run]
    if not all(near):
        affinity = topology(ask("topo", "-m")[0])
        near = [cpus or affinity.get("GPU" + device.number, cpus) for cpus, device in zip(near, run)]
    return near


def bus_cores(pci: str) -> "FrozenSet[int]":
    """Return the CPUs near a PCI device. Without NUMA information, the kernel's list has all CPUs: return none."""
    # nvidia-smi writes 00000000:07:00.0, the kernel 0000:07:00.0.
    folder = "%s/bus/pci/devices/%s" % (cores.SYS, pci.lower()[-12:])
    return frozenset() if read(folder + "/numa_node").startswith("-") else cpu_list(read(folder + "/local_cpulist"))


def topology(text: str) -> "Dict[str, FrozenSet[int]]":
    """Return the column CPU Affinity of `nvidia-smi topo -m`, by GPU0, GPU1, …"""
    rows = [[cell.strip() for cell in line.split("\t")] for line in _STYLE.sub("", text).splitlines()]
    header = next((row for row in rows if "CPU Affinity" in row), [])
    column = header.index("CPU Affinity") if header else 0
    return {row[0]: cpu_list(row[column]) for row in rows if header and row is not header and len(row) > column}


# Words


def gpu_words(environ: "MutableMapping[str, str]", mine: "Optional[Sequence[Device]]") -> str:
    """Return which GPUs the rank sees."""
    if mine is None and VISIBLE in environ:
        return "GPUs as CUDA_VISIBLE_DEVICES says: %s" % (environ[VISIBLE] or "none")
    if mine is None:
        return "all GPUs of the node" if os.path.exists(CONTROL) else "no GPU"
    names = ", ".join(device.name for device in mine)
    return ("GPU %s" if len(mine) == 1 else "GPUs %s") % names


def core_words(why: str) -> str:
    """Return the cores that this process may use."""
    cpus = sorted(os.sched_getaffinity(0))
    starts = [cpu for cpu in cpus if cpu - 1 not in cpus]
    ends = [cpu for cpu in cpus if cpu + 1 not in cpus]
    spans = [str(first) if first == last else "%d-%d" % (first, last) for first, last in zip(starts, ends)]
    return "cores " + ",".join(spans) + (" (%s)" % why if why else "")
