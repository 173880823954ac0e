"""Parses `nvidia-smi -L`: the GPUs of a host, and the MIG devices of each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kit.model.answer import OddAnswer
from kit.model.nvidia.values import check_size

# More than any machine has.
MOST_GPUS = 256

_GPU = re.compile(r"GPU ([0-9]{1,4}): (.{1,200}?)(?: \(UUID: (GPU-[0-9A-Za-z-]{1,80})\))?")
# Until driver 470, the UUID of a MIG device names its GPU and instances: MIG-GPU-…/7/0.
_MIG = re.compile(r"MIG (\S{1,40}) +Device +([0-9]{1,4}): +\(UUID: (MIG-[0-9A-Za-z/-]{1,100})\)")


@dataclass(frozen=True)
class ListedMig:
    """A MIG device: `profile` 3g.20gb, and its number on its GPU."""

    profile: str
    index: int
    uuid: str


@dataclass(frozen=True)
class ListedGpu:
    """A GPU of the list. `uuid` is empty if nvidia-smi does not print it."""

    index: int
    name: str
    uuid: str
    migs: tuple[ListedMig, ...] = ()


def is_listed(line: str) -> bool:
    """Return whether this is a line of the list, and no complaint."""
    return bool(_GPU.fullmatch(line.strip()) or _MIG.fullmatch(line.strip()))


def listed(text: str) -> tuple[ListedGpu, ...]:
    """Return the GPUs of the list, in its order. Ignores other lines. Raises OddAnswer."""
    check_size(text)
    gpus: list[ListedGpu] = []
    migs: list[list[ListedMig]] = []
    for line in text.splitlines():
        bare = line.strip()
        if match := _GPU.fullmatch(bare):
            if len(gpus) == MOST_GPUS:
                raise OddAnswer(f"it has more than {MOST_GPUS} GPUs", line)
            if not match[2].isprintable():
                raise OddAnswer("this is not the name of a GPU", match[2])
            gpus.append(ListedGpu(index=int(match[1]), name=match[2], uuid=match[3] or ""))
            migs.append([])
        elif migs and (match := _MIG.fullmatch(bare)):
            if len(migs[-1]) == MOST_GPUS:
                raise OddAnswer(f"a GPU has more than {MOST_GPUS} MIG devices", line)
            migs[-1].append(ListedMig(profile=match[1], index=int(match[2]), uuid=match[3]))
    return tuple(
        ListedGpu(index=gpu.index, name=gpu.name, uuid=gpu.uuid, migs=tuple(own)) for gpu, own in zip(gpus, migs)
    )


def numbers(gpus: Sequence[ListedGpu]) -> dict[str, tuple[int, ...]]:
    """Return the numbers by which runs hold these GPUs, by UUID (see numbered)."""
    return numbered((gpu.uuid, [mig.uuid for mig in gpu.migs] or [gpu.uuid]) for gpu in gpus)


def numbered(gpus: Iterable[tuple[str, Sequence[str]]]) -> dict[str, tuple[int, ...]]:
    """Return the numbers by which runs hold GPUs, by UUID, from each GPU's UUID and the UUIDs of what ranks can use.

    Ranks use the GPU itself or its MIG devices. Each of these has a number, and the GPU has all of them.
    """
    result: dict[str, tuple[int, ...]] = {}
    first = 0
    for uuid, usable in gpus:
        result |= {name: (number,) for number, name in enumerate(usable, first)}
        result[uuid] = tuple(range(first, first + len(usable)))
        first += len(usable)
    return result
