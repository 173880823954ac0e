"""The parts of every kit bench case: the cluster, the options, sizes, and the commands of programs. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct, field

from kit.errors import InputError
from kit.model.bench import Case
from kit.model.launch import Node
from kit.model.spec import ImageSpec, MpiSpec

LADDER = "ladder"
PRESETS = ("egs", "networks", "kvstore", "compression", "tuning")
# What --workload names, and the framework that its program needs.
FRAMEWORKS: Mapping[str, str] = {"mxnet": "mxnet", "tf": "tensorflow", "torch": "pytorch"}
WORKLOADS = tuple(FRAMEWORKS)
Network = Literal["host", "bare", "bridge", "overlay"]
NETWORKS: tuple[Network, ...] = ("bare", "host", "bridge", "overlay")
# Those to which Horovod belongs in kit's images.
WITH_HOROVOD = frozenset({"mxnet", "tensorflow"})
# Frameworks by the image's flavour. The base of an ssh-layer may contain either: only a run shows it.
FLAVOURS: Mapping[str, tuple[str, ...]] = {
    "cuda-tensorflow": ("tensorflow",),
    "cuda-mxnet": ("mxnet",),
    "pytorch": ("pytorch",),
    "cuda-pytorch": ("pytorch",),
}
# Their programs use no GPU, on hosts with GPUs as well.
_ON_CPUS = frozenset({"cpu", "pytorch"})


# Instead of a command, in the cases of networks.
PROBE = ("tcp_probe",)


class BenchFacts(Struct, frozen=True, kw_only=True):
    """The facts of the cluster that decide which cases exist. `nodes` are those that run ranks, in the hosts' order.

    `gpus` are those that the image can use. `frameworks` is empty if the image's frameworks are not known. `members`
    are hosts of the swarm that the head manages. `pythons` are the hosts that have python3. `plugin`: kit.yaml names a
    network plugin of NCCL. `data` are the names of its data sets. `mpi` are its options for mpirun.
    """

    nodes: tuple[Node, ...]
    gpus: int = 0
    frameworks: tuple[str, ...] = ()
    members: frozenset[str] = frozenset()
    pythons: frozenset[str] = frozenset()
    plugin: bool = False
    data: tuple[str, ...] = ()
    mpi: MpiSpec = field(default_factory=MpiSpec)

    @property
    def slots(self) -> int:
        return sum(node.slots for node in self.nodes)

    @property
    def horovod(self) -> bool:
        """Whether the image has Horovod, as far as that is known."""
        return has_horovod(self.frameworks)

    @property
    def unpaced(self) -> str:
        """Why paced_benchmark cannot run in the image, or ''. It exchanges arrays of MXNet through Horovod."""
        if not self.horovod:
            return "it measures Horovod, which this image does not have"
        if self.frameworks and "mxnet" not in self.frameworks:
            return "it needs MXNet, which this image does not have"
        return ""

    @property
    def nccl(self) -> bool:
        """Whether mpi_perf can go through NCCL. It does so through Horovod."""
        return bool(self.gpus) and self.horovod


class BenchOptions(Struct, frozen=True, kw_only=True):
    """The options of kit bench; None or an empty value is the preset's choice.

    `data` names a data set of kit.yaml: training is measured on its images too, beside synthetic ones.
    `paced` names a model: ranks exchange its gradients, and sleep instead of computing, `step_ms` milliseconds a step.
    """

    preset: str = LADDER
    workload: str | None = None
    model: str | None = None
    batch_size: int | None = None
    image_size: int | None = None
    num_warmup: int | None = None
    num_iters: int | None = None
    num_batches: int | None = None
    ranks: tuple[int, ...] = ()
    networks: tuple[str, ...] = ()
    stores: tuple[str, ...] = ()
    data: str | None = None
    paced: str | None = None
    step_ms: float | None = None
    repeats: int = 3
    warmup: int | None = None
    timeout_s: float = 600.0


def frameworks_of(image: ImageSpec, flavour: str) -> tuple[str, ...]:
    """Return the frameworks of an image that has this flavor. They are empty if they are not known."""
    return image.frameworks if flavour == "cpu" else FLAVOURS.get(flavour, ())


def has_horovod(frameworks: Sequence[str]) -> bool:
    """Return whether an image with these frameworks has Horovod, as far as that is known."""
    return not frameworks or bool(WITH_HOROVOD & set(frameworks))


def usable_gpus(flavour: str, gpus: int) -> int:
    """Return how many of the hosts' GPUs an image of this flavor uses: all or none."""
    return 0 if flavour in _ON_CPUS else gpus


