"""The table of presets: from the words of kit bench to cases."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kit.errors import InputError
from kit.plan.bench.cases import LADDER, PRESETS, BenchFacts, BenchOptions, Planned
from kit.plan.bench.ladder import ladder, scaling
from kit.plan.bench.models import check_names, check_words
from kit.plan.bench.presets.compression import compression
from kit.plan.bench.presets.kvstore import STORES, kvstore
from kit.plan.bench.presets.networks import networks
from kit.plan.bench.presets.tuning import tuning


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


_PLANS: Mapping[str, Callable[[BenchFacts, BenchOptions], Planned]] = {
    LADDER: ladder,
    "egs": egs,
    "networks": networks,
    "kvstore": kvstore,
    "compression": compression,
    "tuning": tuning,
}
assert set(_PLANS) == {LADDER, *PRESETS}  # noqa: S101  (a preset without a plan is a bug)
