"""The preset networks: what each network between two hosts carries, and what MPI and NCCL reach through it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kit.model.bench import Case
from kit.model.values import replace
from kit.plan.bench.cases import NETWORKS, PROBE, BenchFacts, BenchOptions, Planned
from kit.plan.bench.ladder import NO_NCCL
from kit.plan.bench.presets.parts import on_all_ranks

_NETWORKS = {
    "bare": "the VMs' own network, no container",
    "host": "the VMs' own network, in containers",
    "bridge": "the engine's bridge, with a published port",
    "overlay": "an overlay network of Swarm's",
}
# An all-reduce of 64 MB is as large as the gradients that Horovod joins.
_LARGE = ("allreduce", "--sizes", "64M", "--seconds", "3", "--json")


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
            on_all_ranks(
                facts, options, id=f"networks/allreduce/{name}", title=f"all-reduce, {what}", rung="collectives",
                command=("mpi_perf", *_LARGE, *flags), series="all-reduce", x=name, env=env,
            ),
            settings=settings,
        )
        for name, what, flags, settings, env in rows
    )  # fmt: skip
    return Planned(cases=cases, skipped=skipped)
