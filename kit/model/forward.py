"""Ports of a VM that this machine reaches on its loopback."""

from __future__ import annotations

from msgspec import Struct


class Wanted(Struct, frozen=True, kw_only=True):
    """A port of the VM, and the one of this machine; 0 takes a free one."""

    local: int
    port: int


class Forwarded(Struct, frozen=True, kw_only=True):
    """One forwarded port. `address` is where a program is reached on the VM, or '' if none listens yet."""

    local: int
    port: int
    address: str = ""


class Forwards(Struct, frozen=True, kw_only=True):
    """What `kit forward` opened. `run` is the run that you named, or ''."""

    host: str
    ports: tuple[Forwarded, ...]
    run: str = ""


class Board(Struct, frozen=True, kw_only=True):
    """A TensorBoard that runs in a node. `logdir` is the folder that it reads there; `url` is where to open it here."""

    run: str
    host: str
    logdir: str
    url: str
