"""`scripts/lock-bases`: ask the registries which digest each base has."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from kit.model.registry import address_of, full_name
from kit.remote.engine import registry
from kit.remote.engine.client import Engine
from kit.remote.machine.credentials import find_login


def ask_registries(names: Sequence[str]) -> dict[str, str]:
    """Return the digest of each `NAME:TAG`, as this machine's engine sees the registries, with docker's logins.

    Raises ImageError if a registry does not answer or lacks an image, and UnreachableError without an engine.
    """
    with closing(Engine.connect()) as engine:
        return {name: _digest(engine, full_name(name)) for name in names}


def _digest(engine: Engine, name: str) -> str:
    # KIT_REGISTRY_USER and KIT_REGISTRY_PASSWORD are for the registry of your own images.
    return registry.look_up(engine, name, find_login(address_of(name), {})).digest
