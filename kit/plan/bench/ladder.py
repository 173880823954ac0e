"""kit bench's ladder: from the least that a cluster must do to training, each rung based on the one below."""

from __future__ import annotations

from collections.abc import Mapping

from kit.model.bench import Case, Rung
from kit.model.text import plural
from kit.plan.bench.cases import (
    BenchFacts,
    BenchOptions,
    Planned,
    paced,
    rank_counts,
    sizes_of,
    training,
    workload_of,
)

PROVES: Mapping[Rung, str] = {
    "reach": "every host answers, its engine and its node run, the head's ssh reaches each of them, and mpirun starts "
    "a process on every slot",
    "hello": "every rank starts the framework with Horovod, finds all others, and their sum is correct",
    "ring": "data travels from each rank to the next, through all of them",
    "collectives": "all-reduce, broadcast and all-gather work at every size, and how fast",
    "training": "a model trains on these ranks, and how much faster than on one",
}
# The next step if a rung fails.
NEXT: Mapping[Rung, str] = {
    "reach": "kit ps shows the hosts; kit deploy repairs the cluster",
    "hello": "kit run -- hvd_check shows more; to test mpirun alone: kit run -- hostname",
    "ring": "a firewall between the VMs or a wrong network: is likely; to test: kit run -- mpi_perf latency",
    "collectives": "kit run -- mpi_perf allreduce shows at which size it fails",
    "training": "kit runs, then kit logs ID shows its whole output",
}
# Why collectives between GPUs go through MPI.
NO_NCCL = "kit measures it through Horovod, which this image does not have"


def ladder(facts: BenchFacts, options: BenchOptions) -> Planned:
    """Return all rungs. A single slot cannot exchange data, so it gets no ring and no collectives."""
    skipped: dict[str, str] = {}
    everybody = plural(facts.slots, "rank")
    cases = [
        Case(
            id="reach", rung="reach", title=f"reach: {plural(len(facts.nodes), 'host')}, {everybody}",
            proves=PROVES["reach"], command=("true",), np=facts.slots, series="reach", x=facts.slots, repeats=1,
            timeout_s=min(options.timeout_s, 120.0),
        ),
    ]  # fmt: skip
    if facts.horovod:
        cases.append(Case(
            id="hello", rung="hello", title=f"hello: {everybody}", proves=PROVES["hello"],
            command=hello(facts), np=facts.slots, series="hello", x=facts.slots, repeats=1, timeout_s=options.timeout_s,
        ))  # fmt: skip
    else:
        skipped["hello"] = "it checks Horovod, which this image does not have"
    if facts.slots > 1:
        cases += [
            Case(
                id="ring", rung="ring", title=f"ring: {everybody}", proves=PROVES["ring"],
                command=("mpi_perf", "ring", "--sizes", "8,64K,1M", "--seconds", "0.3", "--json"), np=facts.slots,
                series="ring", x=facts.slots, repeats=1, timeout_s=options.timeout_s,
            ),
            Case(
                id="collectives", rung="collectives", title=f"collectives: {everybody}", proves=PROVES["collectives"],
                command=collectives(facts), np=facts.slots, series="collectives",
                x=facts.slots, repeats=options.repeats, timeout_s=options.timeout_s,
            ),
        ]  # fmt: skip
        if facts.gpus and not facts.nccl:
            skipped["nccl"] = NO_NCCL
    else:
        skipped |= dict.fromkeys(("ring", "collectives"), "it needs two slots, and the cluster has one")
    return Planned(cases=(*cases, *scaling(facts, options, "training")), skipped=skipped)


def hello(facts: BenchFacts) -> tuple[str, ...]:
    """Return the check's command. It uses MXNet if the image has it, because TensorFlow starts several times slower."""
    framework = ("--framework", "mxnet") if "mxnet" in facts.frameworks else ()
    return ("hvd_check", *framework, "--json")


def collectives(facts: BenchFacts) -> tuple[str, ...]:
    """Return the command for collectives. Training uses NCCL between GPUs."""
    through = ("--through", "nccl") if facts.nccl else ()
    tests = ("latency", "bandwidth", "allreduce", "bcast", "allgather") if not facts.nccl else ("allreduce", "bcast")
    return ("mpi_perf", *tests, "--sizes", "8:16M:16", "--seconds", "0.3", *through, "--json")


def scaling(facts: BenchFacts, options: BenchOptions, name: str) -> tuple[Case, ...]:
    """Return a model's cases on 1, 2, 4 … all ranks with the same batch per rank, so that only their number differs.

    With a data set, each case on synthetic images is followed by one on real images.
    """
    if options.paced is not None:
        ways = [(f"{options.paced} paced", paced(options), f"{options.paced} paced (SIMULATED)")]
    else:
        workload = workload_of(facts, options)
        sizes = sizes_of(facts, options, workload)
        what = f"{workload} {sizes.model}"
        series = f"{what}, {sizes.image} px, batch {sizes.batch}"
        ways = [(what, training(workload, sizes), series)]
        if options.data is not None:
            real = training(workload, sizes, "--data", options.data)
            ways.append((f"{what} {options.data}", real, f"{series}, {options.data}"))
    # The first case finds no file in the page cache. The largest one warms up all hosts.
    counts = rank_counts(facts, options.ranks)
    return tuple(
        Case(
            id=f"{name}/{what.replace(' ', '-')}/{count}", rung="training", title=f"{what}, {plural(count, 'rank')}",
            proves=PROVES["training"], command=command, np=count, series=series, x=count,
            simulated=options.paced is not None, repeats=options.repeats,
            warmup=options.warmup if options.warmup is not None else int(count == counts[-1]),
            timeout_s=options.timeout_s,
        )
        for count in counts
        for what, command, series in ways
    )  # fmt: skip
