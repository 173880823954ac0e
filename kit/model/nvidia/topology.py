"""Parses `nvidia-smi topo -m`: how GPUs and NICs of a host are connected, and which CPUs are near each GPU."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from kit.model.answer import OddAnswer
from kit.model.nvidia.values import check_size

# GPUs and NICs together; the matrix of more devices is not read.
MOST_DEVICES = 512

# nvidia-smi underlines the header, even in a pipe.
_STYLE = re.compile(r"\x1b\[[0-9;]{0,20}m")
# SOC and PSB are spellings of old drivers for SYS and PIX.
_KIND = re.compile(r"NV[0-9]{1,3}|PIX|PSB|PXB|PHB|NODE|SYS|SOC")
_DEVICE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,60}")
_LIST = re.compile(r"[0-9]{1,5}(?:-[0-9]{1,5})?(?:,[0-9]{1,5}(?:-[0-9]{1,5})?)*")
_NAMED = re.compile(r"(NIC[0-9]{1,4}): ([A-Za-z0-9_.-]{1,60})")


@dataclass(frozen=True)
class Topology:
    """The matrix. Devices are GPU0 …, and NICs by their RDMA names (mlx5_0).

    `links` has the kind of connection of each pair, such as NV18, PIX or SYS. `cpus` (0-31,64-95) and `numa` (0) have
    the GPUs whose CPUs are known.
    """

    gpus: tuple[str, ...] = ()
    nics: tuple[str, ...] = ()
    links: dict[tuple[str, str], str] = field(default_factory=dict)
    cpus: dict[str, str] = field(default_factory=dict)
    numa: dict[str, str] = field(default_factory=dict)

    def between_gpus(self) -> tuple[str, ...]:
        """Return the kinds of connections between two GPUs, sorted."""
        own = set(self.gpus)
        return tuple(sorted({kind for pair, kind in self.links.items() if own.issuperset(pair)}))

    def nearest_nics(self, gpu: str) -> tuple[str, ...]:
        """Return the NICs with the shortest way to this GPU, or nothing if all NICs are equally far."""
        order = ("PIX", "PSB", "PXB", "PHB", "NODE", "SYS", "SOC")
        ways = {nic: order.index(kind) for nic in self.nics if (kind := self.links.get((gpu, nic), "")) in order}
        if len(set(ways.values())) < 2 and len(ways) > 1:
            return ()
        return tuple(nic for nic, way in ways.items() if way == min(ways.values()))


def topology(text: str) -> Topology:
    """Return the matrix in this output. Without a matrix, the result is empty. Raises OddAnswer."""
    check_size(text)
    lines = [_STYLE.sub("", line).rstrip() for line in text.splitlines()]
    top = next((number for number, line in enumerate(lines) if re.match(r"\s+GPU[0-9]", line)), None)
    if top is None:
        return Topology()
    devices, extra = _columns(lines[top])
    named = {match[1]: match[2] for line in lines if (match := _NAMED.fullmatch(line.strip()))}
    shown = [named.get(device, device) for device in devices]
    links: dict[tuple[str, str], str] = {}
    cpus: dict[str, str] = {}
    numa: dict[str, str] = {}
    for line in lines[top + 1 :]:
        words = line.split()
        if not words or words[0] not in devices:
            if words and words[0].startswith("Legend"):
                break
            continue
        own = named.get(words[0], words[0])
        cells, rest = words[1 : 1 + len(devices)], words[1 + len(devices) :]
        if len(cells) != len(devices):
            raise OddAnswer("this is not a row of the matrix", line)
        # A kind of a driver to come is left out.
        pairs = ((other, kind) for other, kind in zip(shown, cells) if other != own)
        links.update({(own, other): kind for other, kind in pairs if _KIND.fullmatch(kind)})
        # A row with fewer words than columns has empty ones, and nothing says which.
        if words[0].startswith("GPU") and len(rest) == len(extra):
            values = {column: word for column, word in zip(extra, rest) if _LIST.fullmatch(word)}
            if "CPU" in values:
                cpus[own] = values["CPU"]
            if "NUMA" in values:
                numa[own] = values["NUMA"]
    return Topology(
        gpus=tuple(device for device in shown if re.fullmatch(r"GPU[0-9]+", device)),
        nics=tuple(device for device in shown if not re.fullmatch(r"GPU[0-9]+", device)),
        links=links,
        cpus=cpus,
        numa=numa,
    )


def _columns(header: str) -> tuple[Sequence[str], Sequence[str]]:
    """Return the devices in the header, and the columns behind them: CPU, NUMA, GPU (the NUMA node of its memory)."""
    words = header.replace("CPU Affinity", " =CPU ").replace("NUMA Affinity", " =NUMA ")
    words = words.replace("GPU NUMA ID", " =GPU ")
    devices = [word for word in words.split() if not word.startswith("=")]
    if len(devices) > MOST_DEVICES:
        raise OddAnswer(f"it has more than {MOST_DEVICES} devices", header)
    if len(set(devices)) != len(devices) or not all(_DEVICE.fullmatch(device) for device in devices):
        raise OddAnswer("this is not the header of the matrix", header.strip())
    return devices, [word[1:] for word in words.split() if word.startswith("=")]
