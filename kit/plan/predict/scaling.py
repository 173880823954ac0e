"""What a training step takes on so many ranks: the events of one step, played through as Horovod would. Pure.

Backward makes gradients ready layer by layer. Horovod looks each cycle for those that every rank has, joins them up to
the size of its fusion buffer, and sums one batch after the other. What is summed while backward goes on costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor

from kit.model.scaling import Gradients, Links, Prediction, Training
from kit.plan.predict.collectives import Ranks, allreduce

# What ranks tell each other to agree on tensors: a bit for each of them, and some flags.
NEGOTIATION_BYTES = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class _Tensor:
    ready: float
    size: int


def predict(gradients: Gradients, training: Training, links: Links, *, ranks: int, per_host: int) -> Prediction:
    """One step of `ranks` ranks, `per_host` on each host."""
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


def ready(gradients: Gradients, training: Training) -> tuple[_Tensor, ...]:
    """Each tensor with its bytes on the wire and when it is there, in seconds from the start of the step.

    Forward takes its share of the step; of backward each layer takes as much as it has of the multiplications.
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
    """A step while it is played: what each part took so far."""

    def __init__(self, training: Training, links: Links, ranks: Ranks) -> None:
        self._training, self._links, self._ranks = training, links, ranks
        self.end = self.wire = self.copy = self.negotiation = self.host_bytes = 0.0
        self.batches, self.algorithm, self._largest = 0, "none", -1.0

    def play(self, tensors: Sequence[_Tensor]) -> None:
        queued, waits = list(tensors), self._training.library == "mpi"
        cycle = max(self._training.cycle, 1e-9)
        agree = self._agreement()
        now = 0.0  # when Horovod's thread is free
        while queued:
            # It looks at whole cycles; one that took longer is followed by the next at once.
            first = max(queued[0].ready, 0.0)
            now = max(now, _next(first, cycle)) if first > now else now
            found = [tensor for tensor in queued if tensor.ready <= now + 1e-12]
            queued = queued[len(found) :]
            began = now
            now += agree
            self.negotiation += agree
            for batch in fuse(found, self._training.fusion):
                start = now if waits else max(now, self.end)
                self.end = start + self._exchange(batch)
                now = self.end if waits else now
            now = max(now, began + cycle)

    def _agreement(self) -> float:
        """A bit vector, summed by MPI over the same links; by the algorithm that MPI was told, if it was."""
        algorithm = self._training.algorithm if self._training.library == "mpi" else "auto"
        return allreduce(NEGOTIATION_BYTES, self._ranks, self._links, algorithm=algorithm, library="mpi").seconds

    def _exchange(self, batch: Sequence[_Tensor]) -> float:
        size = sum(tensor.size for tensor in batch)
        training = self._training
        cost = allreduce(size, self._ranks, self._links, algorithm=training.algorithm, library=training.library)
        # A tensor alone is summed where it lies; several go into the fusion buffer and out of it.
        copy = 2 * size / self._links.memory if len(batch) > 1 else 0.0
        self.wire += cost.seconds
        self.copy += copy
        self.host_bytes += cost.host_bytes
        self.batches += 1
        if size > self._largest:
            self._largest, self.algorithm = size, cost.algorithm
        return cost.seconds + copy


def fuse(tensors: Sequence[_Tensor], limit: int) -> list[list[_Tensor]]:
    """Tensors in their order, joined as long as they fit into the fusion buffer."""
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
    """The first whole cycle that is not before a moment."""
    number = floor(moment / cycle)
    return number * cycle if number * cycle >= moment - 1e-12 else (number + 1) * cycle
