"""Hosts and the inventory: the contents of the hosts file, without anything observed."""

from __future__ import annotations

import re

from msgspec import Struct

# A directory's login has its domain: ann@corp.example, or CORP\ann. ssh refuses other characters that a shell reads.
LOGIN_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._@\\-]{0,126}[A-Za-z0-9._-])?", re.ASCII)


class Host(Struct, frozen=True, kw_only=True):
    """One VM.

    `address` is the name or IP address for ssh. `internal` is the address for MPI, if the file sets it. `slots` is None
    if the file does not set it; the number of slots is then the number of GPUs, or 1. `hca` has the InfiniBand adapters
    that NCCL uses on this VM, as NCCL_IB_HCA.
    """

    name: str
    address: str
    slots: int | None = None
    user: str | None = None
    port: int | None = None
    key: str | None = None
    internal: str | None = None
    hca: str | None = None
    line: int = 0


class Inventory(Struct, frozen=True, kw_only=True):
    """The hosts in the order of the file. The first is the head."""

    hosts: tuple[Host, ...]
    source: str

    @property
    def head(self) -> Host:
        return self.hosts[0]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(host.name for host in self.hosts)


class Login(Struct, frozen=True, kw_only=True):
    """How to reach a VM. For None, ssh's own configuration applies.

    `socket` is the path of a connection that is kept for the next command, or None to keep none.
    """

    host: str
    address: str
    user: str | None
    port: int | None
    key: str | None
    known_hosts: str | None
    socket: str | None = None
