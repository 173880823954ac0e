"""kit predict: gradients, links and the time of a step, to an efficiency with all that it rests on. Contacts nobody."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

from kit.errors import InputError
from kit.model.allreduce import Algorithm, Library
from kit.model.scaling import Assumption, Gradients, Links, Prediction, Training
from kit.plan.predict import gradients as table
from kit.plan.predict import scaling
from kit.plan.predict.collectives import MPI_TURNS_FROM
from kit.remote.machine.assets import images_dir

# TCP over IPv4 in frames of 1500 bytes: 1448 of payload (20 IP, 20 TCP, 12 timestamps), and on the wire 14 of header, 4
# of checksum, 8 of preamble and 12 of gap.
PAYLOAD_SHARE = 1448 / 1538

# Bytes a second and direction, as the makers state them.
INTRA = {
    "pcie": (15.75e9, "PCIe 3.0 with 16 lanes: 8 GT/s x 16 x 128/130"),
    "nvlink": (150e9, "NVLink 2 of a V100: 6 links of 25 GB/s"),
    "shm": (5e9, "shared memory: one core's copy, of the order of 5 GB/s"),
}
MEMORY = {
    "nccl": (200e9, "GPU memory, several passes: HBM2 has 700 to 900 GB/s"),
    "mpi": (5e9, "one core's copy, of the order of 5 GB/s"),
}


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The words of the command line. Rates are texts (8gbit), times in the units of their names."""

    model: str | None = None
    gradients: str | None = None
    parameters: str | None = None
    gpus: int = 8
    per_host: int = 1
    step_ms: float | None = None
    img_sec: float | None = None
    batch_size: int | None = None
    link: str | None = None
    intra: str = "pcie"
    library: Library = "nccl"
    algorithm: Algorithm = "auto"
    compression: str = "none"
    fusion_mb: float = 128.0
    cycle_ms: float = 1.0
    latency_us: float = 50.0
    payload_share: float = PAYLOAD_SHARE
    memory_rate: str | None = None
    forward_share: float = 1 / 3
    duplex: bool = False


@dataclass(frozen=True, kw_only=True)
class Answer:
    """`predictions` grow in ranks; the last is what was asked for."""

    model: str
    parameters: int
    gradient_bytes: int
    tensors: int
    batch_size: int | None
    predictions: tuple[Prediction, ...]
    assumptions: tuple[Assumption, ...]


def predict(asked: Asked, *, folder: Path) -> Answer:
    """The prediction for 1, 2, 4 … ranks up to those asked for. Raises InputError for what is missing or wrong."""
    found = _gradients(asked, folder)
    step, step_source = _step(asked)
    if asked.link is None:
        raise InputError("what does a host's link carry?", hint="write, say, --link 8gbit")
    link = rate(asked.link, "--link")
    intra, intra_source = INTRA.get(asked.intra) or (_intra_rate(asked.intra), "asked for")
    memory, memory_source = MEMORY[asked.library]
    if asked.memory_rate:
        memory, memory_source = rate(asked.memory_rate, "--memory-rate"), "asked for"
    training = Training(
        step=step,
        forward_share=asked.forward_share,
        library=asked.library,
        algorithm=asked.algorithm,
        element_bytes=2 if asked.compression == "fp16" else 4,
        fusion=int(asked.fusion_mb * 2**20),
        cycle=asked.cycle_ms / 1e3,
    )
    links = Links(
        inter=link * asked.payload_share,
        inter_latency=asked.latency_us / 1e6,
        intra=intra,
        intra_latency=INTRA_LATENCY,
        memory=memory,
        turns_from=math.inf if asked.library == "nccl" or asked.duplex else MPI_TURNS_FROM,
    )
    sizes = sweep(asked.gpus)
    return Answer(
        model=found.model,
        parameters=found.elements,
        gradient_bytes=found.elements * training.element_bytes,
        tensors=found.tensors,
        batch_size=asked.batch_size,
        predictions=tuple(
            scaling.predict(found, training, links, ranks=ranks, per_host=asked.per_host) for ranks in sizes
        ),
        assumptions=_assumptions(
            asked, found, links, _Sources(step=step_source, intra=intra_source, memory=memory_source)
        ),
    )


# A GPU's kernel reads a neighbour's flag, or a core another's: some microseconds.
INTRA_LATENCY = 5e-6


def sweep(ranks: int) -> tuple[int, ...]:
    """1, 2, 4 … below `ranks`, and `ranks`."""
    sizes = [1]
    while sizes[-1] * 2 < ranks:
        sizes.append(sizes[-1] * 2)
    return tuple(dict.fromkeys([*sizes, ranks]))


def rate(text: str, flag: str) -> float:
    """Bytes a second of a rate in tc's words: 200mbit, 8gbit, 12.5gbit."""
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(k|m|g)bit", text.strip().lower(), re.ASCII)
    if not match or float(match[1]) <= 0:
        raise InputError(f"{flag} '{text}' is not a rate", hint="write a number and kbit, mbit or gbit: 200mbit, 8gbit")
    return float(match[1]) * {"k": 1e3, "m": 1e6, "g": 1e9}[match[2]] / 8


