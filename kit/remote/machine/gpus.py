"""The GPUs of your own machine, for kit local: the same facts that kit reads on a VM."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence

from kit.model.answer import OddAnswer
from kit.model.host import Host
from kit.model.observed import HostFacts
from kit.remote.cluster.forms import Info
from kit.remote.cluster.gpus import GpuList, gpu_engine
from kit.remote.scripts import script

# observe.sh asks a VM for the same fields, and for the compute capability, which kit local does not need.
_FIELDS = "name,memory.total,uuid,index,pci.bus_id,driver_version"
_MIG = ",mig.mode.current"
_TIMEOUT_S = 20


def has_gpus() -> bool:
    """Return whether nvidia-smi shows a GPU of this machine."""
    return bool(gpu_facts(Info()).gpus)


def gpu_facts(info: Info) -> HostFacts:
    """Return what decides how a container of this machine's engine gets GPUs. The other facts are empty.

    Without nvidia-smi, it starts no program. What it cannot read counts as missing.
    """
    gpus = GpuList(())
    lines: tuple[str, ...] = ()
    if shutil.which("nvidia-smi"):
        gpus = GpuList(_listed())
        lines = tuple(_lines(*script("gpu_engine")))
    try:
        devices, engine = gpus.devices(), gpu_engine(lines, info)
    except OddAnswer:
        devices, engine = (), gpu_engine((), Info())
    return HostFacts(
        host=Host(name="this machine", address="localhost"),
        engine=info.ServerVersion or "",
        compose=None,
        arch="",
        os="",
        cores=0,
        memory_mib=0,
        disk_free_mib=0,
        interfaces=(),
        default_interface=None,
        gpus=devices,
        driver=gpus.driver(),
        gpu_fault=gpus.fault(),
        gpu_engine=engine,
    )


def _listed() -> Sequence[str]:
    """Return the rows of nvidia-smi, and its list of MIG devices if MIG is on."""
    rows = _query(_FIELDS + _MIG)
    if any("not a valid field" in row for row in rows):
        # Drivers before 450 do not know MIG.
        rows = _query(_FIELDS)
    return (*rows, *_lines("nvidia-smi", "-L")) if any(row.endswith(", Enabled") for row in rows) else rows


def _query(fields: str) -> Sequence[str]:
    return _lines("nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits")


def _lines(*argv: str) -> Sequence[str]:
    try:
        done = subprocess.run(argv, capture_output=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return done.stdout.decode(errors="replace").splitlines()
