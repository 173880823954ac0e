"""The container of `kit local`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalContainer:
    """A container for one command. `ulimits` maps a name to its limit (-1: unlimited).

    `gpus` is the engine's driver for its GPUs, or "" for a container without GPUs.
    """

    image: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    volumes: tuple[str, ...] = ()
    shm_size: str = "64mb"
    ulimits: Mapping[str, int] = field(default_factory=dict)
    # The fence (kit.plan.cluster.fence). `pids` limits processes; 0 means no limit.
    capabilities: tuple[str, ...] = ()
    security_options: tuple[str, ...] = ()
    pids: int = 0
    gpus: Literal["", "cdi", "nvidia"] = ""
