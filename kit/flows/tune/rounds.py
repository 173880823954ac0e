"""The rounds of kit tune: mpi_perf with one set of mpirun arguments after the other, then with the chosen one."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from kit.errors import KitError
from kit.flows.tune.perf import ENDING, LEAST_S, Perf, TimeIsUpError
from kit.model.tune import Machine, Timing, Tried
from kit.model.values import replace
from kit.plan.tune import candidates as rules

# The second round repeats only the AGAIN best candidates of the first.
ROUNDS, AGAIN = 2, 3
# What it costs to start and end a run.
LAUNCH_S = 4.0
HALF_DOWN = 0.5


def try_all(
    perf: Perf, machines: Sequence[Machine], current: Tried, *, theirs: Sequence[str], tcp: float | None, ranks: int
) -> tuple[Tried, list[Tried]]:
    """Measure the current arguments and each candidate in rounds, so that a disturbance affects all of them alike."""
    known = rules.parameters_of(theirs)
    trials = [current] + [
        Tried(name=candidate.name, parameters=candidate.parameters)
        for candidate in rules.candidates(machines, allreduce=perf.context.spec.mpi.allreduce)
        if {**dict(candidate.parameters), **known} != dict(current.parameters)
        and not (candidate.parameters and all(name in known for name, _ in candidate.parameters))
        and not rules.stalls({**dict(candidate.parameters), **known})
        and not rules.takes_over(dict(candidate.parameters), known)
    ]
    perf.planned = len(trials) + 1 + min(AGAIN, len(trials) - 1) + perf.later
    perf.spent_s = time.monotonic() - perf.start
    perf.per_run_s = per_run = max(5.0, (perf.end - time.monotonic()) / (perf.planned + 1))
    size = rules.message_bytes(wire=tcp, ranks=ranks, per_run_s=per_run)
    seconds: dict[str, list[float]] = {trial.name: [] for trial in trials}
    failures: dict[str, KitError] = {}
    for number in range(ROUNDS):
        for trial in trials if number == 0 else _again(trials, seconds):
            if trial.name in failures:
                continue
            # All others are compared with the current arguments, so these get their first run in any case.
            first = trial is current and number == 0
            if not first and time.monotonic() + per_run * HALF_DOWN > perf.end:
                perf.skipped.append(f"{trial.name}, round {number + 1}: no time left")
                continue
            args = perf.context.spec.mpi.args if trial is current else rules.with_parameters(theirs, trial.parameters)
            step = (
                f"all-reduce of {size // rules.MIB} MB on {ranks} ranks: {trial.name}, round {number + 1} of {ROUNDS}"
            )
            try:
                (row,) = perf.measure(args, str(size), max(1.0, per_run - LAUNCH_S) / 2, step, first=first)
            except ENDING:
                raise
            except KitError as error:
                if seconds[trial.name] and (trial is current or isinstance(error, TimeIsUpError)):
                    # The timing of the previous round still holds.
                    perf.skipped.append(f"{step}: {error.message}")
                    continue
                if trial is current and not theirs and not current.parameters:
                    raise
                failures[trial.name] = error
                # Settings that work only sometimes must not be chosen, however fast they are.
                seconds[trial.name].clear()
                continue
            seconds[trial.name] += row.samples
    if not any(seconds.values()):
        raise failures[current.name]
    measured = [
        replace(
            trial,
            timing=Timing(bytes=size, ranks=ranks, seconds=tuple(seconds[trial.name])) if seconds[trial.name] else None,
            failure=failures[trial.name].message if trial.name in failures else None,
        )
        for trial in trials
    ]
    return measured[0], measured[1:]


def _again(trials: Sequence[Tried], seconds: Mapping[str, list[float]]) -> list[Tried]:
    """Return the current arguments and the fastest of the others, in their order."""
    fastest = sorted((trial for trial in trials[1:] if seconds[trial.name]), key=lambda trial: min(seconds[trial.name]))
    return [trial for trial in trials if trial is trials[0] or trial in fastest[:AGAIN]]


def curve_of(perf: Perf, words: Sequence[str], ranks: int, tcp: float | None) -> tuple[float | None, dict[int, Timing]]:
    """Return the time of an 8-byte all-reduce and timings by size, with the chosen arguments."""
    left = perf.end - time.monotonic()
    size = rules.message_bytes(wire=tcp, ranks=ranks, per_run_s=max(left, 10.0))
    sizes = [8, *(rules.MIB << step for step in range(0, 7, 2) if rules.MIB << step <= size)]
    if left < LEAST_S / 2:
        perf.skipped.append("message sizes: no time left")
        return None, {}
    try:
        seconds = max(0.5, left / len(sizes) / 3)
        rows = perf.measure(words, ",".join(map(str, sizes)), seconds, "message sizes", last=True)
    except ENDING:
        raise
    except KitError as error:
        perf.failed_with_chosen(error, "message sizes")
        return None, {}
    timings = {row.bytes: Timing(bytes=row.bytes, ranks=ranks, seconds=row.samples) for row in rows}
    small = timings.get(8)
    return (small.median if small else None), timings


def halves(perf: Perf, words: Sequence[str], ranks: int, size: int) -> tuple[Timing, Timing] | None:
    """Return the timings of all-reduces of `size` and `size` / 2 bytes, or None if the measurement failed."""
    left = perf.end - time.monotonic()
    if left < LEAST_S / 2:
        perf.skipped.append("half the bytes, for --fp16: no time left")
        return None
    seconds = max(0.5, (min(left, perf.per_run_s) - LAUNCH_S) / 4)
    try:
        rows = perf.measure(words, f"{size},{size // 2}", seconds, "half the bytes, for --fp16")
    except ENDING:
        raise
    except KitError as error:
        perf.failed_with_chosen(error, "half the bytes, for --fp16")
        return None
    samples = {row.bytes: row.samples for row in rows}
    whole, half = (Timing(bytes=count, ranks=ranks, seconds=samples[count]) for count in (size, size // 2))
    return whole, half
