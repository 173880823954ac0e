"""What nvidia-smi can see from where it runs: devices that can be opened, and the processes that use them."""

import errno
import os
import time
from typing import Dict, FrozenSet, List, NamedTuple, Sequence, Tuple

from pretended.models import Model, cuda_of
from pretended.state import State

UNKNOWN = "Failed to initialize NVML: Unknown Error"
NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA "
    "driver is installed and running.\n"
)
_SAMPLE_S = 0.2
# A process with these variables uses that many MiB of its GPUs, and that many percent.
MEMORY, LOAD = "KIT_PRETENDED_GPU_MEMORY", "KIT_PRETENDED_GPU_LOAD"
# A CUDA context takes about this much memory of a GPU.
_CONTEXT_MIB = 512
# What a run starts around its ranks' own programs. These would open no GPU.
_LAUNCHERS = frozenset(
    {
        *("bash", "dash", "sh", "env", "timeout", "nice", "setpriv", "tini", "docker-init", "sshd", "ssh"),
        *("mpirun", "mpiexec", "orted", "prted", "orterun", "torchrun", "_torchrun.py", "nvidia-smi"),
        *("kit-rank", "kit-launch", "kit-mpirun", "kit-node", "kit-role", "kit-torchrun", "kit-code", "kit-home"),
    }
)


class Failed(Exception):
    """What nvidia-smi prints before it ends with a code."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


class Process(NamedTuple):
    """A process that holds GPUs. `load` is its share of one core, from 0 to 100. Memory is in MiB.

    A launcher, such as a shell, would open no GPU: it has a load, but no memory of a GPU.
    """

    pid: int
    name: str
    memory: int
    load: int
    minors: FrozenSet[int]
    launcher: bool = False


class Gpu(NamedTuple):
    """A GPU that can be opened. `number` counts what can be opened here, and `minor` what the host has."""

    number: int
    minor: int
    uuid: str
    bus: str
    model: Model
    name: str
    driver: str
    total: int
    faults: FrozenSet[str]
    used: int = 0
    load: int = 0

    @property
    def lost(self) -> bool:
        return "xid:79" in self.faults

    @property
    def failed(self) -> bool:
        return "reset" in self.faults

    @property
    def throttled(self) -> bool:
        return "throttle" in self.faults

    @property
    def mig(self) -> bool:
        return "mig" in self.faults


class Machine(NamedTuple):
    """`processes` is empty in a container, where the real tool sees no process either."""

    state: State
    gpus: Tuple[Gpu, ...]
    processes: Tuple[Process, ...] = ()

    @property
    def cuda(self) -> str:
        return cuda_of(self.state.driver)


def minors(dev: str = "/dev") -> List[int]:
    """Return the numbers of the GPUs that have a node there."""
    try:
        names = os.listdir(dev)
    except OSError:
        return []
    return sorted(int(name[6:]) for name in names if name.startswith("nvidia") and name[6:].isdigit())


def opening(path: str) -> int:
    """Open a node. Return the error's number, or 0: a node without a driver answers ENXIO."""
    try:
        os.close(os.open(path, os.O_RDWR))
    except OSError as error:
        return error.errno or 0
    return 0


def usable(errors: Dict[int, int], control: int, *, unified: bool = False) -> List[int]:
    """Return the GPUs that NVML would find, from what opening each node and /dev/nvidiactl answered.

    The device cgroup of a container answers EPERM. On cgroup v2, the pretended hook cannot change that one, so that
    EPERM means nothing there.
    """
    denied = () if unified else (errno.EPERM, errno.EACCES)
    if control == errno.ENOENT:
        raise Failed(NO_DRIVER, 9)
    if control in denied:
        raise Failed(UNKNOWN, 255)
    return [minor for minor, error in sorted(errors.items()) if error not in denied and error != errno.ENOENT]


def named(environ: Dict[str, str], visible: Sequence[Tuple[int, Sequence[str]]]) -> FrozenSet[int]:
    """Return the GPUs, by minor, that a process with these variables computes on. `visible`: minors, and
    the UUIDs of each GPU and its MIG devices.

    Without CUDA_VISIBLE_DEVICES, a rank takes the GPU of its local rank, as Horovod scripts do.
    """
    choice = environ.get("CUDA_VISIBLE_DEVICES")
    local = environ.get("OMPI_COMM_WORLD_LOCAL_RANK", environ.get("LOCAL_RANK", ""))
    if choice is None and not local.isdigit():
        return frozenset()
    allowed = [minor for minor, _ in visible]
    if choice is not None:
        allowed = []
        for word in (part.strip() for part in choice.split(",")):
            at = int(word) if word.isdigit() else _by_uuid(word, visible)
            if not 0 <= at < len(visible):
                # CUDA ignores the rest, too.
                break
            allowed.append(visible[at][0])
    if local.isdigit() and allowed:
        allowed = [allowed[int(local) % len(allowed)]]
    return frozenset(allowed)


