"""Results of kit tune as text: the machines, what was tried, and what was written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kit.cli.text.ps import MANY
from kit.cli.text.table import table
from kit.model.text import fold

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kit.model.tune import Machine, Tried, TuneResult


def text(value: TuneResult, *, width: int | None = None) -> str:
    """Return the machines, what was measured, what kit keeps or skips, and what it wrote."""
    parts = [
        table(
            _rows(value.machines),
            _HEADER,
            width=width,
            flexible=("GPUS", "NIC", "HOST"),
            drop=("TCP", "SOCKETS", "NUMA", "MTU", "CORES", "NIC"),
        )
    ]
    if value.wire is not None:
        lines = [f"TCP, all links in both directions at once: {value.wire / 1e6:.1f} MB/s on the slowest link"]
        lines += [
            f"{other.network} ({'/'.join(other.nics)}), not in use: {other.rate / 1e6:.1f} MB/s on the slowest link"
            for other in value.networks
            if other.rate is not None
        ]
        parts.append("\n".join(lines))
    trials = () if value.before is None else (value.before, *value.tried)
    timing = next((tried.timing for tried in trials if tried.timing is not None), None)
    if timing is not None:
        size, ranks = timing.bytes >> 20, timing.ranks
        rows = [_tried(tried, value) for tried in trials]
        parts.append(
            f"All-reduce of {size} MB on {ranks} ranks:\n"
            + table(
                rows,
                ("WITH", "SECONDS", "+-", "BUS MB/S", "OF TCP", ""),
                width=width,
                flexible=("", "WITH"),
                drop=("+-", "OF TCP", "SECONDS"),
            )
        )
    parts += [
        f"kit keeps your {kept.path}: {kept.value}. It would write {kept.wanted}: {kept.reason}" for kept in value.kept
    ]
    parts += [f"Consider: {advice}." for advice in value.advice]
    if value.skipped:
        parts.append(f"Not measured: {'; '.join(value.skipped)}. To give kit more time: --minutes")
    parts.append(_end(value))
    return "\n\n".join(parts)


_HEADER = ("HOST", "SLOTS", "CORES", "SOCKETS", "NUMA", "GPUS", "NIC", "MBIT/S", "MTU", "TCP")


def _rows(machines: Sequence[Machine]) -> list[tuple[object, ...]]:
    """Return a row for each host, or of many hosts one for all that are equal."""
    groups: dict[object, list[Machine]] = {}
    for machine in machines:
        groups.setdefault(_facts(machine) if len(machines) > MANY else machine.name, []).append(machine)
    return [(fold(machine.name for machine in group), *_facts(group[0])) for group in groups.values()]


def _facts(machine: Machine) -> tuple[object, ...]:
    links = f" ({'/'.join(machine.gpu_links)})" if machine.gpu_links else ""
    cores = machine.cores or machine.threads
    return (
        machine.slots, cores, machine.sockets, machine.numa, f"{len(machine.gpus)}{links}",
        machine.nic or "?", machine.nic_mbit or "?", machine.mtu or "?", machine.congestion or "?",
    )  # fmt: skip


def _tried(tried: Tried, value: TuneResult) -> tuple[object, ...]:
    if tried.timing is None:
        return (tried.name, "failed" if tried.failure else "-", "", "", "", tried.failure or "")
    taken = "taken" if value.after is not None and tried.name == value.after.name else ""
    timing = tried.timing
    of_tcp = f"{timing.busbw / value.wire:.0%}" if value.wire else ""
    return (tried.name, f"{timing.median:.4f}", f"{timing.noise:.4f}", f"{timing.busbw / 1e6:.1f}", of_tcp, taken)


def _end(value: TuneResult) -> str:
    if not value.changed:
        return f"Nothing to change in {value.file} ({value.seconds:.0f} s)."
    verb = "Wrote" if value.written else "Would write"
    lines = [f"{verb} to {value.file} ({value.seconds:.0f} s):", value.diff]
    now = [setting.path for setting in value.changed if setting.acts == "run"]
    later = [setting.path for setting in value.changed if setting.acts == "deploy"]
    if now:
        lines.append(f"Takes effect at the next run: {', '.join(now)}.")
    if later:
        lines.append(f"Takes effect after the next kit deploy, which recreates the containers: {', '.join(later)}.")
    return "\n".join(lines)
