"""What a run used of its hosts, as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kit.model.text import size

if TYPE_CHECKING:
    from kit.model.run import HostUse, RunUse


def use(value: RunUse) -> list[tuple[str, str]]:
    """Return a row for each kind: memory, cores, GPUs, network, disks. The greatest peak of all hosts is named."""
    hosts = value.hosts
    if not hosts:
        return []
    host, most = max(hosts.items(), key=lambda item: item[1].memory_peak)
    rows = [("Memory", f"{size(most.memory_peak)} at most, on {host}{_of(most.host_memory_size)}")]
    rows += [("Cores", text)] if (text := _cores(hosts)) else []
    rows += [("GPUs", text)] if (text := _gpus(value)) else []
    received, sent = _sum(hosts, "received"), _sum(hosts, "sent")
    rows.append(("Network", f"{size(received)} received, {size(sent)} sent, by all hosts together"))
    rows.append(("Disks", f"{size(_sum(hosts, 'read'))} read, {size(_sum(hosts, 'written'))} written"))
    if value.left_out:
        rows.append(("", f"without {value.left_out} other hosts"))
    return rows


def _of(total: int) -> str:
    return f", which has {size(total)}" if total else ""


def _sum(hosts: Mapping[str, HostUse], name: str) -> int:
    return sum(getattr(host, name) for host in hosts.values())


def _cores(hosts: Mapping[str, HostUse]) -> str:
    """Return `3.8 of 8 in use on average`, for a host; with the extremes if hosts differ."""
    means = {name: host.cpu_mean for name, host in hosts.items() if host.cpu_mean is not None}
    if not means:
        return ""
    cores = sorted({host.cores for name, host in hosts.items() if name in means})
    some = f"{cores[0]}" if len(cores) == 1 else f"{cores[0]} to {cores[-1]}"
    mean = sum(means.values()) / len(means)
    text = f"{mean:.1f} of {some} in use on average"
    if len(means) > 1:
        low, high = min(means, key=lambda name: means[name]), max(means, key=lambda name: means[name])
        text += f" on each host (from {means[low]:.1f} on {low} to {means[high]:.1f} on {high})"
    return text


def _gpus(value: RunUse) -> str:
    parts = []
    if value.gpu_mean is not None:
        parts.append(f"{value.gpu_mean:.0f} % in use on average")
    peaks = {name: host for name, host in value.hosts.items() if host.gpu_memory_peak is not None}
    if peaks:
        name, host = max(peaks.items(), key=lambda item: item[1].gpu_memory_peak or 0)
        parts.append(f"{size(host.gpu_memory_peak or 0)} of memory at most{_each(host)}, on {name}")
    return "; ".join(parts)


def _each(host: HostUse) -> str:
    return f" of {size(host.gpu_memory_size)} each" if host.gpu_memory_size else ""
