"""Sessions of kit bench with MADE-UP figures, to test what is made of them. Nothing here was ever measured."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kit.model import values
from kit.model.bench import META, SAMPLES, Case, Sample, Session
from kit.plan.bench.ladder import PROVES

FACTS: Mapping[str, Any] = {
    "note": "made-up test data",
    "kit": "0.1.0",
    "image": "kit:cpu-0123456789ab",
    "orchestrator": "compose",
    "network": "10.0.0.0/24",
    "nodes": [{"name": f"gpu{n}", "address": f"10.0.0.{n}", "slots": 2, "cores": 2} for n in range(1, 5)],
    "hosts": [
        {"name": f"gpu{n}", "address": f"10.0.0.{n}", "slots": 2, "cores": 2, "memory_mib": 24050, "gpus": [],
         "os": "Debian GNU/Linux 12 (bookworm)", "engine": "26.1.5"}
        for n in range(1, 5)
    ],
    "settings": {"env": {"HOROVOD_CYCLE_TIME": "1"}, "mpi": {"bind_to": "none", "args": []}},
}  # fmt: skip
# A repeat's deviation from its case's figure, in order.
NOISE = (0.0, 0.006, -0.008, 0.011, -0.003)


def case(name: str, **given: Any) -> Case:
    values: dict[str, Any] = {"id": name, "rung": "training", "title": name, "proves": f"{name} works"}
    return Case(**{**values, "command": (name,), **given})


def sample(case: str, repeat: int, result: Mapping[str, Any], **given: Any) -> Sample:
    values = {"repeat": repeat, "at": f"2026-01-01T00:{repeat:02}:00Z", "seconds": 20.0 + repeat, "result": result}
    return Sample(**{"case": case, **values, **given})


def training(rate: float, ranks: int, **more: Any) -> dict[str, Any]:
    return {
        "workload": "training", "simulated": False, "ranks": ranks, "framework": "MXNet", "model": "resnet18_v1",
        "img_sec_total": rate, "iters": [rate] * 5, **more,
    }  # fmt: skip


def perf(busbw: float, latency_s: float, *, ranks: int = 8, top: int = 24) -> dict[str, Any]:
    """Sizes 8 B to 2 ** top, with a bandwidth that nears `busbw`."""
    sizes = [1 << power for power in range(3, top + 1)]
    took = {size: latency_s + size / busbw for size in sizes}

    def rows(factor: float) -> list[dict[str, Any]]:
        return [
            {"bytes": size, "seconds": took[size] * factor, "algbw": size / took[size] / factor,
             "busbw": size / took[size] / factor * 2 * (ranks - 1) / ranks, "repeats": 5}
            for size in sizes
        ]  # fmt: skip

    return {
        "workload": "perf", "simulated": False, "ranks": ranks, "through": "mpi", "hosts": 4,
        "tests": [
            {"test": "latency", "ranks": 2, "rows": rows(0.5)},
            {"test": "bandwidth", "ranks": 2, "rows": rows(0.7)},
            {"test": "allreduce", "ranks": ranks, "rows": rows(1.0)},
            {"test": "bcast", "ranks": ranks, "rows": rows(0.8)},
            {"test": "allgather", "ranks": ranks, "rows": rows(1.1)},
        ],
    }  # fmt: skip


def paced(efficiency: float, ranks: int) -> dict[str, Any]:
    alone = 0.29
    return {
        "workload": "paced", "simulated": True, "ranks": ranks, "model": "resnet50", "step_ms": 290,
        "steps": [alone / efficiency] * 4, "alone_s": alone, "efficiency": efficiency, "options": {},
    }  # fmt: skip


def network(rate: float, latency_s: float) -> dict[str, Any]:
    return {"workload": "network", "simulated": False, "ranks": 2, "rate": rate, "latency_s": latency_s}


def session(preset: str, cases: Sequence[Case], **given: Any) -> Session:
    return Session(**{"id": f"20260101-000000-{preset}", "preset": preset, "cluster": "made-up", "facts": FACTS,
                      "started": "2026-01-01T00:00:00Z", "cases": tuple(cases)} | given)  # fmt: skip


def repeated(case: Case, make: Any, count: int | None = None) -> Iterator[Sample]:
    """`make(factor)` gives the result of a repeat that is `factor` times the case's figure."""
    for repeat in range(case.warmup):
        yield sample(case.id, repeat, make(0.7), warmup=True)
    for repeat in range(case.repeats if count is None else count):
        yield sample(case.id, repeat, make(1 + NOISE[repeat % len(NOISE)]))


RATES = {1: 50.0, 2: 97.1, 4: 186.3, 8: 343.0}


