"""In which order the repeats of a session's cases go, which are left to do, and how long that takes. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from msgspec import Struct

from kit.model.bench import RUNGS, Case, Sample

# What a launch takes, in seconds, as long as none of its kind has been timed: a guess on the safe side.
GUESSES = {
    "true": 3.0,
    "tcp_probe": 12.0,
    "hvd_check": 15.0,
    "mpi_perf": 20.0,
    "mxnet_benchmark": 15.0,
    "mxnet_train": 25.0,
    "paced_benchmark": 25.0,
    "tf_benchmark": 90.0,
    "torch_benchmark": 40.0,
}
GUESS = 60.0


class Turn(Struct, frozen=True, kw_only=True):
    """One launch to come: the `repeat`-th of the case, from 1 on; warm-ups count by themselves."""

    case: Case
    repeat: int
    warmup: bool = False


def turns(cases: Sequence[Case], samples: Iterable[Sample] = ()) -> tuple[Turn, ...]:
    """What is left to do, rung by rung; within a rung all cases have their first repeat before any has its second.

    So a machine that grows slower over an hour does that to all cases alike. Warm-ups come before all repeats of the
    rung. A repeat that failed is tried again. Cases of a rung that RUNGS does not order keep their place.
    """
    done = {(sample.case, sample.repeat, sample.warmup) for sample in samples if sample.failure is None}
    ordered: list[Turn] = []
    for rung in RUNGS:
        here = [case for case in cases if case.rung == rung]
        ordered += [Turn(case=c, repeat=n, warmup=True) for c in here for n in range(1, c.warmup + 1)]
        most = max((case.repeats for case in here), default=0)
        ordered += [Turn(case=c, repeat=n) for n in range(1, most + 1) for c in here if n <= c.repeats]
    left = [turn for turn in ordered if (turn.case.id, turn.repeat, turn.warmup) not in done]
    # What a warm-up has warmed is warm for the rest of a case that has nothing left to measure.
    measured = {turn.case.id for turn in left if not turn.warmup}
    return tuple(turn for turn in left if not turn.warmup or turn.case.id in measured)


def seconds_left(left: Sequence[Turn], samples: Sequence[Sample] = ()) -> float:
    """Seconds for these turns: by the case's own launches, else those of its program, else a guess."""
    own: dict[str, list[float]] = {}
    for sample in samples:
        own.setdefault(sample.case, []).append(sample.seconds)
    kinds: dict[str, list[float]] = {}
    for turn in left:
        kinds.setdefault(turn.case.command[0], []).extend(own.get(turn.case.id, ()))
    total = 0.0
    for turn in left:
        program = turn.case.command[0]
        timed = own.get(turn.case.id) or kinds[program]
        total += statistics.median(timed) if timed else GUESSES.get(program, GUESS)
    return total
