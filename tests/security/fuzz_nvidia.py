"""What nvidia-smi prints on a VM: its list, tables, matrix and XML, of several machines and drivers."""

from __future__ import annotations

from pathlib import Path

from kit.model.answer import answer_of
from kit.model.nvidia.listing import listed
from kit.model.nvidia.state import state
from kit.model.nvidia.tables import compute_apps, rows, samples
from kit.model.nvidia.topology import topology
from kit.model.nvidia.values import failure, whole

_CAPTURES = Path(__file__).parents[1] / "captures/nvidia-smi"
_BOMB = (
    b'<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;">]>\n'
    b"<nvidia_smi_log><driver_version>&b;&b;&b;</driver_version></nvidia_smi_log>\n"
)
SAMPLES: tuple[bytes, ...] = (*(path.read_bytes() for path in sorted(_CAPTURES.glob("*/*.[tcx]*"))), _BOMB)


def read(answer: bytes) -> None:
    """Read XML as XML, and any other text with all other parsers."""
    text = answer.decode(errors="replace")
    failure(text)
    with answer_of("gpu1", "what nvidia-smi printed"):
        if "<" in text[:200]:
            state(text)
            return
        listed(text)
        samples(text)
        compute_apps(text)
        topology(text).between_gpus()
        for row in rows(text, ("index", "name", "uuid", "driver_version", "memory.total")):
            whole(row["index"] or "")
