"""kit data ls: which data sets are on which hosts."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

from kit.errors import KitError, NotReadyError
from kit.flows.context import Context
from kit.flows.data.hosts import look
from kit.model.data import DataSpec, data_folder
from kit.model.datasets import DataListing
from kit.plan.cluster.record import from_text
from kit.plan.data.choose import has, rows
from kit.plan.data.rate import fraction_of
from kit.remote.data.order import Order, Place

# The lead reports twice a second. One that is still listing its source has no progress yet.
_WATCH_S = 5.0


def listing(context: Context) -> DataListing:
    """Return all data sets of kit.yaml, and others that hosts have. Raises if no host can be asked."""
    outcome = look(context)
    if not outcome.results:
        outcome.or_raise("kit data ls")
    head = context.inventory.head.name
    fractions = {}
    for data in context.spec.data:
        on_head = has(outcome.results[head], context.spec.name, data) if head in outcome.results else None
        if data.staged and on_head is not None and on_head.running:
            fraction = _fraction(context, data)
            if fraction is not None:
                fractions[data.name] = fraction
    settings = _settings(outcome.results[head].record) if head in outcome.results else None
    return DataListing(
        cluster=context.spec.name,
        sets=rows(context.spec, outcome.results, fractions, settings, names=context.inventory.names),
        missed={name: str(error.message) for name, error in outcome.failures.items()},
        now=outcome.results[head].now if head in outcome.results else None,
    )


def _settings(record: str) -> Mapping[str, Any] | None:
    """Return the settings of the head's record: {} without one, or None if another kit wrote it or it is broken."""
    try:
        return from_text(record).settings if record else {}
    except NotReadyError:
        return None


def _fraction(context: Context, data: DataSpec) -> float | None:
    """Return how far the staging is that runs now, or None if its stager only waits for an order."""
    place = Place(cluster=context.spec.name, data=data.name, folder=data_folder(context.spec.name, data))
    order = Order(context.inventory.head, context.connect, place, how="running").start()
    plan = None
    try:
        with closing(order):
            order.begun().send(op="watch")
            while (answer := order.next(_WATCH_S)) is not None:
                if answer.failed is not None or answer.done is not None:
                    return None
                plan = answer.plan or plan
                if plan is not None and answer.progress is not None:
                    return fraction_of(plan, answer.progress)
    except KitError:
        # It ended meanwhile, or it does not answer: the listing shows what is on the hosts.
        return None
    return 0.0
