"""The preset tuning: all-reduce by algorithm, and Horovod's own settings, each with each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from kit.model.bench import Case
from kit.model.values import replace
from kit.plan.bench.cases import BenchFacts, BenchOptions, Planned, paced
from kit.plan.bench.presets.parts import ALGORITHMS, on_all_ranks
from kit.plan.run.allreduce import without_choice


def tuning(facts: BenchFacts, options: BenchOptions) -> Planned:
    """All-reduce by algorithm; then a model's gradients by fusion, cycle time, algorithm and fp16, each with each."""
    if facts.slots < 2:
        return Planned(cases=(), skipped={"tuning": "there is one slot alone, and nobody to exchange with"})
    plain = [
        on_all_ranks(
            facts, options, id=f"tuning/allreduce/{name}", title=f"all-reduce, {name}", rung="collectives",
            command=("mpi_perf", "allreduce", "--sizes", "64K,1M,16M,64M", "--seconds", "1", "--json"),
            series="all-reduce", x=name, env=env,
        )
        for name, env in ALGORITHMS.items()
    ]  # fmt: skip
    if facts.unpaced:
        return Planned(cases=_alike(facts, plain), skipped={"paced": facts.unpaced})
    model = replace(options, paced=options.paced or "resnet50")
    crossed = []
    for fusion, cycle, algorithm, half in product((128, 16), (1, 5), ("default", "ring"), ("none", "fp16")):
        name = f"fusion-{fusion}MB,cycle-{cycle}ms,{algorithm},{half}"
        env = (
            ("HOROVOD_FUSION_THRESHOLD", str(fusion << 20)),
            ("HOROVOD_CYCLE_TIME", str(cycle)),
            *ALGORITHMS[algorithm],
        )
        crossed.append(
            on_all_ranks(
                facts,
                model,
                id=f"tuning/{model.paced}-paced/{name}",
                title=f"{model.paced} paced, {name.replace(',', ', ')}",
                command=paced(model, "--compression", half),
                series=f"{model.paced} paced (SIMULATED)",
                x=name,
                env=env,
            )
        )
    return Planned(cases=_alike(facts, [*plain, *crossed]))


def _alike(facts: BenchFacts, cases: Sequence[Case]) -> tuple[Case, ...]:
    """Return the cases without kit.yaml's choice of an algorithm, such as the ring of kit tune.

    Open MPI would use the ring in each case: it reads the file with rules before the name of an algorithm.
    """
    settings = {} if facts.mpi.allreduce == "auto" else {"mpi.allreduce": "auto"}
    own = without_choice(facts.mpi.args) != facts.mpi.args
    return tuple(replace(case, settings=settings, own_algorithm=own) for case in cases)
