"""Simulates one training step on a number of ranks, event by event, as Horovod runs it. Pure.

The backward pass produces gradients layer by layer. In each cycle, Horovod takes those that every rank has, joins them
up to the size of its fusion buffer, and sums one batch after the other. Sums during the backward pass cost nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor

from msgspec import Struct

from kit.model.scaling import Gradients, Links, Prediction, Training
from kit.plan.predict.collectives import Ranks, allreduce

# The message by which ranks agree on tensors: a bit for each tensor, and some flags.
NEGOTIATION_BYTES = 64


class _Tensor(Struct, frozen=True, kw_only=True):
    ready: float
    size: int


def predict(gradients: Gradients, training: Training, links: Links, *, ranks: int, per_host: int) -> Prediction:
    """Predict one step of `ranks` ranks, `per_host` on each host."""
    placed = Ranks(count=ranks, per_host=per_host)
    played = _Step(training, links, placed)
    if ranks > 1:
        played.play(ready(gradients, training))
    end = max(training.step, played.end)
    busy = played.wire + played.copy + played.negotiation
    exposed = end - training.step
    return Prediction(
        ranks=ranks,
        hosts=placed.hosts,
        algorithm=played.algorithm,
        alone=training.step,
        step=end,
        wire=played.wire,
        copy=played.copy,
        negotiation=played.negotiation,
        hidden=max(0.0, busy - exposed),
        exposed=exposed,
        batches=played.batches,
        host_bytes=played.host_bytes,
    )


def mean_wait(gradients: Gradients, training: Training, links: Links, *, ranks: int, per_host: int) -> float:
    """Predict how long the mean tensor of such a step waits, in seconds: from the moment when all ranks have it, until
    its all-reduce begins."""
    tensors = ready(gradients, training)
    played = _Step(training, links, Ranks(count=ranks, per_host=per_host))
    played.play(tensors)
    return played.waited / len(tensors)


def ready(gradients: Gradients, training: Training) -> tuple[_Tensor, ...]:
    """Return each tensor's bytes on the wire, and when it is ready, in seconds from the start of the step.

    The forward pass takes its share of the step. Each layer's share of the backward pass is its share of the
    multiplications.
    """
    total = sum(layer.work for layer in gradients.layers) or 1.0
    backward = training.step * (1 - training.forward_share)
    tensors, done = [], 0.0
    for layer in gradients.layers:
        done += layer.work
        moment = training.step - backward * (1 - done / total)
        tensors += [_Tensor(ready=moment, size=n * training.element_bytes) for n in layer.elements]
    return tuple(tensors)


class _Step:
    """A step in progress: the time of each part so far."""

    def __init__(self, training: Training, links: Links, ranks: Ranks) -> None:
        self._training, self._links, self._ranks = training, links, ranks
        self.end = self.wire = self.copy = self.negotiation = self.host_bytes = self.waited = 0.0
        self.batches, self.algorithm, self._largest = 0, "none", -1.0

    def play(self, tensors: Sequence[_Tensor]) -> None:
        queued, waits = list(tensors), self._training.library == "mpi"
        cycle = max(self._training.cycle, 1e-9)
        agree = self._agreement()
        now = 0.0  # when Horovod's thread is free
        while queued:
            # Horovod looks once a cycle. If a cycle took longer, the next one follows immediately.
            first = max(queued[0].ready, 0.0)
            now = max(now, _next(first, cycle)) if first > now else now
            available = [tensor for tensor in queued if tensor.ready <= now + 1e-12]
            queued = queued[len(available) :]
            began = now
            now += agree
            self.negotiation += agree
            for batch in fuse(available, self._training.fusion):
                start = now if waits else max(now, self.end)
                self.waited += sum(start - tensor.ready for tensor in batch)
                self.end = start + self._exchange(batch)
                now = self.end if waits else now
            now = max(now, began + cycle)

    def _agreement(self) -> float:
        """Return the seconds of one agreement: MPI sums a bit vector over the same links, by the given algorithm."""
        algorithm = self._training.algorithm if self._training.library == "mpi" else "auto"
        return allreduce(NEGOTIATION_BYTES, self._ranks, self._links, algorithm=algorithm, library="mpi").seconds

    def _exchange(self, batch: Sequence[_Tensor]) -> float:
        size = sum(tensor.size for tensor in batch)
        training = self._training
        cost = allreduce(size, self._ranks, self._links, algorithm=training.algorithm, library=training.library)
        # A single tensor is summed in place; several are copied into the fusion buffer and out of it.
        copy = 2 * size / self._links.memory if len(batch) > 1 else 0.0
        self.wire += cost.seconds
        self.copy += copy
        self.host_bytes += cost.host_bytes
        self.batches += 1
        if size > self._largest:
            self._largest, self.algorithm = size, cost.algorithm
        return cost.seconds + copy


def fuse(tensors: Sequence[_Tensor], limit: int) -> list[list[_Tensor]]:
    """Join tensors in order as long as they fit into the fusion buffer."""
    batches: list[list[_Tensor]] = []
    size = 0
    for tensor in tensors:
        if batches and size + tensor.size <= limit:
            batches[-1].append(tensor)
            size += tensor.size
        else:
            batches.append([tensor])
            size = tensor.size
    return batches


def _next(moment: float, cycle: float) -> float:
    """Return the first whole cycle at or after a moment."""
    number = floor(moment / cycle)
    return number * cycle if number * cycle >= moment - 1e-12 else (number + 1) * cycle
