"""Hosts and the inventory: what the hosts file says, and nothing that was observed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    """One VM.

    `address` is where ssh goes (name or IP). `internal` is the address that MPI uses, when the file states it.
    `slots` is None when the file does not say: then it is the number of GPUs found, or 1.
    """

    name: str
    address: str
    slots: int | None = None
    user: str | None = None
    port: int | None = None
    key: str | None = None
    internal: str | None = None
    line: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Inventory:
    """The hosts in the order of the file. The first is the head."""

    hosts: tuple[Host, ...]
    source: str

    @property
    def head(self) -> Host:
        return self.hosts[0]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(host.name for host in self.hosts)


@dataclass(frozen=True, kw_only=True, slots=True)
class Login:
    """How to reach a VM. What is None is left to ssh's own configuration.

    `socket` is where a connection to it is kept for the next command; None to keep none.
    """

    host: str
    address: str
    user: str | None
    port: int | None
    key: str | None
    known_hosts: str | None
    socket: str | None = None
