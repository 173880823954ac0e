"""The state of a host: facts of one observation, without judgement."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field

from kit.model.host import Host
from kit.model.swarm import SwarmFacts


@dataclass(frozen=True, kw_only=True, slots=True)
class Interface:
    """An IPv4 address of a host: `name` eth0, `address` 10.0.0.4/24."""

    name: str
    address: ipaddress.IPv4Interface


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    name: str
    memory_mib: int
    uuid: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Container:
    """A container of kit on a host. `image` is the tag of its image, `spec` the hash of its definition.

    `swarm`: it is a task of a service, and Swarm recreates it when it ends.
    """

    name: str
    service: str
    cluster: str
    image: str
    spec: str
    running: bool
    status: str
    swarm: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class HostFacts:
    """One observed host.

    `files` maps a path below the cluster's folder to the SHA-256 of its content, `modes` to its permissions.
    `listening` has the address:port of every TCP listener, `udp` of every UDP socket. On a head, `record` is the text
    of cluster.json, and `living` has the ids of running runs. `absent` has the requested folders that do not exist.
    `python` is the version of python3, if it is installed. `slow`: its engine did not answer in time.
    """

    host: Host
    engine: str
    compose: str | None
    arch: str
    os: str
    cores: int
    memory_mib: int
    disk_free_mib: int
    interfaces: tuple[Interface, ...]
    default_interface: str | None
    gpus: tuple[Gpu, ...] = ()
    gpu_runtime: bool = False
    image_id: str | None = None
    containers: tuple[Container, ...] = ()
    record: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    modes: Mapping[str, str] = field(default_factory=dict)
    host_key: str | None = None
    client_key: str | None = None
    listening: frozenset[str] = frozenset()
    udp: frozenset[str] = frozenset()
    living: tuple[str, ...] = ()
    absent: frozenset[str] = frozenset()
    swarm: SwarmFacts = field(default_factory=SwarmFacts)
    python: str | None = None
    slow: bool = False
