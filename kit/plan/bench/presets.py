"""The presets of kit bench: each makes one of the tables that people compare clusters by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

from kit.errors import InputError
from kit.model.bench import Case, Rung
from kit.model.launch import Node
from kit.model.text import plural
from kit.model.values import replace
from kit.plan.bench.cases import (
    LADDER,
    NETWORKS,
    PRESETS,
    PROBE,
    BenchFacts,
    BenchOptions,
    Planned,
    paced,
    sizes_of,
    training,
)
from kit.plan.bench.ladder import NO_NCCL, PROVES, ladder, scaling
from kit.plan.bench.models import check_names, check_words
from kit.plan.run.allreduce import OWN_CHOICE, without_choice

STORES = ("local", "device", "nccl", "dist_sync", "dist_device_sync", "dist_async", "horovod")
# Within one process: all GPUs of a host, or one CPU rank.
ONE_PROCESS = ("local", "device", "nccl")


def _tuned(number: int) -> tuple[tuple[str, str], ...]:
    return (
        ("OMPI_MCA_coll_tuned_use_dynamic_rules", "1"),
        ("OMPI_MCA_coll_tuned_allreduce_algorithm", str(number)),
    )


# Open MPI's own numbers of its ways to all-reduce, by the names that papers give them.
ALGORITHMS: Mapping[str, tuple[tuple[str, str], ...]] = {
    # As a run comes: with kit's default for large messages.
    "default": (),
    "openmpi": tuple((f"OMPI_MCA_{name}", value) for name, value in OWN_CHOICE),
    "recursive-doubling": _tuned(3),
    "ring": _tuned(4),
    "segmented-ring": _tuned(5),
    "rabenseifner": _tuned(6),
    # In pieces, Open MPI 4.1.4's HAN breaks on what is summed in place, as Horovod does (open-mpi/ompi#11488).
    "hierarchical": (("OMPI_MCA_coll_han_priority", "100"), ("OMPI_MCA_coll_han_use_simple_allreduce", "1")),
}


def plan(facts: BenchFacts, options: BenchOptions) -> Planned:
    """The cases of the ladder or of a preset. Raises InputError for what is not there, with what there is."""
    check_names(facts, options, stores=STORES)
    planned = _PLANS[options.preset](facts, options)
    if not planned.cases:
        why = "; ".join(f"{what}: {reason}" for what, reason in planned.skipped.items())
        raise InputError(f"--preset {options.preset}: nothing of it can be measured here ({why})")
    return planned


def check(options: BenchOptions) -> None:
    """What can be known to be wrong before any host is asked. Raises InputError."""
    check_words(options, stores=STORES)


def egs(facts: BenchFacts, options: BenchOptions) -> Planned:
    """Images/s, speed-up and efficiency on 1, 2, 4 … all ranks."""
    return Planned(cases=scaling(facts, options, "egs"))


def networks(facts: BenchFacts, options: BenchOptions) -> Planned:
    """TCP rate and latency between the first two hosts: of the wire itself, and through each network of a container."""
    cases: list[Case] = []
    skipped: dict[str, str] = {}
    for network in NETWORKS:
        if options.networks and network not in options.networks:
            continue
        why = _cannot(facts, network)
        if why:
            skipped[network] = why
            continue
        cases.append(
            Case(
                id=f"networks/{network}",
                rung="ring",
                title=f"TCP through {_NETWORKS[network]}",
                proves="a stream between two hosts goes this way, how fast, and how long a byte takes there and back",
                command=PROBE,
                np=2,
                npernode=1,
                series="TCP",
                x=network,
                network=network,
                repeats=options.repeats,
                warmup=options.warmup or 0,
                timeout_s=min(options.timeout_s, 120.0),
            )
        )
    if not options.networks:
        more = _stacks(facts, options)
        cases, skipped = [*cases, *more.cases], {**skipped, **more.skipped}
    return Planned(cases=tuple(cases), skipped=skipped)


# An all-reduce of 64 MB is as large as the gradients that Horovod joins.
_LARGE = ("allreduce", "--sizes", "64M", "--seconds", "3", "--json")


def _stacks(facts: BenchFacts, options: BenchOptions) -> Planned:
    """All-reduces of all ranks through what plain Horovod has and through what kit.yaml adds, one after the other.

    All run in the same image: only settings and variables differ.
    """
    if len(facts.nodes) < 2:
        return Planned(cases=(), skipped={"all-reduce": "there is one host alone, and no network between ranks"})
    untuned = {"mpi.args": (), "mpi.allreduce": "openmpi"}
    rows: list[tuple[str, str, tuple[str, ...], Mapping[str, Any], tuple[tuple[str, str], ...]]] = [
        ("mpi-plain", "MPI as Open MPI comes", (), untuned, ()),
        ("mpi", "MPI as kit.yaml tunes it", (), {}, ()),
    ]
    skipped = {}
    through = ("--through", "nccl")
    bare = {"nccl.plugin": None, "nccl.require": "any"}
    if facts.nccl:
        socket = (("NCCL_NET", "Socket"),)
        rows += [
            ("nccl-socket", "NCCL over TCP", through, bare, socket),
            ("nccl-built-in", "NCCL without a plugin", through, bare, ()),
        ]
        if facts.plugin:
            rows.append(("nccl-plugin", "NCCL with the plugin of kit.yaml", through, {}, ()))
        else:
            skipped["nccl-plugin"] = "kit.yaml names no plugin (nccl.plugin)"
    else:
        skipped["nccl"] = NO_NCCL if facts.gpus else "it requires GPUs, with and without a plugin"
    cases = tuple(
        replace(
            _everybody(
                facts, options, id=f"networks/allreduce/{name}", title=f"all-reduce, {what}", rung="collectives",
                command=("mpi_perf", *_LARGE, *flags), series="all-reduce", x=name, env=env,
            ),
            settings=settings,
        )
        for name, what, flags, settings, env in rows
    )  # fmt: skip
    return Planned(cases=cases, skipped=skipped)


_NETWORKS = {
    "bare": "the VMs' own network, no container",
    "host": "the VMs' own network, in containers",
    "bridge": "the engine's bridge, with a published port",
    "overlay": "an overlay network of Swarm's",
}


def _cannot(facts: BenchFacts, network: str) -> str:
    if len(facts.nodes) < 2:
        return "there is one host alone, and no network to measure"
    two = facts.nodes[:2]
    if network == "overlay" and not all(node.name in facts.members for node in two):
        return "the hosts are in no common swarm, whose manager the head is (orchestrator: swarm)"
    without = [node.name for node in two if node.name not in facts.pythons]
    if network == "bare" and without:
        return f"no python3 on {' and '.join(without)}"
    return ""


def kvstore(facts: BenchFacts, options: BenchOptions) -> Planned:
    """Images/s by MXNet's key-value store: within a host, with parameter servers on all hosts, and Horovod beside."""
    cases, skipped = [], {}
    for store in options.stores or STORES:
        if store == "nccl" and not facts.gpus:
            skipped[store] = "it requires GPUs"
            continue
        cases.append(_store(facts, options, store))
        if store == "dist_sync":
            cases.append(_store(facts, options, store, two_bit=True))
    return Planned(cases=tuple(cases), skipped=skipped)


