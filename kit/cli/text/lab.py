"""Results of kit lab as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kit.cli.text.table import table

if TYPE_CHECKING:
    from kit.model.lab import LabFaults, LabGpus, LabRemoved, LabStatus


def lab(value: LabStatus, *, width: int | None = None) -> str:
    """Return the lab's state, and a line for each host."""
    if not value.hosts:
        return "There is no lab. To make one: kit lab up"
    rows = [(host.name, host.address, host.state) for host in value.hosts]
    head = f"Lab {value.name}: {value.shape}; {value.state}; network {value.network}; files in {value.folder}"
    return f"{head}\n{table(rows, ('HOST', 'ADDRESS', 'STATE'), width=width, flexible=('STATE', 'HOST'))}"


def gpus(value: LabGpus, *, width: int | None = None) -> str:
    """Return a line for each pretended GPU of a host."""
    rows = [(str(gpu.number), gpu.uuid, ", ".join(gpu.faults) or "none") for gpu in value.gpus]
    head = f"{value.host}: {value.name}, driver {value.driver}"
    if value.lost:
        head += f", lost in {value.lost} running container{'' if value.lost == 1 else 's'}"
    return f"{head}\n{table(rows, ('GPU', 'UUID', 'FAULTS'), width=width, flexible=('FAULTS', 'UUID'))}"


def faults(value: LabFaults) -> str:
    return f"{value.host} has {', '.join(value.faults) or 'no faults'}."


def lab_removed(value: LabRemoved) -> str:
    if value.empty:
        return f"Nothing to do: there is no lab '{value.name}'."
    counts = {"container": value.containers, "volume": value.volumes, "network": value.networks}
    removed = ", ".join(f"{count} {noun}{'' if count == 1 else 's'}" for noun, count in counts.items())
    return f"Removed lab {value.name}: {removed}." + "".join(
        f"\nKept, because you changed it: {path}" for path in value.kept
    )
