"""pretended-gpus: makes a lab host's GPUs when it starts, shows them, and changes their faults.

pretended-gpus boot                     from the variables KIT_LAB_GPUS, KIT_LAB_GPU_MODEL, … of the host
pretended-gpus show                     the state, as JSON
pretended-gpus fault NUMBER FAULT       xid:N, ecc, reset, throttle, lost, mig, busy, driver-mismatch
pretended-gpus mend NUMBER|all
pretended-gpus toolkit KIND [--restart] hook, runtime, swarm, cdi, base, snap, none
"""

import contextlib
import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from typing import Dict, Iterator, List

from pretended import container, toolkit
from pretended.machine import LOAD, MEMORY, minors
from pretended.models import DRIVER, MODELS
from pretended.state import FOLDER, State, dumped, load, save

KERNEL_LOG = "/var/log/kern.log"
LOCK = "/run/pretended-gpus.lock"
FAULTS = ("ecc", "reset", "throttle", "lost", "mig", "busy", "driver-mismatch")
_XID = re.compile(r"xid:([1-9][0-9]{0,2})")
_XIDS = {
    13: "Graphics Exception: ESR 0x504730=0xe",
    31: "MMU Fault: ENGINE GRAPHICS faulted @ 0x7f2c_10000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ",
    48: "DBE (double bit error) ECC Error",
    63: "Row Remapper: New row marked for remapping, reset gpu to activate.",
    74: "NVLink: fatal error detected on link 2",
    79: "GPU has fallen off the bus.",
    94: "Contained: HBM error",
    154: "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
}
_BUSY = "KIT_PRETENDED_GPU_BUSY"
_USER = 1000


class Refused(Exception):
    """What cannot be done to this host's GPUs."""


def checked(state: State, number: int, fault: str) -> None:
    """Raise Refused if the GPU cannot have this fault."""
    if not 0 <= number < state.total:
        raise Refused("this host has the GPUs 0 to %d" % (state.total - 1))
    if not (fault in FAULTS or _XID.fullmatch(fault)):
        raise Refused("no such fault: %s" % fault)
    if fault == "mig" and not state.facts.mig:
        raise Refused("a %s has no MIG" % state.facts.name)
    if fault == "lost" and state.unified:
        raise Refused("this machine has cgroup v2, where a program cannot take a device from a running container")


def kernel_line(state: State, number: int, xid: int, now: float) -> str:
    """Return what the driver writes into the kernel log for an Xid. `now` is the time since the start."""
    address = state.bus(number)[4:-2]
    text = _XIDS.get(xid, "Error")
    return "[%12.6f] NVRM: Xid (PCI:%s): %d, pid='<unknown>', name=<unknown>, %s" % (now, address, xid, text)


def xid_of(fault: str) -> int:
    """Return the Xid that a fault leaves in the kernel log, or 0."""
    match = _XID.fullmatch(fault)
    return int(match.group(1)) if match else {"ecc": 48, "reset": 154}.get(fault, 0)


def _log(state: State, number: int, fault: str) -> None:
    xid = xid_of(fault)
    if xid:
        with open("/proc/uptime") as uptime:
            line = kernel_line(state, number, xid, float(uptime.read().split()[0]))
        with open(KERNEL_LOG, "a") as file:
            file.write(
                "%s %s kernel: %s\n"
                % (time.strftime("%Y-%m-%dT%H:%M:%S.000000+00:00", time.gmtime()), state.host, line)
            )


