"""Openings of borders from ranks, VMs, hosts and engines to other VMs and to your machine."""

from __future__ import annotations

from tests.security.openings import Opening

OPENINGS: tuple[Opening, ...] = ()
