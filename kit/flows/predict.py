"""kit predict: a scaling efficiency from gradients, links and a step time, with every assumption. Contacts nobody."""

from __future__ import annotations

import math
from pathlib import Path

from msgspec import Struct

from kit.config.paths import expanded
from kit.config.text import text_of
from kit.errors import InputError, InputErrors
from kit.model import quantity
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


class PredictRequest(Struct, frozen=True, kw_only=True):
    """The command line's values. Rates are text (8gbit); times have the unit in their name."""

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


class Answer(Struct, frozen=True, kw_only=True):
    """`predictions` are in order of ranks; the last one is the requested size."""

    model: str
    parameters: int
    gradient_bytes: int
    tensors: int
    batch_size: int | None
    predictions: tuple[Prediction, ...]
    assumptions: tuple[Assumption, ...]


def predict(request: PredictRequest, *, folder: Path) -> Answer:
    """Predict 1, 2, 4 … ranks up to the requested number.

    Raises InputError for a missing or wrong value, and InputErrors if several are missing.
    """
    if missing := _missing(request):
        raise missing[0] if len(missing) == 1 else InputErrors(missing)
    gradients = _gradients(request, folder)
    step, step_source = _step(request)
    link = rate(str(request.link), "--link")
    intra, intra_source = INTRA.get(request.intra) or (_intra_rate(request.intra), "given")
    memory, memory_source = MEMORY[request.library]
    if request.memory_rate:
        memory, memory_source = rate(request.memory_rate, "--memory-rate"), "given"
    training = Training(
        step=step,
        forward_share=request.forward_share,
        library=request.library,
        algorithm=request.algorithm,
        element_bytes=2 if request.compression == "fp16" else 4,
        fusion=int(request.fusion_mb * 2**20),
        cycle=request.cycle_ms / 1e3,
    )
    links = Links(
        inter=link * request.payload_share,
        inter_latency=request.latency_us / 1e6,
        intra=intra,
        intra_latency=INTRA_LATENCY,
        memory=memory,
        turns_from=math.inf if request.library == "nccl" or request.duplex else MPI_TURNS_FROM,
    )
    sizes = sweep(request.gpus)
    return Answer(
        model=gradients.model,
        parameters=gradients.elements,
        gradient_bytes=gradients.elements * training.element_bytes,
        tensors=gradients.tensors,
        batch_size=request.batch_size,
        predictions=tuple(
            scaling.predict(gradients, training, links, ranks=ranks, per_host=request.per_host) for ranks in sizes
        ),
        assumptions=_assumptions(
            request, gradients, links, _Sources(step=step_source, intra=intra_source, memory=memory_source)
        ),
    )


# A GPU kernel, or a core, reads its neighbor's flag: a few microseconds.
INTRA_LATENCY = 5e-6


def sweep(ranks: int) -> tuple[int, ...]:
    """Return 1, 2, 4 … below `ranks`, then `ranks`."""
    sizes = [1]
    while sizes[-1] * 2 < ranks:
        sizes.append(sizes[-1] * 2)
    return tuple(dict.fromkeys([*sizes, ranks]))


def rate(text: str, flag: str) -> float:
    """Return a rate (200mbit, 8gbit, 12.5Gbps) as bytes per second."""
    try:
        return quantity.bits_per_second(text) / 8
    except ValueError:
        raise InputError(
            f"{flag} '{text}' is not a rate", hint="write a number and kbit, mbit or gbit: 200mbit, 8gbit"
        ) from None


def _intra_rate(text: str) -> float:
    try:
        return rate(text, "--intra")
    except InputError as error:
        raise InputError(
            f"--intra '{text}' is neither a known link nor a rate",
            hint=f"write one of {', '.join(INTRA)}, or a rate such as 100gbit",
        ) from error


def _missing(request: PredictRequest) -> list[InputError]:
    """Return an error for each value that a prediction needs and the request lacks, or gives twice."""
    problems = []
    given = [value for value in (request.model, request.gradients, request.parameters) if value]
    if len(given) != 1:
        text = "no gradients given" if not given else "--model, --gradients and --parameters exclude each other"
        hint = "give one of --model resnet50, --gradients FILE, --parameters 25.6m"
        problems.append(InputError(text, hint=hint))
    if request.step_ms is None and request.img_sec is None:
        hint = "measure it (kit run --np 1 -- tf_benchmark …), and give --step-ms 290, or --img-sec 220 --batch-size 64"
        problems.append(InputError("the step time of one rank alone is missing", hint=hint))
    elif request.step_ms is None and request.batch_size is None:
        text = "--img-sec requires --batch-size to compute the step time"
        problems.append(InputError(text, hint="for example: --batch-size 64"))
    if request.link is None:
        text = "--link is missing: the rate of a host's link"
        problems.append(InputError(text, hint="for example: --link 8gbit"))
    return problems