def _forget(state: State, number: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        with open(KERNEL_LOG) as file:
            lines = [line for line in file if "(PCI:%s)" % state.bus(number)[4:-2] not in line]
        with open(KERNEL_LOG, "w") as file:
            file.writelines(lines)


def holders() -> Dict[str, List[int]]:
    """Return the device cgroup of each running container with GPU nodes, and the nodes' numbers."""
    own = container.device_cgroup(os.getpid())
    cgroups: Dict[str, List[int]] = {}
    for word in os.listdir("/proc"):
        if not word.isdigit():
            continue
        with contextlib.suppress(OSError):
            folder = container.device_cgroup(int(word))
            if folder is None or folder == own or folder in cgroups:
                continue
            if os.path.exists("/proc/%s/root/dev/nvidiactl" % word):
                cgroups[folder] = minors("/proc/%s/root/dev" % word)
    return cgroups


def permit_all(*, allow: bool) -> int:
    """Give the running containers their GPUs, or take them away as `systemctl daemon-reload` does."""
    cgroups = holders()
    for folder, numbers in cgroups.items():
        container.permit(folder, numbers, allow=allow)
    return len(cgroups)


def lost() -> int:
    """Return how many running containers have nodes of GPUs that they may not open."""
    denied = 0
    for folder in holders():
        with open(os.path.join(folder, "devices.list")) as file:
            denied += "c %d:255 " % container.MAJOR not in file.read()
    return denied


def _start_busy(state: State, number: int) -> None:
    """Start a process of the user ubuntu that holds the GPU. It sleeps: its load is pretended, too."""
    environ = {
        "CUDA_VISIBLE_DEVICES": str(number),
        MEMORY: str(state.facts.memory // 4),
        LOAD: "97",
        _BUSY: str(number),
    }

    def become() -> None:
        os.setgroups([])
        os.setgid(_USER)
        os.setuid(_USER)

    subprocess.Popen(
        ["/home/ubuntu/venv/bin/python", "infinity"],
        executable="/usr/bin/sleep",
        env=environ,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=become,  # noqa: PLW1509  (one thread)
    )


def _busy_pids(number: int) -> Iterator[int]:
    mark = ("%s=%d" % (_BUSY, number)).encode()
    for word in os.listdir("/proc"):
        if word.isdigit():
            with contextlib.suppress(OSError), open("/proc/%s/environ" % word, "rb") as file:
                if mark in file.read().split(b"\0"):
                    yield int(word)


def fault(state: State, number: int, kind: str) -> State:
    """Return the state with the fault, and do what belongs to it on the host."""
    checked(state, number, kind)
    if kind == "lost":
        if not permit_all(allow=False):
            raise Refused("no running container has a GPU")
        return state
    _log(state, number, kind)
    if kind == "busy" and kind not in state.faults_of(number):
        _start_busy(state, number)
    return state.with_faults(number, state.faults_of(number) | {kind})


def mend(state: State, number: int) -> State:
    """Return the state without faults of the GPU. Running containers get their GPUs back."""
    for pid in _busy_pids(number):
        os.kill(pid, signal.SIGTERM)
    _forget(state, number)
    permit_all(allow=True)
    return state.with_faults(number, frozenset())


def boot() -> State:
    """Make the GPUs that the host's variables ask for, before its engine starts. Faults outlive a restart."""
    environ = os.environ
    try:
        faults = load().faults
    except FileNotFoundError:
        faults = ()
    state = State(
        host=socket.gethostname(),
        model=environ.get("KIT_LAB_GPU_MODEL", "h200"),
        total=int(environ["KIT_LAB_GPUS"]),
        driver=environ.get("KIT_LAB_GPU_DRIVER", DRIVER),
        pids=os.readlink("/proc/self/ns/pid"),
        unified=container.device_cgroup(os.getpid()) is None,
        faults=faults,
    )
    if state.model not in MODELS:
        raise Refused("no such model: %s" % state.model)
    save(state)
    container.make_nodes("", range(state.total))
    for program in ("nvidia-smi", "dmesg"):
        place = "/usr/bin/nvidia-smi" if program == "nvidia-smi" else "/usr/local/bin/dmesg"
        with contextlib.suppress(FileExistsError):
            os.symlink(os.path.join(FOLDER, "bin", program), place)
    toolkit.install(state, environ.get("KIT_LAB_GPU_TOOLKIT", "hook"))
    for number, kinds in faults:
        if "busy" in kinds:
            _start_busy(state, number)
    return state


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Wait for the other changes of these GPUs: each reads the state and writes it as a whole."""
    with open(LOCK, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def run(argv: List[str]) -> None:
    if argv[0] == "show":
        _print(load())
        return
    with alone():
        _change(argv[0], argv[1:])


def _change(command: str, rest: List[str]) -> None:
    if command == "boot":
        boot()
        return
    state = load()
    if command == "fault":
        state = fault(state, int(rest[0]), rest[1])
        save(state)
    elif command == "mend":
        for number in range(state.total) if rest[0] == "all" else [int(rest[0])]:
            state = mend(state, number)
        save(state)
    elif command == "toolkit":
        toolkit.install(state, rest[0])
        if "--restart" in rest:
            toolkit.restart()
    _print(state)


def _print(state: State) -> None:
    uuids = [state.uuid(number) for number in range(state.total)]
    sys.stdout.write(
        json.dumps({**json.loads(dumped(state)), "name": state.name, "uuids": uuids, "lost": lost()}) + "\n"
    )


def main(argv: List[str]) -> int:
    try:
        run(argv or [""])
    except (Refused, FileNotFoundError) as error:
        sys.stderr.write("%s\n" % error)
        return 1
    return 0
