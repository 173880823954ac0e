"""Results of kit lab as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kit.cli.text.table import table

if TYPE_CHECKING:
    from kit.model.lab import LabRemoved, LabStatus


def lab(value: LabStatus, *, width: int | None = None) -> str:
    """Return the lab's state, and a line for each host."""
    if not value.hosts:
        return "There is no lab. To make one: kit lab up"
    rows = [(host.name, host.address, host.state) for host in value.hosts]
    head = f"Lab {value.name}: {value.shape}; {value.state}; network {value.network}; files in {value.folder}"
    return f"{head}\n{table(rows, ('HOST', 'ADDRESS', 'STATE'), width=width, flexible=('STATE', 'HOST'))}"


def lab_removed(value: LabRemoved) -> str:
    if value.empty:
        return "Nothing to do: there is no lab."
    counts = {"container": value.containers, "volume": value.volumes, "network": value.networks}
    removed = ", ".join(f"{count} {noun}{'' if count == 1 else 's'}" for noun, count in counts.items())
    return f"Removed lab {value.name}: {removed}." + "".join(
        f"\nKept, because you changed it: {path}" for path in value.kept
    )