def _intra_rate(text: str) -> float:
    try:
        return rate(text, "--intra")
    except InputError as error:
        raise InputError(
            f"--intra: there is no '{text}', and it is not a rate",
            hint=f"write one of {', '.join(INTRA)}, or a rate such as 100gbit",
        ) from error


def _gradients(asked: Asked, folder: Path) -> Gradients:
    given = [value for value in (asked.model, asked.gradients, asked.parameters) if value]
    if len(given) != 1:
        raise InputError(
            "which gradients?" if not given else "--model, --gradients and --parameters say the same",
            hint="give one of --model resnet50, --gradients FILE, --parameters 25.6m",
        )
    if asked.parameters:
        return table.counted(asked.parameters)
    if asked.model:
        return table.named(asked.model, (images_dir() / "lib" / "models.json").read_text(encoding="utf-8"))
    path = folder / str(asked.gradients)
    try:
        return table.from_file(path.read_text(encoding="utf-8"), file=str(asked.gradients))
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise InputError(
            f"cannot be read: {why}", file=str(asked.gradients), hint="write --gradients with a file of gradients"
        ) from error


def _step(asked: Asked) -> tuple[float, str]:
    if asked.step_ms is not None:
        return asked.step_ms / 1e3, "asked for"
    if asked.img_sec is not None and asked.batch_size is not None:
        return asked.batch_size / asked.img_sec, f"{asked.batch_size} images at {asked.img_sec:g} a second"
    if asked.img_sec is not None:
        raise InputError("--img-sec needs --batch-size, to tell how long a step is", hint="add, say, --batch-size 64")
    raise InputError(
        "how long does a step take one rank alone?",
        hint="measure it (kit run --np 1 -- tf_benchmark …), and give --step-ms 290, or --img-sec 220 --batch-size 64",
    )


@dataclass(frozen=True, kw_only=True)
class _Sources:
    """Where these three values come from, in words."""

    step: str
    intra: str
    memory: str


def _assumptions(asked: Asked, found: Gradients, links: Links, sources: _Sources) -> tuple[Assumption, ...]:
    default = Asked()

    def row(what: str, value: str, source: str, name: str = "") -> Assumption:
        own = bool(name) and getattr(asked, name) != getattr(default, name)
        return Assumption(what=what, value=value, source="asked for" if own else source)

    bits = 4 if asked.compression == "none" else 2
    step, _ = _step(asked)
    return (
        row("gradients", f"{found.elements:,} numbers of {bits} bytes", found.source),
        row("step alone", f"{1e3 * step:.1f} ms on every rank, always", sources.step),
        row(
            "forward",
            f"{asked.forward_share:.3f} of the step",
            "backward has twice forward's products",
            "forward_share",
        ),
        row("backward's pace", "each layer's multiplications", "convolutions and dense layers alone cost time"),
        row("link", f"{asked.link}, full duplex, shared by the {asked.per_host} ranks of a host", "asked for"),
        row("payload", f"{asked.payload_share:.3f} of it: {links.inter / 1e6:.1f} MB/s", _PAYLOAD, "payload_share"),
        row("both directions", *_BOTH_WAYS["turns" if links.turns_from < math.inf else asked.library]),
        row("other traffic", "none; all links run at their rate at once", "stated"),
        row(
            "latency",
            f"{asked.latency_us:g} us a message between hosts",
            "TCP in one data centre: 20 to 100",
            "latency_us",
        ),
        row("within a host", f"{links.intra / 1e9:.1f} GB/s, {1e6 * links.intra_latency:.0f} us", sources.intra),
        row("copy and add", f"{links.memory / 1e9:.1f} GB/s", sources.memory),
        row("library", _LIBRARIES[asked.library], "stated"),
        row("algorithm", asked.algorithm, _AUTO[asked.library] if asked.algorithm == "auto" else "asked for"),
        row("fusion buffer", f"{asked.fusion_mb:g} MiB", "Horovod 0.28's default", "fusion_mb"),
        row("cycle", f"{asked.cycle_ms:g} ms", "Horovod 0.28's default", "cycle_ms"),
        row("not modelled", "input, optimizer, stragglers, lost packets, TCP that pauses (BBR)", "stated"),
    )


_PAYLOAD = "TCP with timestamps in Ethernet frames of 1500 bytes: 1448 of 1538"
_LIBRARIES = {
    "nccl": "nccl: all-reduces queue on the GPU, one at a time; Horovod goes on",
    "mpi": "mpi: Horovod's thread waits for each all-reduce",
}
_BOTH_WAYS = {
    "nccl": ("two ranks send each other at once", "NCCL has a connection for each way"),
    "mpi": ("two ranks send each other at once", "asked for: mpi.args as kit tune's duplex"),
    "turns": ("two ranks take turns, from 64 KiB on: at worst", "Open MPI's TCP as it comes; --duplex: at best"),
}
_AUTO = {
    "nccl": "NCCL: ring or tree, whichever is quicker",
    "mpi": "Open MPI 4.1: Rabenseifner from 8 KiB on, below recursive doubling",
}