def _store(facts: BenchFacts, options: BenchOptions, store: str, *, two_bit: bool = False) -> Case:
    network = options.model or ("resnet-50" if facts.gpus else "resnet-18")
    sizes = sizes_of(facts, options, "mxnet")
    one, servers = store in ONE_PROCESS, store.startswith("dist_")
    # A run of one rank would hold one slot, and so see only its GPUs.
    share = _gpus_of(next((n for n in facts.nodes if n.gpus), facts.nodes[0])) if one and facts.gpus else 0
    gpus = ("--gpus", ",".join(map(str, range(share)))) if share else ()
    name = f"{store}-2bit" if two_bit else store
    ranks = 1 if one else facts.slots
    return Case(
        id=f"kvstore/{network}/{name}", rung="training", title=f"{network}, kv-store {name.replace('-', ', ')}",
        proves=f"MXNet trains through the store {store}, and how fast",
        command=(
            # A worker with several GPUs divides its batch among them. The other stores give each GPU one.
            "mxnet_train", "--network", network, "--batch-size", str(sizes.batch * max(share, 1)),
            "--image-shape", f"3,{sizes.image},{sizes.image}", "--kv-store", store, *gpus, "--benchmark", "1",
            *(("--gc-type", "2bit", "--gc-threshold", "0.5") if two_bit else ()),
            "--num-warmup", str(sizes.warmup), "--num-iters", str(sizes.iters),
            "--num-batches-per-iter", str(sizes.batches), "--json",
        ),
        np=ranks, npernode=1 if one else None, gpus_per_rank=share, series=network, x=name,
        launcher="ps" if servers else "mpi", servers=len(facts.nodes) if servers else 0,
        repeats=options.repeats, warmup=options.warmup or 0, timeout_s=options.timeout_s,
    )  # fmt: skip