class Planned(Struct, frozen=True, kw_only=True):
    """The cases in order. `skipped` cannot run on this cluster: what → why."""

    cases: tuple[Case, ...]
    skipped: Mapping[str, str] = field(default_factory=dict)


class Sizes(Struct, frozen=True, kw_only=True):
    """The size of a training case: the smallest with a meaningful result, and the same for every number of ranks."""

    model: str
    batch: int
    image: int
    warmup: int
    iters: int
    batches: int
    threads: int | None = None


def rank_counts(facts: BenchFacts, requested: Sequence[int] = ()) -> tuple[int, ...]:
    """Return 1, 2, 4 … and all ranks, or the requested counts. Raises InputError if the cluster has fewer slots."""
    slots = facts.slots
    for count in requested:
        if count > slots:
            raise InputError(
                f"--ranks {count} is more than the {slots} slots of the cluster",
                hint=f"write numbers up to {slots}, or leave --ranks out",
            )
    if requested:
        return tuple(sorted(set(requested)))
    doubles = [1 << power for power in range(slots.bit_length()) if 1 << power < slots]
    return (*doubles, slots)


def workload_of(facts: BenchFacts, options: BenchOptions) -> str:
    """Return mxnet, tf or torch: MXNet if the image has it, because it starts soonest. Raises InputError if missing."""
    has = [name for name in WORKLOADS if not facts.frameworks or FRAMEWORKS[name] in facts.frameworks]
    if options.workload is None:
        return has[0]
    if options.workload not in has:
        raise InputError(
            f"--workload {options.workload}: the cluster's image has no {FRAMEWORKS[options.workload]}",
            hint=f"write --workload {has[0]}, or change image.frameworks in kit.yaml and deploy",
        )
    return options.workload


def sizes_of(facts: BenchFacts, options: BenchOptions, workload: str) -> Sizes:
    """Return the sizes: on CPUs small enough for a preset to take minutes, on GPUs those of the published tables."""
    if facts.gpus:
        models = {"mxnet": "resnet50_v1", "tf": "resnet50", "torch": "resnet50"}
        own = Sizes(model=models[workload], batch=64, image=224, warmup=10, iters=10, batches=10)
    else:
        models = {"mxnet": "resnet18_v1", "tf": "mobilenetv2", "torch": "resnet18"}
        own = Sizes(model=models[workload], batch=8, image=64, warmup=2, iters=5, batches=2)
    return Sizes(
        model=options.model or own.model,
        batch=options.batch_size or own.batch,
        image=options.image_size or own.image,
        warmup=options.num_warmup or own.warmup,
        iters=options.num_iters or own.iters,
        batches=options.num_batches or own.batches,
        threads=None if facts.gpus else _threads(facts),
    )


def _threads(facts: BenchFacts) -> int | None:
    """Return the threads of a CPU rank: its share of a full host. Otherwise one rank would use all cores already."""
    shares = [node.cores // node.slots for node in facts.nodes if node.cores]
    return max(1, min(shares)) if shares else None


def training(workload: str, sizes: Sizes, *more: str) -> tuple[str, ...]:
    """Return the command for tf_benchmark, mxnet_benchmark or torch_benchmark."""
    threads = ("--intra-op", str(sizes.threads)) if sizes.threads else ()
    return (
        f"{workload}_benchmark", "--model", sizes.model, "--batch-size", str(sizes.batch),
        "--image-size", str(sizes.image), "--num-warmup", str(sizes.warmup), "--num-iters", str(sizes.iters),
        "--num-batches-per-iter", str(sizes.batches), *threads, *more, "--json",
    )  # fmt: skip


def paced(options: BenchOptions, *more: str) -> tuple[str, ...]:
    """Return the command for paced_benchmark: real exchange of a model's gradients, simulated computing."""
    step = options.step_ms if options.step_ms is not None else 200.0
    sizes = (
        ("--num-warmup", options.num_warmup),
        ("--num-iters", options.num_iters),
        ("--batch-size", options.batch_size),
    )
    given = [word for flag, value in sizes if value is not None for word in (flag, str(value))]
    return ("paced_benchmark", "--model", str(options.paced), "--step-ms", f"{step:g}", *given, *more, "--json")
