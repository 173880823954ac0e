"""Reads what observe.sh reports about GPUs: what nvidia-smi lists, what the engine can do with them, who uses them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from kit.model import names
from kit.model.answer import answer_of, number
from kit.model.nvidia.listing import ListedGpu, is_listed, listed
from kit.model.nvidia.values import WARNING, broken, known, whole
from kit.model.observed import Gpu, GpuEngine, GpuProcess
from kit.remote.cluster.forms import Info
from kit.remote.cluster.words import version, word
from kit.remote.scripts import script
from kit.remote.ssh.transport import Transport

# Longer than an nvidia-smi that hangs on the host and one in the node, with their calls of docker.
TIMEOUT_S = 70.0
_SNAP = ("/snap/", "/var/snap/")
_UUID = re.compile(r"GPU-[A-Za-z0-9-]{1,60}")
_VERSION = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6}){1,3}")
_CAPABILITY = re.compile(r"[0-9]{1,3}\.[0-9]{1,3}")
_PROCESS = re.compile(r"((?:GPU|MIG)-[A-Za-z0-9/-]{1,100}) ([0-9]{1,10}) (\S{1,20}) (\S{1,64}) (\S{1,64}) ?(.{0,32})")
_CDI = re.compile(r"(cdi|cdi_driver) (/\S{1,100}) ([A-Za-z0-9._:-]{1,100})")
# The time in /proc has a resolution of a second, and the boot's time is rounded.
_CLOCK_S = 2
_SHOWN = 200


class GpuList:
    """The answer of nvidia-smi: a row for each GPU, the list of `nvidia-smi -L` if MIG is on, or complaints.

    A row is `NVIDIA A100-SXM4-40GB, 40960, GPU-5c3b…, 0, 00000000:17:00.0, 535.104.05, Disabled, 8.0`. nvidia-smi
    writes `[N/A]` for what it does not know. Old drivers lack the last fields.
    """

    def __init__(self, lines: Sequence[str]) -> None:
        self._rows = [row for line in lines if (row := _row(line))]
        self._listed = listed("\n".join(lines))
        odd = [line.strip() for line in lines if not (_row(line) or is_listed(line))]
        # A warning must not hide a failure.
        faults = [*(line for line in odd if not line.startswith(WARNING)), *map(_failure, self._rows), *odd]
        self._fault = next(filter(None, faults), "")

    def devices(self) -> tuple[Gpu, ...]:
        """Return the GPUs. Raises OddAnswer."""
        return tuple(self._gpu(row) for row in self._rows)

    def driver(self) -> str:
        """Return the driver's version, or ""."""
        versions = [row[5] for row in self._rows if len(row) > 5 and _VERSION.fullmatch(row[5])]
        return versions[0] if versions else ""

    def fault(self) -> str:
        """Return the first complaint, or else which GPU failed, printable and short, or ""."""
        return "".join(char if char.isprintable() else " " for char in self._fault[:_SHOWN])

    def _gpu(self, row: Sequence[str]) -> Gpu:
        index = row[3] if len(row) > 3 and row[3].isascii() and row[3].isdigit() else ""
        return Gpu(
            name=word(row[0]),
            memory_mib=whole(row[1], "MiB") or 0,
            uuid=word(row[2]),
            index=number(index, most=10_000) if index else -1,
            pci=version(known(row[4])) if len(row) > 4 else "",
            capability=row[7] if len(row) > 7 and _CAPABILITY.fullmatch(row[7]) else "",
            mig=self._mig(row[2]) if row[6:7] == ["Enabled"] else None,
        )

    def _mig(self, uuid: str) -> tuple[str, ...]:
        """Return the UUIDs of a GPU's MIG devices."""
        return tuple(mig.uuid for gpu in self._listed if gpu.uuid == uuid for mig in gpu.migs)


def _failure(row: Sequence[str]) -> str:
    """Return what nvidia-smi prints in place of a GPU's values, such as `GPU 3: GPU requires reset`, or ""."""
    failed = broken(row[1])
    return f"GPU {row[3] if len(row) > 3 else row[2]}: {failed}" if failed else ""


def _row(line: str) -> list[str]:
    parts = [part.strip() for part in line.split(",")]
    return parts if len(parts) in (3, 6, 7, 8) and _UUID.fullmatch(parts[2]) else []


def gpu_engine(lines: Sequence[str], info: Info) -> GpuEngine:
    """Return what decides whether the engine can give GPUs to a container, from gpu_engine.sh and `docker info`.

    Raises OddAnswer.
    """
    facts: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(" ")
        facts.setdefault(name, word(value))
    started, changed, now = (_time(facts.get(fact)) for fact in ("started", "hook_changed", "now"))
    # A time that is still to come is from a clock that was wrong then.
    wrong = bool(now) and changed > now + _CLOCK_S
    cdi, cdi_driver, cdi_folder = _cdi(lines, info)
    return GpuEngine(
        hook=facts.get("hook", ""),
        hook_newer=bool(started) and changed > started + _CLOCK_S and not wrong,
        runtime=facts.get("runtime", ""),
        snap=facts.get("program", "").startswith(_SNAP) or (info.DockerRootDir or "").startswith(_SNAP),
        cdi_enabled=bool(info.CDISpecDirs),
        cdi=cdi,
        cdi_driver=version(cdi_driver),
        cdi_folder=cdi_folder,
        runtimes={word(name): word(runtime.path) for name, runtime in (info.Runtimes or {}).items()},
        default_runtime=word(info.DefaultRuntime),
        cgroup_driver=word(info.CgroupDriver),
    )


