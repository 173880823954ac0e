"""Openings of borders to the network, registries, stores, files of strangers, and other users of a machine."""

from __future__ import annotations

from tests.security.openings import Opening

OPENINGS: tuple[Opening, ...] = ()
