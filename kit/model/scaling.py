"""What `kit predict` is asked and answers: a model's gradients, the cluster and its links, and the time of a step."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from kit.model.allreduce import Algorithm, Library


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """A layer of a model: `work` is its share of the model's multiplications in any unit, `elements` the sizes of its
    trainable tensors in numbers."""

    work: float
    elements: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Gradients:
    """A model as the network sees it. `layers` are in the order in which backward is done with them."""

    model: str
    source: str
    layers: tuple[Layer, ...]

    @property
    def elements(self) -> int:
        return sum(sum(layer.elements) for layer in self.layers)

    @property
    def tensors(self) -> int:
        return sum(len(layer.elements) for layer in self.layers)


@dataclass(frozen=True, kw_only=True, slots=True)
class Links:
    """The ways between ranks. Rates are bytes of payload a second and direction; latencies seconds a message.

    `inter` is shared by the ranks of a host, `intra` belongs to each rank. `memory` is the rate at which a rank copies,
    or adds up, numbers. Two ranks on different hosts that send each other `turns_from` bytes or more take turns: first
    one direction, then the other.
    """

    inter: float
    inter_latency: float
    intra: float
    intra_latency: float
    memory: float
    turns_from: float = inf


@dataclass(frozen=True, kw_only=True, slots=True)
class Training:
    """How one step is done: seconds of a rank alone, and what Horovod makes of the gradients.

    `fusion` is bytes, `cycle` seconds, `element_bytes` the size of a number on the wire.
    """

    step: float
    forward_share: float = 1 / 3
    library: Library = "nccl"
    algorithm: Algorithm = "auto"
    element_bytes: int = 4
    fusion: int = 128 * 2**20
    cycle: float = 1e-3


@dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
    """One step on so many ranks, in seconds.

    `alone` is the step without others; `step` with them. `wire` is the all-reduces' own time, `copy` into and out of
    the fusion buffer, `negotiation` what Horovod needs to agree. `hidden` is how much of these three went on beside the
    computing, `exposed` how much longer the step became. `host_bytes` leave each host a step.
    """

    ranks: int
    hosts: int
    algorithm: str
    alone: float
    step: float
    wire: float
    copy: float
    negotiation: float
    hidden: float
    exposed: float
    batches: int
    host_bytes: float

    @property
    def efficiency(self) -> float:
        """Of 1: the speed of all ranks together against so many alone."""
        return self.alone / self.step

    @property
    def speedup(self) -> float:
        return self.ranks * self.efficiency


@dataclass(frozen=True, kw_only=True, slots=True)
class Assumption:
    """Something the prediction rests on: its value in words, and where that comes from."""

    what: str
    value: str
    source: str
