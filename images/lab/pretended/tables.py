"""What nvidia-smi prints for people: the summary, the topology, dmon and the versions. Pure."""

import time
from typing import List, Tuple

from pretended import query
from pretended.machine import Gpu, Machine

_LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks
"""
_RULE = "+-----------------------------------------+------------------------+----------------------+"
_WIDE = "+" + "-" * 89 + "+"


def version(machine: Machine) -> str:
    driver = machine.state.driver
    return (
        "NVIDIA-SMI version  : %s\nNVML version        : %s\nDRIVER version      : %s\nCUDA Version        : %s\n"
        % (driver, ".".join(driver.split(".")[:2]), driver, machine.cuda)
    )


def summary(machine: Machine) -> str:
    """Return the table that nvidia-smi prints without arguments."""
    driver = machine.state.driver
    lines = [
        time.strftime("%a %b %e %H:%M:%S %Y       "),
        _WIDE,
        "| NVIDIA-SMI %-22s Driver Version: %-14s CUDA Version: %-8s |" % (driver, driver, machine.cuda),
        "|" + _RULE[1:-1] + "|",
        "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |",
        "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |",
        "|                                         |                        |               MIG M. |",
        "|" + _RULE[1:-1].replace("-", "=") + "|",
    ]
    for gpu in machine.gpus:
        lines += [*_rows(gpu), _RULE]
    lines += ["", _WIDE, "| %-87s |" % "Processes:"]
    lines += [
        "| %-87s |" % " GPU   GI   CI        PID   Type   Process name                              GPU Memory",
        "| %-87s |" % "       ID   ID                                                               Usage",
        "|" + "=" * 89 + "|",
    ]
    apps = [
        "|  %3d   N/A  N/A  %9d      C   %-37.37s %10dMiB |" % (gpu.number, process.pid, process.name, process.memory)
        for gpu in machine.gpus
        for process in machine.processes
        if gpu.minor in process.minors
    ]
    lines += apps or ["|  %-86s |" % "No running processes found"]
    return "\n".join([*lines, _WIDE, ""])


def _rows(gpu: Gpu) -> List[str]:
    # The real tool cuts a long name, too. The mark stays.
    mark = " (PRETENDED)"
    name = gpu.name if len(gpu.name) <= 25 else gpu.name[: 25 - len(mark)] + mark
    mode = query.mig_mode(gpu).strip("[]")
    memory = "%dMiB / %6dMiB" % (gpu.used, gpu.model.memory)
    usage = "%dW / %4dW" % (query.power(gpu), gpu.model.power)
    return [
        "| %3d  %-25s      On  |   %16s Off | %20s |" % (gpu.number, name, gpu.bus, query.uncorrectable(gpu)),
        "| N/A  %3dC    %-3s %21s | %22s | %7s%%      Default |"
        % (query.temperature(gpu), query.level(gpu), usage, memory, gpu.load),
        "| %39s | %22s | %20s |" % ("", "", mode),
    ]


def topology(machine: Machine, cpus: str = "") -> str:
    """Return the links between the GPUs, and the cores near each. `cpus`: this machine's, such as 0-1."""
    near = _sockets(cpus or _online())
    names = ["GPU%d" % gpu.number for gpu in machine.gpus]
    # The real tool underlines the header, also where nobody looks.
    lines = ["\t\x1b[4m" + "\t".join([*names, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"]) + "\x1b[0m"]
    for name, gpu in zip(names, machine.gpus):
        links = [" X " if gpu is other else _link(gpu, other) for other in machine.gpus]
        socket = _socket(machine, gpu)
        lines.append("\t".join([name, *links, near[socket], str(socket), "", "N/A"]))
    return "\n".join(lines) + "\n" + _LEGEND


def _socket(machine: Machine, gpu: Gpu) -> int:
    """Return the socket of a GPU: with NVLink, half of the host's GPUs belong to each, and else four."""
    if gpu.model.link.startswith("NV"):
        return 2 * gpu.minor // machine.state.total
    return gpu.minor // 4


def _sockets(cpus: str) -> Tuple[str, str]:
    """Return the cores of each of two pretended sockets, from a list such as 0-3. One core belongs to both."""
    cores: List[int] = []
    for part in cpus.split(","):
        first, _, last = part.partition("-")
        cores += range(int(first), int(last or first) + 1)
    half = len(cores) // 2
    halves = (cores[:half], cores[half:]) if half else (cores, cores)
    first_half, second_half = (_shortened(some) for some in halves)
    return first_half, second_half


def _shortened(cores: List[int]) -> str:
    if len(cores) > 1 and cores[-1] - cores[0] == len(cores) - 1:
        return "%d-%d" % (cores[0], cores[-1])
    return ",".join(str(core) for core in cores)


def _link(one: Gpu, other: Gpu) -> str:
    """Return the link of two GPUs. Without NVLink, each pair of GPUs has a PCIe switch, and each four a socket."""
    if one.model.link.startswith("NV"):
        return one.model.link
    if one.minor // 4 != other.minor // 4:
        return "SYS"
    return one.model.link if one.minor // 2 == other.minor // 2 else "PHB"


def _online() -> str:
    with open("/sys/devices/system/cpu/online") as file:
        return file.read().strip()


_COLUMNS = {
    "p": (("pwr", "W"), ("gtemp", "C"), ("mtemp", "C")),
    "u": (("sm", "%"), ("mem", "%"), ("enc", "%"), ("dec", "%"), ("jpg", "%"), ("ofa", "%")),
    "c": (("mclk", "MHz"), ("pclk", "MHz")),
    "v": (("pviol", "%"), ("tviol", "bool")),
    "m": (("fb", "MB"), ("bar1", "MB"), ("ccpm", "MB")),
    "e": (("sbecc", "errs"), ("dbecc", "errs"), ("pci", "errs")),
    "t": (("rxpci", "MB/s"), ("txpci", "MB/s")),
}


def dmon(machine: Machine, selected: str) -> str:
    """Return one line for each GPU below the two lines of the header."""
    columns = [column for group in _COLUMNS if group in selected for column in _COLUMNS[group]]
    lines = [
        "# gpu " + "".join("%6s " % name for name, _ in columns),
        "# Idx " + "".join("%6s " % unit for _, unit in columns),
    ]
    for gpu in machine.gpus:
        values = {
            "pwr": "%d" % query.power(gpu),
            "gtemp": str(query.temperature(gpu)),
            "mtemp": str(query.temperature(gpu) + 6) if gpu.model.rows else "-",
            "sm": str(gpu.load),
            "mem": str(gpu.load // 4),
            "mclk": str(gpu.model.memory_clock),
            "pclk": str(query.clock(gpu)),
            "fb": str(gpu.used),
            "bar1": "1",
            "dbecc": str(query.uncorrectable(gpu)),
            "tviol": str(int(gpu.throttled)),
        }
        lines.append("%5d " % gpu.number + "".join("%6s " % values.get(name, "0") for name, _ in columns))
    return "\n".join(lines) + "\n"
