"""The container of `kit local`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field


class LocalGpus(Struct, frozen=True, kw_only=True):
    """The GPUs of this machine that a container gets: the named ones, or else the first `count`, or all (None).

    A name is a number of nvidia-smi, a UUID, or the name of a CDI device. `must`: the command line has --gpus, so a
    machine without GPUs is an error. `driver` is the engine's driver for them.
    """

    count: int | None = None
    names: tuple[str, ...] = ()
    must: bool = False
    driver: Literal["", "cdi", "nvidia"] = ""

    @property
    def known(self) -> int | None:
        """Return how many they are, or None if only the machine knows."""
        return len(self.names) or self.count


class LocalContainer(Struct, frozen=True, kw_only=True):
    """A container for one command, which starts this many ranks.

    `ulimits` maps a name to its limit (-1: unlimited). `gpus` is None for none.
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
    gpus: LocalGpus | None = None
    ranks: int = 1
