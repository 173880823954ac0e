"""Compare kit predict with paced runs (SIMULATED computing, real exchange) on a lab's shaped links.

This module defines what runs, which results of the run the prediction uses, and how close is close enough.
tests/integration/test_predict.py and scripts/measure-predict share it, so it does not need pytest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kit.flows.predict import PredictRequest, predict
from kit.model.allreduce import Algorithm

# Ranks on each host, by the rate of its link. With faster links, fewer ranks wait on the same cores.
RATES: Mapping[str, int] = {"60mbit": 2, "80mbit": 1, "100mbit": 2, "160mbit": 1}
# Milliseconds of a step alone, chosen so that the links cost much at 60mbit and little at 160mbit.
MODELS: Mapping[str, int] = {"squeezenet": 1200, "mobilenetv2": 1800, "mobilenet": 2200}
CYCLE_MS = 10.0
# The greatest difference of a prediction, in points of efficiency.
POINTS = 3.0
# A single rank only sleeps. If that took longer by this share, the machine did something else.
LATE = 0.01

# tc counts Ethernet's header, but not what the wire adds to a frame.
LAB_PAYLOAD = 1448 / 1514
# `auto` is Open MPI's default.
ALGORITHMS: Mapping[Algorithm, tuple[str, ...]] = {
    "ring": ("-x", "OMPI_MCA_coll_tuned_use_dynamic_rules=1", "-x", "OMPI_MCA_coll_tuned_allreduce_algorithm=4"),
    "auto": ("-x", "OMPI_MCA_coll_tuned_use_dynamic_rules=0"),
}


@dataclass(frozen=True, kw_only=True)
class Compared:
    """The efficiency of a model's paced run (1.0: links cost nothing), measured and predicted.

    `disturbed`: the run's own times show that the machine did something else in the meantime.
    """

    model: str
    measured: float
    predicted: float
    disturbed: bool

    @property
    def points(self) -> float:
        """Return how many points the prediction is above the measurement; negative if it is below."""
        return 100 * (self.predicted - self.measured)

    @property
    def near(self) -> bool:
        return abs(self.points) <= POINTS


def run_words(models: Mapping[str, int], *, hosts: int, per_host: int, algorithm: Algorithm = "ring") -> list[str]:
    """Return the words after `kit run` for a paced run of these models (name → milliseconds of a step alone)."""
    steps = ",".join(str(step) for step in models.values())
    return [
        *("--np", str(per_host * hosts), "--npernode", str(per_host), *ALGORITHMS[algorithm], "--", "paced_benchmark"),
        *("--model", ",".join(models), "--step-ms", steps, "--cycle-ms", str(CYCLE_MS)),
        *("--num-warmup", "1", "--num-iters", "2", "--json"),
    ]


def attempts(
    pace: Callable[[Mapping[str, int]], dict[str, Any]],
    *,
    most: int,
    spare: int = 0,
    rate: str,
    per_host: int,
    algorithm: Algorithm = "ring",
) -> Iterator[Compared]:
    """Yield each comparison at this rate. `pace` runs models with run_words and returns paced_benchmark's object.

    Other work on the machine makes a step longer, never shorter, so the fastest step is compared with the prediction.
    Models that differ too much run again, together with the others that do, until all are near, at most `most` times.
    A disturbed run does not count as an attempt; there are at most `spare` of these.
    """
    left, tried = dict(MODELS), dict.fromkeys(MODELS, 0)
    for _ in range(most + spare):
        again = {model: step for model, step in left.items() if tried[model] < most}
        if not again:
            return
        result = pace(again)
        runs = result["runs"] if len(again) > 1 else [result]
        names = [run["model"] for run in runs]
        assert (result["simulated"], names) == (True, list(again)), names
        for run in runs:
            compared = Compared(
                model=run["model"],
                measured=run["alone_s"] / min(run["steps"]),
                predicted=_predicted(result, run, rate, per_host, algorithm),
                disturbed=_disturbed(run),
            )
            tried[compared.model] += not compared.disturbed
            if compared.near:
                del left[compared.model]
            yield compared


def _disturbed(run: Mapping[str, Any]) -> bool:
    """Whether a step of the very same work took noticeably longer than another, or sleeping longer than was asked."""
    uneven = max(run["steps"]) > (1 + POINTS / 100) * min(run["steps"])
    return uneven or bool(run["alone_s"] > (1 + LATE) * run["step_ms"] / 1e3)


def _predicted(
    result: Mapping[str, Any], run: Mapping[str, Any], rate: str, per_host: int, algorithm: Algorithm
) -> float:
    """The efficiency, by kit predict. What the cores cost is measured by the same run, and given to it: how fast all
    ranks together copy and add numbers, and how long a message takes."""
    # A number goes round twice to agree and twice to be summed, after Horovod's cycle; by Open MPI's own choice it is
    # exchanged in log2(n) rounds instead.
    ranks = result["ranks"]
    rounds = ranks - 1 if algorithm == "ring" else (ranks - 1).bit_length() / 2
    message = max(0.0, result["tiny_allreduce_s"] - CYCLE_MS / 1e3) / (4 * rounds)
    memory = f"{result['memory_rate'] * 8 / 1e6:.3f}mbit"
    request = PredictRequest(
        model=run["model"], gpus=ranks, per_host=per_host, step_ms=run["alone_s"] * 1e3, link=rate, library="mpi",
        algorithm=algorithm, cycle_ms=CYCLE_MS, latency_us=message * 1e6, intra=memory, memory_rate=memory,
        payload_share=LAB_PAYLOAD,
    )  # fmt: skip
    return predict(request, folder=Path()).predictions[-1].efficiency
