"""Judges the programs on the GPUs of a run's hosts: whether kit did not start them, and what the person reads then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kit.errors import NotReadyError
from kit.model.observed import GpuProcess
from kit.model.text import fold

# How many programs a message names.
_MOST = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class BusyGpu:
    """A program on GPUs of a host. `gpus` are kit's numbers, empty if nvidia-smi did not list the GPU."""

    host: str
    gpus: tuple[int, ...]
    process: GpuProcess

    def __str__(self) -> str:
        numbers = ", ".join(map(str, self.gpus))
        which = f"GPU{'s' if len(self.gpus) > 1 else ''} {numbers}" if numbers else self.process.gpu
        size = f", {self.process.memory_mib} MiB" if self.process.memory_mib else ""
        return f"{self.host}: {which}: {self.process.command or 'a program'} (PID {self.process.pid} of " + (
            f"{self.process.user}{size})"
        )


def strangers(processes: Sequence[GpuProcess], cluster: str) -> tuple[GpuProcess, ...]:
    """Return the processes that no lease of the cluster covers: those outside of its containers."""
    return tuple(process for process in processes if process.cluster != cluster)


def busy_gpus(
    host: str, processes: Sequence[GpuProcess], numbers: Mapping[str, Sequence[int]], held: Sequence[int]
) -> tuple[BusyGpu, ...]:
    """Return the processes that use a GPU which the run holds on this host.

    `numbers` maps a UUID to the numbers of the GPU or its MIG devices. A UUID that it does not have counts as held.
    """
    rows = (BusyGpu(host=host, gpus=tuple(numbers.get(p.gpu, ())), process=p) for p in processes)
    return tuple(row for row in rows if not row.gpus or not set(held).isdisjoint(row.gpus))


def lost(faults: Mapping[str, str]) -> NotReadyError:
    """Return the error of a run on nodes that lost their GPUs. `faults` has what nvidia-smi prints there, by host."""
    return NotReadyError(
        f"the running node of {fold(faults)} sees no GPU: {next(iter(faults.values()))}",
        hint="recreate it: kit deploy. systemctl daemon-reload takes the GPUs of nodes that have them by a hook",
    )


def shown(busy: Sequence[BusyGpu]) -> str:
    """Return the first programs in words."""
    more = f"; and {len(busy) - _MOST} more" if len(busy) > _MOST else ""
    return "; ".join(map(str, busy[:_MOST])) + more


def refusal(busy: Sequence[BusyGpu]) -> NotReadyError:
    """Return the error of a run whose GPUs are in use by programs that kit did not start."""
    hosts = list(dict.fromkeys(row.host for row in busy))
    return NotReadyError(
        f"programs that kit did not start use GPUs of this run: {shown(busy)}",
        hint=f"end them, leave out {fold(hosts)} with -H, or run beside them: --ignore-busy-gpus",
    )
