"""The preset kvstore: the ways in which MXNet's workers exchange gradients."""

from __future__ import annotations

from kit.model.bench import Case
from kit.model.launch import Node
from kit.plan.bench.cases import BenchFacts, BenchOptions, Planned, sizes_of

STORES = ("local", "device", "nccl", "dist_sync", "dist_device_sync", "dist_async", "horovod")
# Within one process: all GPUs of a host, or one CPU rank.
ONE_PROCESS = ("local", "device", "nccl")


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
