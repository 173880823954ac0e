"""Input and output of `kit predict`: a model's gradients, the cluster and its links, and the time of a step."""

from __future__ import annotations

from math import inf

from msgspec import Struct

from kit.model.allreduce import Algorithm, Library


class Layer(Struct, frozen=True, kw_only=True):
    """A layer of a model: `work` is its share of the model's multiplications in any unit, `elements` the sizes of its
    trainable tensors in numbers."""

    work: float
    elements: tuple[int, ...]


class Gradients(Struct, frozen=True, kw_only=True):
    """A model as the network sees it. `layers` are in the order of the backward pass."""

    model: str
    source: str
    layers: tuple[Layer, ...]

    @property
    def elements(self) -> int:
        return sum(sum(layer.elements) for layer in self.layers)

    @property
    def tensors(self) -> int:
        return sum(len(layer.elements) for layer in self.layers)


class Links(Struct, frozen=True, kw_only=True):
    """The links between ranks. Rates are payload bytes per second and direction; latencies are seconds per message.

    The ranks of a host share `inter`; each rank has its own `intra`. `memory` is the rate at which a rank copies or
    adds numbers. Two ranks on different hosts that exchange `turns_from` bytes or more take turns: first one direction,
    then the other.
    """

    inter: float
    inter_latency: float
    intra: float
    intra_latency: float
    memory: float
    turns_from: float = inf


class Training(Struct, frozen=True, kw_only=True):
    """One training step: the seconds of a rank alone, and Horovod's settings.

    `fusion` is bytes, `cycle` seconds, `element_bytes` the size of a number on the wire.
    """

    step: float
    forward_share: float = 1 / 3
    library: Library = "nccl"
    algorithm: Algorithm = "auto"
    element_bytes: int = 4
    fusion: int = 128 * 2**20
    cycle: float = 1e-3


class Prediction(Struct, frozen=True, kw_only=True):
    """One step on `ranks` ranks, in seconds.

    `alone` is the step of a single rank, `step` the step of all. `wire` is the time of the all-reduces, `copy` the time
    for copies into and out of the fusion buffer, `negotiation` the time to agree on tensors. `hidden` is the part of
    these three that overlaps with computing, `exposed` the part that prolongs the step. `host_bytes` leave each host
    in a step.
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
        """Return the efficiency, 0 to 1: the speed of all ranks together against the same number of single ranks."""
        return self.alone / self.step

    @property
    def speedup(self) -> float:
        return self.ranks * self.efficiency


class Assumption(Struct, frozen=True, kw_only=True):
    """An assumption of the prediction: its value in words, and its source."""

    what: str
    value: str
    source: str