def _cdi(lines: Sequence[str], info: Info) -> tuple[tuple[str, ...], str, str]:
    """Return the names of NVIDIA's CDI devices; and the driver and the folder of the file with the device `all`, or "".

    The names are those that the engine lists, or else those in the files that it reads. If several folders have a
    device, the engine takes that of its last folder. So what only the folders before that of `all` have does not count:
    nvidia-ctk wrote it for an earlier driver, or for other GPUs.
    """
    rows = [(row[1], _folder(row[2]), row[3]) for line in lines if (row := _CDI.fullmatch(line))]
    folders = [_folder(path) for path in info.CDISpecDirs or ()]
    whole = {folder for _, folder, name in rows if name == "all"}
    last = max((number for number, folder in enumerate(folders) if folder in whole), default=0)
    read = {name for fact, folder, name in rows if fact == "cdi" and folder in folders[last:]}
    hidden = {name for fact, folder, name in rows if fact == "cdi" and folder in folders[:last]} - read
    if info.DiscoveredDevices is None:
        devices = [name for fact, _, name in rows if fact == "cdi" and name in read]
    else:
        pairs = [device.ID.partition("=") for device in info.DiscoveredDevices if device.Source == "cdi"]
        devices = [word(name) for kind, _, name in pairs if kind == names.GPU_KIND and name not in hidden]
    place = next((folder for folder in folders[last:] if folder in whole), "")
    driver = next((value for fact, folder, value in rows if fact == "cdi_driver" and folder == place), "")
    return tuple(dict.fromkeys(devices)), driver, place


def _folder(path: str) -> str:
    """Return a folder as gpu_engine.sh calls it. /var/run is a link to /run."""
    path = path.rstrip("/")
    return path.removeprefix("/var") if path.startswith("/var/run/") else path


def _time(text: str | None) -> int:
    return number(text) if text and text.isascii() and text.isdigit() else 0


class NodeGpus(NamedTuple):
    """The GPUs that a node sees. `uuids` is None if that is unknown, and `fault` is what nvidia-smi prints there."""

    uuids: frozenset[str] | None
    fault: str


def node_gpus_of(lines: Sequence[str]) -> NodeGpus:
    """Return the GPUs in the output of gpu_node.sh. Raises OddAnswer."""
    uuids = [line.removeprefix("sees ") for line in lines if line.startswith("sees ")]
    faults = [line.removeprefix("says ") for line in lines if line.startswith("says ")]
    if not uuids and not faults:
        return NodeGpus(None, "")
    return NodeGpus(frozenset(map(word, uuids)), word(faults[0]) if faults else "")


def look_into_node(transport: Transport, cluster: str) -> NodeGpus:
    """Return the GPUs that a host's node sees. Raises UnreachableError, or AnswerError for odd output."""
    done = transport.run(script("gpu_node", cluster), timeout_s=TIMEOUT_S)
    with answer_of(transport.host.name, "the GPUs of its node"):
        return node_gpus_of(done.text.splitlines())


def gpu_processes(lines: Sequence[str]) -> tuple[GpuProcess, ...]:
    """Return the processes in the output of gpu_processes.sh. Raises OddAnswer."""
    rows = [row for line in lines if (row := _PROCESS.fullmatch(line))]
    return tuple(
        GpuProcess(
            gpu=row[1],
            pid=number(row[2]),
            memory_mib=_time(row[3]),
            user=word(row[4]),
            cluster="" if row[5] == "-" else word(row[5]),
            command=word(row[6]),
        )
        for row in rows
    )


class GpuUse(NamedTuple):
    """The processes that compute on a host's GPUs, the GPUs that the cluster's node sees, and those of the host."""

    processes: tuple[GpuProcess, ...]
    node: NodeGpus
    host: tuple[ListedGpu, ...]


def look_for_users(transport: Transport, cluster: str) -> GpuUse:
    """Return who uses a host's GPUs, and whether its node sees them, with one command.

    Raises UnreachableError, or AnswerError for odd output.
    """
    done = transport.run(script("gpu_processes", cluster), timeout_s=TIMEOUT_S)
    with answer_of(transport.host.name, "the processes on its GPUs"):
        lines = done.text.splitlines()
        there = listed("\n".join(line.removeprefix("has ") for line in lines if line.startswith("has ")))
        return GpuUse(gpu_processes(lines), node_gpus_of(lines), there)
