"""What several presets have: ways to all-reduce, and cases on all ranks."""

from __future__ import annotations

from collections.abc import Mapping

from kit.model.bench import Case, Rung
from kit.model.text import plural
from kit.plan.bench.cases import BenchFacts, BenchOptions
from kit.plan.bench.ladder import PROVES
from kit.plan.run.allreduce import OWN_CHOICE


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


def on_all_ranks(
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
