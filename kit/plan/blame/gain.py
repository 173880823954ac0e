"""Predicts the step without the fault, by the model of kit predict. Pure.

The observed run gives the model what it needs: tensors and bytes of a step, how long the operations take, and how long
the step takes. From these follow the rate of the links and the time of a rank alone. Then one of them changes: the late
rank computes as fast as the others, or the slow link is as fast as the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

from kit.model.blame import Gain
from kit.model.scaling import Gradients, Layer, Links, Training
from kit.model.values import replace
from kit.plan.blame.samples import Sample, Totals
from kit.plan.predict.scaling import mean_wait, predict

# More tensors only cost time: the model is the same for a hundred as for a thousand.
MOST_TENSORS = 200
# The model's guesses for what kit does not observe (kit.flows.predict has their sources).
_LATENCY, _INTRA, _INTRA_LATENCY, _MEMORY = 50e-6, 15.75e9, 5e-6, 5e9
_ROUNDS = 32


def gain(
    samples: Sequence[Sample], totals: Totals, *, ranks: int, per_host: int, lost: float, link: float = 1.0
) -> Gain:
    """Return what a step takes now and without the fault.

    `lost` is the share of the time that the others lose by a late rank, and `link` how many times faster the slow link
    would be. Without a count of steps, the model has nothing to work with, and the lost share is the answer.
    """
    if not totals.steps or totals.bytes <= 0:
        seconds = 1.0
        operation = fmean(_operation(sample) for sample in samples)
        saved = lost + operation * (1 - 1 / link)
        return Gain(now=seconds, then=seconds * max(0.05, 1 - saved), how="by the lost share of the time")
    now = 1 / totals.steps
    operation = min(fmean(_operation(sample) for sample in samples), 0.95) * now
    tensors = max(1, round(totals.tensors / totals.steps))
    gradients = _gradients(tensors, totals.bytes / totals.steps)

    def step(alone: float, rate: float) -> tuple[float, float]:
        played = predict(gradients, _training(alone), _links(rate), ranks=ranks, per_host=per_host)
        return played.step, played.wire + played.copy

    def rate_of(alone: float) -> float:
        return _solve(lambda rate: -step(alone, rate)[1], -operation, 1e3, 1e12, ratio=True)

    # The operations take the observed time, then the step does.
    rate = rate_of(now)
    alone = _solve(lambda alone: step(alone, rate)[0], now, 0.02 * now, now)
    if link > 1:
        # Tensors that wait for the operations of others tell how much of those the computing hides: the shorter the
        # step alone, the longer they wait. The latest ranks wait for nothing else.
        wait = fmean(min(sample.wait.values()) for sample in samples)

        def waits(alone: float) -> float:
            links = _links(rate_of(alone))
            return mean_wait(gradients, _training(alone), links, ranks=ranks, per_host=per_host)

        alone = _solve(lambda alone: -waits(alone), -wait, 0.02 * now, alone, rounds=12)
        rate = rate_of(alone)
    modelled = step(alone, rate)[0]
    without = step(max(alone - lost * now, 0.02 * now), rate * link)[0]
    return Gain(now=now, then=min(now, now * without / modelled), how="by kit predict's model")


def _operation(sample: Sample) -> float:
    return fmean(sample.operation.values())


def _gradients(tensors: int, size: float) -> Gradients:
    count = min(tensors, MOST_TENSORS)
    elements = max(1, round(size / 4 / count))
    layers = tuple(Layer(work=1.0, elements=(elements,)) for _ in range(count))
    return Gradients(model="observed", source="the run", layers=layers)


def _training(alone: float) -> Training:
    return Training(step=alone, library="mpi")


def _links(rate: float) -> Links:
    links = Links(
        inter=rate, inter_latency=_LATENCY, intra=_INTRA, intra_latency=_INTRA_LATENCY, memory=_MEMORY
    )  # fmt: skip
    # On one host, the observed rate is that of its memory.
    return replace(links, intra=max(rate, _INTRA))


def _solve(
    of: Callable[[float], float], wanted: float, low: float, high: float, *, ratio: bool = False, rounds: int = _ROUNDS
) -> float:
    """Return where a function that rises reaches a value, between two bounds; with `ratio`, by geometric halves."""
    for _ in range(rounds):
        middle = (low * high) ** 0.5 if ratio else (low + high) / 2
        if of(middle) < wanted:
            low = middle
        else:
            high = middle
    return high
