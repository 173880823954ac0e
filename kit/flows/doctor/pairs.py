"""Measures between hosts, for kit doctor."""

from __future__ import annotations

from collections.abc import Sequence

from kit.flows.context import Context
from kit.model.doctor import Pairing, PairSeen, Seen


def measure(context: Context, hosts: Sequence[Seen], pairing: Pairing) -> tuple[PairSeen, ...]:
    """Return what kit measured between the hosts. It measures nothing yet."""
    del context, hosts, pairing
    return ()
