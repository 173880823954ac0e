"""The lab, VM-like hosts as containers on this machine: what the user wants, what kit creates, what exists."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct, field

# Labels on every object of a lab. kit finds a lab by them, and by no file.
LABEL = "kit.lab"
HOST_LABEL = "kit.lab.host"
SHAPE_LABEL = "kit.lab.shape"
FOLDER_LABEL = "kit.lab.folder"


def network_name(lab: str, nic: int = 0) -> str:
    """Return the network of a NIC, from 0. No lab's name has a dot."""
    return f"kit-lab-{lab}.nic{nic}" if nic else f"kit-lab-{lab}"


class LabSpec(Struct, frozen=True, kw_only=True):
    """What `kit lab up` asks for.

    `link_rate` limits each host's link in both directions, in tc's words: 200mbit; None sets no limit. `user` is the
    login in the hosts file: root, or ubuntu, which has sudo without a password. `gpus` is the number of pretended GPUs
    of each host. `gpu_toolkit` says what the hosts have of NVIDIA's container toolkit. `bare` hosts have no engine;
    `system` is their user space. `nics` is the number of networks that each host has.
    """

    name: str = "lab"
    hosts: int = 4
    slots: int = 2
    link_rate: str | None = None
    user: str = "root"
    gpus: int = 0
    gpu_model: str = "h200"
    gpu_driver: str = "550.54.15"
    gpu_toolkit: str = "hook"
    bare: bool = False
    system: str = "debian"
    nics: int = 1

    @property
    def shape(self) -> str:
        """Describe the lab. Two labs of equal shape are the same. Every object of a lab carries it as a label."""
        rate = f", links of {self.link_rate}" if self.link_rate else ""
        gpus = ""
        if self.gpus:
            gpus = (
                f", {self.gpus} PRETENDED {self.gpu_model} each (driver {self.gpu_driver}, toolkit {self.gpu_toolkit})"
            )
        bare = f", bare {self.system}" if self.bare else ""
        nics = f", {self.nics} NICs each" if self.nics > 1 else ""
        return f"{self.hosts} hosts, {self.slots} slots each{bare}{nics}{rate}{gpus}, login {self.user}"


class HostContainer(Struct, frozen=True, kw_only=True):
    """The container of one lab host, as the engine creates it. It masks no path of /proc and /sys.

    `own_init`: its first process is a service manager. When that reboots the host, the engine starts the container
    again. `more_nics` are its further networks, with its address in each. `certificates` are those that it trusts
    beyond its distribution's, as PEM.
    """

    host: str
    container: str
    volume: str
    network: str
    address: str
    image: str
    labels: Mapping[str, str]
    env: Mapping[str, str]
    cap_add: tuple[str, ...]
    cap_drop: tuple[str, ...]
    security_opt: tuple[str, ...]
    device_cgroup_rules: tuple[str, ...]
    tmpfs: Mapping[str, str]
    own_init: bool = False
    more_nics: tuple[tuple[str, str], ...] = ()
    certificates: bytes = b""


class LabNetwork(Struct, frozen=True, kw_only=True):
    """A network of a lab, on the engine."""

    id: str
    name: str
    subnet: ipaddress.IPv4Network
    shape: str
    folder: str


class LabContainer(Struct, frozen=True, kw_only=True):
    """A lab host, on the engine. `state` is the engine's word: running, exited, created."""

    id: str
    host: str
    address: str
    state: str


class LabObjects(Struct, frozen=True, kw_only=True):
    """Everything on the engine that carries the lab's label. Containers are in the order of their hosts.

    `more_nics` are the networks of the second and further NICs, in order. `helpers` are containers that are not hosts,
    and `other_networks` are doubles of a network. A killed `up` leaves both.
    """

    network: LabNetwork | None = None
    more_nics: tuple[LabNetwork, ...] = ()
    containers: tuple[LabContainer, ...] = ()
    volumes: tuple[str, ...] = ()
    helpers: tuple[str, ...] = ()
    other_networks: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        return not (self.networks or self.containers or self.volumes or self.helpers)

    @property
    def networks(self) -> tuple[str, ...]:
        """Return the IDs of all networks."""
        known = (*([self.network] if self.network else []), *self.more_nics)
        return (*(network.id for network in known), *self.other_networks)


class LabHost(Struct, frozen=True, kw_only=True):
    name: str
    address: str
    state: str


class LabStatus(Struct, frozen=True, kw_only=True):
    """The state of a lab. Without hosts there is no lab. `changed`: this verb changed something."""

    name: str
    folder: Path
    network: str = ""
    shape: str = ""
    hosts: tuple[LabHost, ...] = ()
    changed: bool = False

    @property
    def state(self) -> Literal["none", "running", "partly running", "stopped"]:
        running = sum(host.state == "running" for host in self.hosts)
        if not self.hosts:
            return "none"
        if running == len(self.hosts):
            return "running"
        return "partly running" if running else "stopped"


class LabGpu(Struct, frozen=True, kw_only=True):
    """A pretended GPU of a lab host, with its faults."""

    number: int
    uuid: str
    faults: tuple[str, ...] = ()


class LabGpus(Struct, frozen=True, kw_only=True):
    """The pretended GPUs of a lab host. `lost`: how many running containers may not open their GPUs."""

    host: str
    name: str
    driver: str
    gpus: tuple[LabGpu, ...]
    lost: int = 0


class LabFaults(Struct, frozen=True, kw_only=True):
    """The faults that `kit lab fault` gave a lab host."""

    host: str
    faults: tuple[str, ...] = ()


class LabRemoved(Struct, frozen=True, kw_only=True):
    """What `kit lab down` removed. `kept` are files of the lab that a person changed."""

    name: str
    containers: int = 0
    volumes: int = 0
    networks: int = 0
    files: tuple[Path, ...] = field(default=())
    kept: tuple[Path, ...] = field(default=())

    @property
    def empty(self) -> bool:
        return not (self.containers or self.volumes or self.networks or self.files)