def _gradients(request: PredictRequest, folder: Path) -> Gradients:
    if request.parameters:
        return table.counted(request.parameters)
    if request.model:
        return table.named(request.model, (images_dir() / "lib" / "models.json").read_text(encoding="utf-8"))
    path = folder / expanded(str(request.gradients))
    text = text_of(path)
    if text is None:
        raise InputError(
            "cannot be read: No such file or directory",
            file=str(request.gradients),
            hint="write --gradients with a file of gradients",
        )
    return table.from_file(text, file=str(request.gradients))


def _step(request: PredictRequest) -> tuple[float, str]:
    """Return the seconds of a step, and where they are from. `_missing` has found nothing missing."""
    if request.step_ms is not None:
        return request.step_ms / 1e3, "given"
    images, pace = request.batch_size or 0, request.img_sec or math.inf
    return images / pace, f"{images} images at {pace:g} a second"


class _Sources(Struct, frozen=True, kw_only=True):
    """The source of three values, in words."""

    step: str
    intra: str
    memory: str


def _assumptions(
    request: PredictRequest, gradients: Gradients, links: Links, sources: _Sources
) -> tuple[Assumption, ...]:
    default = PredictRequest()

    def row(what: str, value: str, source: str, name: str = "") -> Assumption:
        own = bool(name) and getattr(request, name) != getattr(default, name)
        return Assumption(what=what, value=value, source="given" if own else source)

    bits = 4 if request.compression == "none" else 2
    step, _ = _step(request)
    return (
        row("gradients", f"{gradients.elements:,} numbers of {bits} bytes", gradients.source),
        row("step alone", f"{1e3 * step:.1f} ms on every rank, always", sources.step),
        row(
            "forward",
            f"{request.forward_share:.3f} of the step",
            "backward has twice forward's products",
            "forward_share",
        ),
        row("backward's pace", "each layer's multiplications", "only convolutions and dense layers cost time"),
        row("link", f"{request.link}, full duplex, {_shared(request)}", "given"),
        row("payload", f"{request.payload_share:.3f} of it: {links.inter / 1e6:.1f} MB/s", _PAYLOAD, "payload_share"),
        row("both directions", *_BOTH_WAYS["turns" if links.turns_from < math.inf else request.library]),
        row("other traffic", "none; all links run at full rate at once", "assumed"),
        row(
            "latency",
            f"{request.latency_us:g} us a message between hosts",
            "TCP in one data center: 20 to 100",
            "latency_us",
        ),
        row("within a host", f"{links.intra / 1e9:.1f} GB/s, {1e6 * links.intra_latency:.0f} us", sources.intra),
        row("copy and add", f"{links.memory / 1e9:.1f} GB/s", sources.memory),
        row("library", _LIBRARIES[request.library], "assumed"),
        row("algorithm", request.algorithm, _AUTO[request.library] if request.algorithm == "auto" else "given"),
        row("fusion buffer", f"{request.fusion_mb:g} MiB", "Horovod 0.28's default", "fusion_mb"),
        row("cycle", f"{request.cycle_ms:g} ms", "Horovod 0.28's default", "cycle_ms"),
        row("not modeled", "input, optimizer, stragglers, lost packets, TCP that pauses (BBR)", "assumed"),
    )


def _shared(request: PredictRequest) -> str:
    ranks = min(request.per_host, request.gpus)
    return "for the one rank of a host" if ranks == 1 else f"shared by the {ranks} ranks of a host"


_PAYLOAD = "TCP with timestamps in Ethernet frames of 1500 bytes: 1448 of 1538"
_LIBRARIES = {
    "nccl": "nccl: all-reduces queue on the GPU, one at a time; Horovod continues",
    "mpi": "mpi: Horovod's thread waits for each all-reduce",
}
_BOTH_WAYS = {
    "nccl": ("two ranks send each other at once", "NCCL has a connection for each way"),
    "mpi": ("two ranks send each other at once", "given: mpi.args like kit tune's duplex"),
    "turns": ("two ranks take turns from 64 KiB on: worst case", "Open MPI's TCP by default; --duplex: best case"),
}
_AUTO = {
    "nccl": "NCCL: ring or tree, whichever is faster",
    "mpi": "Open MPI 4.1: Rabenseifner from 8 KiB on, below recursive doubling",
}
