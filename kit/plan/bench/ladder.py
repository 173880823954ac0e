"""The ladder of kit bench: from what a cluster can do at the least to what it is for, each rung on the one below."""

from __future__ import annotations

from collections.abc import Mapping

from kit.model.bench import Case, Rung
from kit.plan.bench.cases import Asked, BenchFacts, Planned, paced, plural, rank_counts, sizes_of, training, workload_of

PROVES: Mapping[Rung, str] = {
    "reach": "every host answers, its engine and its node run, the head's ssh reaches each of them, and mpirun starts "
    "a process on every slot",
    "hello": "every rank starts the framework with Horovod, finds all others, and their sum is right",
    "ring": "data goes from each rank to the next, round through all of them",
    "collectives": "all-reduce, broadcast and all-gather work at every size, and how fast",
    "training": "a model trains on these ranks, and how much faster than on one",
}
# Who looks further where a rung fails.
NEXT: Mapping[Rung, str] = {
    "reach": "kit ps shows the hosts; kit deploy mends what is not as it should be",
    "hello": "kit run -- hvd_check says more; with mpirun alone: kit run -- hostname",
    "ring": "a firewall between the VMs, or a wrong network:? kit run -- mpi_perf latency",
    "collectives": "kit run -- mpi_perf allreduce shows at which size",
    "training": "kit runs, then kit logs ID shows all that it said",
}


def ladder(facts: BenchFacts, asked: Asked) -> Planned:
    """All rungs. With one slot alone nothing can be exchanged: ring and collectives are left out."""
    skipped: dict[str, str] = {}
    everybody = plural(facts.slots, "rank")
    cases = [
        Case(
            id="reach", rung="reach", title=f"reach: {plural(len(facts.nodes), 'host')}, {everybody}",
            proves=PROVES["reach"], command=("true",), np=facts.slots, series="reach", x=facts.slots, repeats=1,
            timeout_s=min(asked.timeout_s, 120.0),
        ),
        Case(
            id="hello", rung="hello", title=f"hello: {everybody}", proves=PROVES["hello"],
            command=hello(facts), np=facts.slots, series="hello", x=facts.slots, repeats=1, timeout_s=asked.timeout_s,
        ),
    ]  # fmt: skip
    if facts.slots > 1:
        cases += [
            Case(
                id="ring", rung="ring", title=f"ring: {everybody}", proves=PROVES["ring"],
                command=("mpi_perf", "ring", "--sizes", "8,64K,1M", "--seconds", "0.3", "--json"), np=facts.slots,
                series="ring", x=facts.slots, repeats=1, timeout_s=asked.timeout_s,
            ),
            Case(
                id="collectives", rung="collectives", title=f"collectives: {everybody}", proves=PROVES["collectives"],
                command=collectives(facts), np=facts.slots, series="collectives",
                x=facts.slots, repeats=asked.repeats, timeout_s=asked.timeout_s,
            ),
        ]  # fmt: skip
    else:
        skipped |= dict.fromkeys(("ring", "collectives"), "there is one slot alone, and nobody to exchange with")
    return Planned(cases=(*cases, *scaling(facts, asked, "training")), skipped=skipped)


def hello(facts: BenchFacts) -> tuple[str, ...]:
    """MXNet where the image has it: TensorFlow takes several times as long to start."""
    framework = ("--framework", "mxnet") if "mxnet" in facts.frameworks else ()
    return ("hvd_check", *framework, "--json")


def collectives(facts: BenchFacts) -> tuple[str, ...]:
    """Between GPUs it is NCCL that training uses."""
    through = ("--through", "nccl") if facts.gpus else ()
    tests = ("latency", "bandwidth", "allreduce", "bcast", "allgather") if not facts.gpus else ("allreduce", "bcast")
    return ("mpi_perf", *tests, "--sizes", "8:16M:16", "--seconds", "0.3", *through, "--json")


def scaling(facts: BenchFacts, asked: Asked, name: str) -> tuple[Case, ...]:
    """A model on 1, 2, 4 … all ranks, each with the same batch: on all alike, so that only the number differs."""
    if asked.paced is not None:
        what, command, series = f"{asked.paced} paced", paced(asked), f"{asked.paced} paced (SIMULATED)"
    else:
        workload = workload_of(facts, asked)
        sizes = sizes_of(facts, asked, workload)
        what, command = f"{workload} {sizes.model}", training(workload, sizes)
        series = f"{what}, {sizes.image} px, batch {sizes.batch}"
    # Whatever comes first finds its files in no page cache; the largest case touches all hosts.
    counts = rank_counts(facts, asked.ranks)
    return tuple(
        Case(
            id=f"{name}/{what.replace(' ', '-')}/{count}", rung="training", title=f"{what}, {plural(count, 'rank')}",
            proves=PROVES["training"], command=command, np=count, series=series, x=count,
            simulated=asked.paced is not None, repeats=asked.repeats,
            warmup=asked.warmup if asked.warmup is not None else int(count == counts[-1]),
            timeout_s=asked.timeout_s,
        )
        for count in counts
    )  # fmt: skip