def _by_uuid(word: str, visible: Sequence[Tuple[int, Sequence[str]]]) -> int:
    if not word.startswith(("GPU-", "MIG-")):
        return -1
    matching = [at for at, (_, uuids) in enumerate(visible) if any(uuid.startswith(word) for uuid in uuids)]
    return matching[0] if len(matching) == 1 else -1


def launches(argv: Sequence[str]) -> bool:
    """Return whether a command only starts others: a shell, mpirun, or a program of kit, which Python may run."""
    program = os.path.basename(argv[0])
    if program.startswith("python"):
        scripts = [os.path.basename(word) for word in argv[1:] if not word.startswith("-")]
        program = scripts[0] if scripts else program
    return program in _LAUNCHERS


def processes(state: State, *, sampled: bool, proc: str = "/proc") -> Tuple[Process, ...]:
    """Return the processes that use a GPU, of those that can be seen here. `sampled`: measure their load."""
    users = []
    nodes: Dict[str, List[Tuple[int, Sequence[str]]]] = {}
    for word in os.listdir(proc):
        if not word.isdigit():
            continue
        try:
            users += _user(state, proc, word, nodes)
        except OSError:
            # It has ended, or is another user's.
            continue
    if not (sampled and any(user.load < 0 for user in users)):
        return tuple(user._replace(load=max(0, user.load)) for user in users)
    before = [_ticks(proc, user.pid) for user in users]
    began = time.monotonic()
    time.sleep(_SAMPLE_S)
    after = [_ticks(proc, user.pid) for user in users]
    ticks = os.sysconf("SC_CLK_TCK") * (time.monotonic() - began)
    return tuple(
        user._replace(load=max(0, min(100, round(100 * (end - start) / ticks)))) if user.load < 0 else user
        for user, start, end in zip(users, before, after)
    )


def _user(state: State, proc: str, pid: str, nodes: Dict[str, List[Tuple[int, Sequence[str]]]]) -> List[Process]:
    with open("%s/%s/environ" % (proc, pid), "rb") as file:
        words = file.read().decode(errors="replace").split("\0")
    environ = dict(word.split("=", 1) for word in words if "=" in word)
    if not {"CUDA_VISIBLE_DEVICES", "OMPI_COMM_WORLD_LOCAL_RANK", "LOCAL_RANK"} & set(environ):
        return []
    space = os.readlink("%s/%s/ns/mnt" % (proc, pid))
    if space not in nodes:
        nodes[space] = [(minor, state.uuids(minor)) for minor in minors("%s/%s/root/dev" % (proc, pid))]
    mine = named(environ, nodes[space])
    if not mine:
        return []
    with open("%s/%s/cmdline" % (proc, pid), "rb") as file:
        argv = file.read().decode(errors="replace").split("\0")[:-1]
    if not argv:
        return []
    with open("%s/%s/statm" % (proc, pid)) as text:
        resident = int(text.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20
    memory = environ.get(MEMORY, "")
    load = environ.get(LOAD, "")
    return [
        Process(
            pid=int(pid),
            name=argv[0],
            memory=0 if launches(argv) else int(memory) if memory.isdigit() else _CONTEXT_MIB + resident,
            load=int(load) if load.isdigit() else -1,
            minors=mine,
            launcher=launches(argv),
        )
    ]


def _ticks(proc: str, pid: int) -> int:
    try:
        with open("%s/%d/stat" % (proc, pid)) as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])


def gpus(state: State, devices: Sequence[int], users: Sequence[Process]) -> Tuple[Gpu, ...]:
    """Return the GPUs that can be opened, with what the processes do on them."""
    made = []
    for number, minor in enumerate(devices):
        mine = [user for user in users if minor in user.minors]
        faults = state.faults_of(minor)
        made.append(
            Gpu(
                number=number,
                minor=minor,
                uuid=state.uuid(minor),
                bus=state.bus(minor),
                model=state.facts,
                name=state.name,
                driver=state.driver,
                total=len(devices),
                faults=faults,
                used=min(state.facts.memory, 1 + sum(user.memory for user in mine)),
                load=min(100, sum(user.load for user in mine)),
            )
        )
    return tuple(made)


def look(state: State, *, sampled: bool) -> Machine:
    """Return what can be seen from here. Raise Failed as NVML would."""
    if any("driver-mismatch" in faults for _, faults in state.faults):
        library = ".".join(state.driver.split(".")[:2])
        raise Failed(
            "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: %s" % library, 18
        )
    errors = {minor: opening("/dev/nvidia%d" % minor) for minor in minors()}
    devices = usable(errors, opening("/dev/nvidiactl"), unified=state.unified)
    if not devices:
        raise Failed("No devices were found", 6)
    users = processes(state, sampled=sampled)
    outside = os.readlink("/proc/self/ns/pid") == state.pids
    apps = tuple(user for user in users if outside and not user.launcher)
    return Machine(state=state, gpus=gpus(state, devices, users), processes=apps)