def egs(factor: float = 1.0, **given: Any) -> tuple[Session, list[Sample]]:
    """A training on 1, 2, 4 and 8 ranks."""
    series = "mxnet resnet18_v1, 64 px, batch 8"
    cases = [
        case(f"egs/mxnet-resnet18_v1/{count}", title=f"mxnet resnet18_v1, {count} rank{'s' * (count > 1)}", np=count,
             series=series, x=count, warmup=int(count == 8),
             command=("mxnet_benchmark", "--model", "resnet18_v1", "--batch-size", "8", "--json"))
        for count in RATES
    ]  # fmt: skip
    samples = [
        values.replace(sample, used=used(one.np))
        for one in cases
        for sample in repeated(one, lambda f, n=one.np: training(RATES[n] * f * factor, n))
    ]
    return session("egs", cases, **given), samples


def used(ranks: int) -> dict[str, Any]:
    """Return what a run used of its hosts. That of one rank was too short for readings."""
    if ranks == 1:
        return {}
    return {
        "memory": 3_100_000_000, "cores": ranks * 0.9, "of_cores": 8, "gpus": 0.873, "gpu_memory": 21_400_000_000,
        "received": 12_100_000_000, "sent": 12_300_000_000,
    }  # fmt: skip


def ladder() -> tuple[Session, list[Sample]]:
    """All rungs; one repeat of the training on 4 ranks was disturbed, one on 8 failed."""
    first, trained = egs()
    rungs = [
        case("reach", rung="reach", title="reach: 4 hosts, 8 ranks", np=8, series="reach", x=8, repeats=1,
             command=("true",)),
        case("hello", rung="hello", title="hello: 8 ranks", np=8, series="hello", x=8, repeats=1,
             command=("hvd_check", "--json")),
        case("ring", rung="ring", title="ring: 8 ranks", np=8, series="ring", x=8, repeats=1,
             command=("mpi_perf", "allreduce", "--json"), env=(("OMPI_MCA_coll_tuned_allreduce_algorithm", "4"),)),
        case("collectives", rung="collectives", title="collectives: 8 ranks", np=8, series="collectives", x=8,
             command=("mpi_perf", "--json")),
    ]  # fmt: skip
    samples = [
        sample("reach", 0, {}),
        sample("hello", 0, {"right": True, "ranks": 8}),
        sample("ring", 0, perf(2.1e7, 2e-4, top=20)),
        *repeated(rungs[3], lambda f: perf(2.2e7 * f, 1.4e-4 / f)),
    ]
    changed: dict[tuple[str, int], dict[str, Any]] = {
        ("4", 2): {"disturbed": "load of 3.1 on gpu2 before it began", "result": training(150.0, 4)},
        ("8", 1): {"failure": "rank 5 on gpu3 ended with exit code 1", "result": {}},
    }
    for item in trained:
        change = {} if item.warmup else changed.get((item.case.rpartition("/")[2], item.repeat), {})
        samples.append(values.replace(item, **change))
    cases = [values.replace(item, proves=PROVES[item.rung]) for item in (*rungs, *first.cases)]
    return session("ladder", cases), samples


def compression() -> tuple[Session, list[Sample]]:
    """Four ways on all ranks, of a paced model."""
    shares = {"plain": 0.53, "fp16": 0.74, "hierarchical": 0.534, "top-k": 0.81}
    flags = {"fp16": ("--compression", "fp16"), "top-k": ("--compression", "topk")}
    cases = [
        case(f"compression/resnet50-paced/{way}", title=f"resnet50 paced, {way}, 8 ranks", np=8, x=way,
             series="resnet50 paced (SIMULATED)", simulated=True,
             command=("paced_benchmark", "--model", "resnet50", *flags.get(way, ()), "--json"))
        for way in shares
    ]  # fmt: skip
    samples = [sample for one in cases for sample in repeated(one, lambda f, w=str(one.x): paced(shares[w] * f, 8))]
    return session("compression", cases), samples


def networks() -> tuple[Session, list[Sample]]:
    rates = {"bare": (2.36e7, 2.1e-4), "host": (2.35e7, 2.2e-4), "bridge": (2.2e7, 3.4e-4)}
    cases = [
        case(
            f"networks/{way}",
            rung="ring",
            title=f"TCP through {way}",
            np=2,
            x=way,
            series="TCP",
            network=way,
            command=("tcp_probe",),
        )
        for way in rates
    ]
    samples = [
        sample
        for one in cases
        for sample in repeated(one, lambda f, w=str(one.x): network(rates[w][0] * f, rates[w][1] / f))
    ]
    return session("networks", cases, skipped={"overlay": "the hosts are in no common swarm"}), samples


def many(count: int = 300) -> tuple[Session, list[Sample]]:
    """Hundreds of settings."""
    cases = [case(f"tuning/x/{n}", title=f"setting {n}", np=8, x=f"setting-{n}", series="all") for n in range(count)]
    samples = [
        sample for n, one in enumerate(cases) for sample in repeated(one, lambda f, n=n: training((100 + n % 7) * f, 8))
    ]
    return session("tuning", cases), samples


def write(folder: Path, session: tuple[Session, Sequence[Sample]]) -> Path:
    folder.mkdir(parents=True)
    (folder / META).write_text(json.dumps(values.asdict(session[0])))
    (folder / SAMPLES).write_text("".join(f"{json.dumps(values.asdict(sample))}\n" for sample in session[1]))
    return folder