def _gpus_of(node: Node) -> int:
    """Return how many GPUs one process on the node can use. CUDA shows a process one MIG device only."""
    return 1 if node.mig else node.gpus or node.slots


def compression(facts: BenchFacts, options: BenchOptions) -> Planned:
    """Plain Horovod, fp16 on the wire, hierarchical all-reduce and top-k, on all ranks, side by side."""
    # Horovod's own hierarchical all-reduce is NCCL's; without GPUs Open MPI has one.
    hierarchical = ("--hierarchical-allreduce",) if facts.gpus else ()
    env = () if facts.gpus else ALGORITHMS["hierarchical"]
    # Said, because on a cluster that kit tune --fp16 has been at, what is not said is fp16.
    plain = ("--compression", "none")
    ways: dict[str, tuple[tuple[str, ...], tuple[tuple[str, str], ...]]] = {
        "plain": (plain, ()),
        "fp16": (("--compression", "fp16"), ()),
        "hierarchical": ((*plain, *hierarchical), env),
        "top-k": (("--compression", "topk", "--topk-ratio", "0.01"), ()),
    }
    skipped = {}
    if options.paced is not None:
        ways.pop("top-k")
        skipped["top-k"] = "it has no paced form: without --paced"
    return Planned(
        cases=tuple(_way(facts, options, name, flags, env) for name, (flags, env) in ways.items()), skipped=skipped
    )


def _way(
    facts: BenchFacts, options: BenchOptions, name: str, flags: tuple[str, ...], env: tuple[tuple[str, str], ...]
) -> Case:
    if options.paced is not None:
        what, command = f"{options.paced} paced", paced(options, *flags)
    else:
        sizes = sizes_of(facts, options, "tf")
        what, command = f"tf {sizes.model}", training("tf", sizes, *flags)
    return _everybody(
        facts, options, id=f"compression/{what.replace(' ', '-')}/{name}", title=f"{what}, {name}", command=command,
        series=what + (" (SIMULATED)" if options.paced else ""), x=name, env=env,
    )  # fmt: skip


def tuning(facts: BenchFacts, options: BenchOptions) -> Planned:
    """All-reduce by algorithm; then a model's gradients by fusion, cycle time, algorithm and fp16, each with each."""
    if facts.slots < 2:
        return Planned(cases=(), skipped={"tuning": "there is one slot alone, and nobody to exchange with"})
    plain = [
        _everybody(
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
            _everybody(
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


def _everybody(
    facts: BenchFacts,
    options: BenchOptions,
    *,
    id: str,  # noqa: A002  (the case's own word)
    title: str,
    command: tuple[str, ...],
    series: str,
    x: str,
    env: tuple[tuple[str, str], ...],
    rung: Rung = "training",
) -> Case:
    """A case on all ranks."""
    return Case(
        id=id, rung=rung, title=f"{title}, {plural(facts.slots, 'rank')}", proves=PROVES[rung], command=command,
        np=facts.slots, series=series, x=x, env=env, simulated=command[0] == "paced_benchmark",
        repeats=options.repeats, warmup=options.warmup or 0, timeout_s=options.timeout_s,
    )  # fmt: skip


_PLANS: Mapping[str, Callable[[BenchFacts, BenchOptions], Planned]] = {
    LADDER: ladder,
    "egs": egs,
    "networks": networks,
    "kvstore": kvstore,
    "compression": compression,
    "tuning": tuning,
}
assert set(_PLANS) == {LADDER, *PRESETS}  # noqa: S101  (a preset without a plan is a bug)
