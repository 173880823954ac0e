"""What all cases of kit bench are made of: the cluster, what was asked for, sizes, the words of programs. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from kit.errors import InputError
from kit.model.bench import Case
from kit.model.launch import Node

LADDER = "ladder"
PRESETS = ("egs", "networks", "kvstore", "compression", "tuning")
WORKLOADS = ("mxnet", "tf")
Network = Literal["host", "bare", "bridge", "overlay"]
NETWORKS: tuple[Network, ...] = ("bare", "host", "bridge", "overlay")
# Frameworks by the flavour of the image. An ssh-layer's base may hold either: only a run tells.
FLAVOURS: Mapping[str, tuple[str, ...]] = {"cuda-tensorflow": ("tensorflow",), "cuda-mxnet": ("mxnet",)}


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchFacts:
    """What of the cluster decides which cases there are. `nodes` are those that run ranks, in the hosts' order.

    `frameworks` is empty where the image's are not known. `members` are hosts of one and the same swarm, whose manager
    the head is. `pythons` are the hosts with a python3 of their own.
    """

    nodes: tuple[Node, ...]
    gpus: int = 0
    frameworks: tuple[str, ...] = ()
    members: frozenset[str] = frozenset()
    pythons: frozenset[str] = frozenset()

    @property
    def slots(self) -> int:
        return sum(node.slots for node in self.nodes)


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What kit bench was asked for; None (or nothing) is the preset's own choice.

    `paced` names a model whose gradients are exchanged beside a step that is slept, of `step_ms` milliseconds.
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
    paced: str | None = None
    step_ms: float | None = None
    repeats: int = 3
    warmup: int | None = None
    timeout_s: float = 600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """The cases in their order. `skipped` cannot be tried on this cluster: what it is → why."""

    cases: tuple[Case, ...]
    skipped: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    """How much a training does: of a launch the smallest that says something, and the same on every number of ranks."""

    model: str
    batch: int
    image: int
    warmup: int
    iters: int
    batches: int
    threads: int | None = None


def rank_counts(facts: BenchFacts, asked: Sequence[int] = ()) -> tuple[int, ...]:
    """1, 2, 4 … and all ranks; or those asked for. Raises InputError where the cluster has fewer slots."""
    slots = facts.slots
    for count in asked:
        if count > slots:
            raise InputError(
                f"--ranks {count} is more than the {slots} slots of the cluster",
                hint=f"write numbers up to {slots}, or leave --ranks out",
            )
    if asked:
        return tuple(sorted(set(asked)))
    doubles = [1 << power for power in range(slots.bit_length()) if 1 << power < slots]
    return (*doubles, slots)


def workload_of(facts: BenchFacts, asked: Asked) -> str:
    """mxnet or tf. MXNet where the image has both: it starts sooner. Raises InputError where the image lacks it."""
    frameworks = {"mxnet": "mxnet", "tf": "tensorflow"}
    has = [name for name in WORKLOADS if not facts.frameworks or frameworks[name] in facts.frameworks]
    if asked.workload is None:
        return has[0]
    if asked.workload not in has:
        raise InputError(
            f"--workload {asked.workload}: the cluster's image has no {frameworks[asked.workload]}",
            hint=f"write --workload {has[0]}, or change image.frameworks in kit.yaml and deploy",
        )
    return asked.workload


def sizes_of(facts: BenchFacts, asked: Asked, workload: str) -> Sizes:
    """For CPUs so small that a whole preset takes minutes; for GPUs what the published tables have."""
    if facts.gpus:
        own = Sizes(model={"mxnet": "resnet50_v1", "tf": "resnet50"}[workload], batch=64, image=224,
                    warmup=10, iters=10, batches=10)  # fmt: skip
    elif workload == "mxnet":
        own = Sizes(model="resnet18_v1", batch=8, image=64, warmup=2, iters=5, batches=2)
    else:
        own = Sizes(model="mobilenetv2", batch=8, image=64, warmup=2, iters=5, batches=2)
    return Sizes(
        model=asked.model or own.model,
        batch=asked.batch_size or own.batch,
        image=asked.image_size or own.image,
        warmup=asked.num_warmup or own.warmup,
        iters=asked.num_iters or own.iters,
        batches=asked.num_batches or own.batches,
        threads=None if facts.gpus else _threads(facts),
    )


def _threads(facts: BenchFacts) -> int | None:
    """Of a CPU rank: its share of a host that is full. A rank alone would take all cores, and nothing would scale."""
    shares = [node.cores // node.slots for node in facts.nodes if node.cores]
    return max(1, min(shares)) if shares else None


def training(workload: str, sizes: Sizes, *more: str) -> tuple[str, ...]:
    """The words of tf_benchmark or mxnet_benchmark."""
    threads = ("--intra-op", str(sizes.threads)) if sizes.threads else ()
    return (
        f"{workload}_benchmark", "--model", sizes.model, "--batch-size", str(sizes.batch),
        "--image-size", str(sizes.image), "--num-warmup", str(sizes.warmup), "--num-iters", str(sizes.iters),
        "--num-batches-per-iter", str(sizes.batches), *threads, *more, "--json",
    )  # fmt: skip


def paced(asked: Asked, *more: str) -> tuple[str, ...]:
    """The words of paced_benchmark: a model's gradients beside a step that is slept."""
    step = asked.step_ms if asked.step_ms is not None else 200.0
    sizes = (("--num-warmup", asked.num_warmup), ("--num-iters", asked.num_iters), ("--batch-size", asked.batch_size))
    given = [word for flag, value in sizes if value is not None for word in (flag, str(value))]
    return ("paced_benchmark", "--model", str(asked.paced), "--step-ms", f"{step:g}", *given, *more, "--json")


def plural(count: int, what: str) -> str:
    """`1 rank`, `8 ranks`."""
    return f"{count} {what}{'' if count == 1 else 's'}"
