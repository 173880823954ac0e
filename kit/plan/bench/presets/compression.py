"""The preset compression: how many bytes Horovod sends for the same gradients."""

from __future__ import annotations

from kit.model.bench import Case
from kit.plan.bench.cases import BenchFacts, BenchOptions, Planned, paced, sizes_of, training
from kit.plan.bench.presets.parts import ALGORITHMS, on_all_ranks


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
    return on_all_ranks(
        facts, options, id=f"compression/{what.replace(' ', '-')}/{name}", title=f"{what}, {name}", command=command,
        series=what + (" (SIMULATED)" if options.paced else ""), x=name, env=env,
    )  # fmt: skip
