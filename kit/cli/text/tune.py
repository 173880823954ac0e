"""Results of kit tune as text: the machines, what was tried, and what was written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kit.cli.text.table import table

if TYPE_CHECKING:
    from kit.model.tune import Machine, Tried, TuneResult


def text(value: TuneResult) -> str:
    parts = [table([_row(each) for each in value.machines], _HEADER)]
    if value.wire is not None:
        told = f"TCP, every link in both directions at once: {value.wire / 1e6:.1f} MB/s on the slowest"
        for each in value.networks:
            if each.rate is not None:
                told += (
                    f"\n{each.network} ({'/'.join(each.nics)}), not in use: {each.rate / 1e6:.1f} MB/s on the slowest"
                )
        parts.append(told)
    if value.before is not None and value.before.timing is not None:
        size, ranks = value.before.timing.bytes >> 20, value.before.timing.ranks
        rows = [_tried(each, value) for each in (value.before, *value.tried)]
        parts.append(
            f"All-reduce of {size} MB on {ranks} ranks:\n"
            + table(rows, ("WITH", "SECONDS", "+-", "BUS MB/S", "OF TCP", ""))
        )
    parts += [
        f"{kept.path} is yours ({kept.value}), and stays. {kept.wanted} would be: {kept.reason}" for kept in value.kept
    ]
    parts += [f"To consider: {each}." for each in value.advice]
    if value.skipped:
        parts.append(f"Not measured: {'; '.join(value.skipped)}. More time: --minutes")
    parts.append(_end(value))
    return "\n\n".join(parts)


_HEADER = ("HOST", "SLOTS", "CORES", "SOCKETS", "NUMA", "GPUS", "NIC", "MBIT/S", "MTU", "TCP")


def _row(each: Machine) -> tuple[object, ...]:
    links = f" ({'/'.join(each.gpu_links)})" if each.gpu_links else ""
    cores = each.cores or each.threads
    return (
        each.name, each.slots, cores, each.sockets, each.numa, f"{len(each.gpus)}{links}",
        each.nic or "?", each.nic_mbit or "?", each.mtu or "?", each.congestion or "?",
    )  # fmt: skip


def _tried(each: Tried, value: TuneResult) -> tuple[object, ...]:
    if each.timing is None:
        return (each.name, "failed" if each.failure else "-", "", "", "", each.failure or "")
    taken = "taken" if value.after is not None and each.name == value.after.name else ""
    timing = each.timing
    of_tcp = f"{timing.busbw / value.wire:.0%}" if value.wire else ""
    return (each.name, f"{timing.median:.4f}", f"{timing.noise:.4f}", f"{timing.busbw / 1e6:.1f}", of_tcp, taken)


def _end(value: TuneResult) -> str:
    if not value.changed:
        return f"Nothing to change in {value.file} ({value.seconds:.0f} s)."
    verb = "Written" if value.written else "Would be written"
    told = f"{verb} into {value.file} ({value.seconds:.0f} s):\n{value.diff}"
    later = [each.path for each in value.changed if each.acts == "deploy"]
    now = [each.path for each in value.changed if each.acts == "run"]
    if now:
        told += f"\nTakes effect at the next run: {', '.join(now)}."
    if later:
        told += f"\nTakes effect after the next kit deploy, which recreates the containers: {', '.join(later)}."
    return told
