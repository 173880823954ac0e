"""What nvidia-smi prints on a host, for the checks of GPUs: one command serves all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache

from kit.model.answer import OddAnswer
from kit.model.doctor import Command, Examined, Seen, Severity, Sight
from kit.model.nvidia.state import GpuState, State, state
from kit.model.nvidia.values import failure
from kit.model.text import fold

# Without persistence mode, the driver starts each GPU first, which takes a second or more.
# Comes with the driver. Without it, checks of GPUs run no program.
PROGRAM = "nvidia-smi"
STATE = Command(argv=(PROGRAM, "-q", "-x"), timeout_s=30.0)
# How many ranges and single GPUs a finding names.
_NAMED = 8


@lru_cache(maxsize=512)
def _state(text: str) -> State | None:
    try:
        return state(text)
    except OddAnswer:
        return None


def state_of(host: Seen) -> State | None:
    """Return the GPUs of a host, or None if nvidia-smi is missing or does not list them."""
    ran = host.ran(*STATE.argv)
    # After a whole answer, its exit code may be 14: the infoROM of a GPU is corrupted.
    return _state(ran.out) if ran and ran.code is not None else None


def states(examined: Examined) -> Mapping[str, State]:
    """Return the GPUs of each host whose nvidia-smi lists some."""
    known = {host.name: state_of(host) for host in examined.hosts}
    return {name: one for name, one in known.items() if one is not None and one.gpus}


def complaint(host: Seen) -> str:
    """Return the sentence with which nvidia-smi says that it cannot read the GPUs, or ''."""
    ran = host.ran(*STATE.argv)
    return (failure(ran.out) or failure(ran.err) or "") if ran else ""


def named(numbers: Iterable[int]) -> str:
    """Return `GPU 3` or `GPU [0-3]`."""
    return fold((f"GPU {number}" for number in numbers), most=_NAMED)


def of_gpus(
    examined: Examined, seen: Callable[[GpuState], str | None], severity: Severity | None = None
) -> Iterator[Sight]:
    """Yield a sight for each host and text: `seen` is what is wrong with one GPU, or None."""
    for host, one in states(examined).items():
        groups: dict[str, list[int]] = {}
        for gpu in one.gpus:
            if text := seen(gpu):
                groups.setdefault(text, []).append(gpu.index)
        for text, numbers in groups.items():
            yield Sight(hosts=(host,), seen=f"{named(numbers)}: {text}", severity=severity)
