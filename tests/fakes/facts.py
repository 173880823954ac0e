"""Hosts and their facts, made by hand: an ordinary VM unless a test says otherwise."""

from __future__ import annotations

import ipaddress
from typing import Any

from kit.model.host import Host
from kit.model.keys import ClusterKeys, KeyPair
from kit.model.launch import Node
from kit.model.observed import Gpu, GpuEngine, HostFacts, Interface
from kit.model.secret import Secret

# Every VM with an engine has this one, with the same address.
DOCKER0 = "172.17.0.1/16"


def interface(name: str, address: str) -> Interface:
    return Interface(name=name, address=ipaddress.IPv4Interface(address))


def interfaces(**addresses: str) -> tuple[Interface, ...]:
    """`eth0="10.0.0.4/24"`; an underscore in a name stands for a dash."""
    return tuple(interface(name.replace("_", "-"), address) for name, address in addresses.items())


def host(number: int, **more: Any) -> Host:
    """The VM gpuN at 10.0.0.N."""
    return Host(**{"name": f"gpu{number}", "address": f"10.0.0.{number}", **more})


def facts(number: int, **more: Any) -> HostFacts:
    """gpuN as a new VM: engine, Compose, docker0 before eth0, no GPU, nothing of kit."""
    values: dict[str, Any] = {
        "host": host(number),
        "engine": "26.1.5",
        "compose": "2.26.1",
        "arch": "x86_64",
        "os": "Debian GNU/Linux 13 (trixie)",
        "cores": 8,
        "memory_mib": 64000,
        "disk_free_mib": 100000,
        "interfaces": interfaces(lo="127.0.0.1/8", docker0=DOCKER0, eth0=f"10.0.0.{number}/24"),
        "default_interface": "eth0",
        "python": "3.13.5",
    }
    return HostFacts(**{**values, **more})


def gpus(count: int) -> tuple[Gpu, ...]:
    return tuple(Gpu(name="NVIDIA A100-SXM4-40GB", memory_mib=40960, uuid=f"GPU-{i}", index=i) for i in range(count))


# An engine that gives GPUs to containers by NVIDIA's hook, as NVIDIA's packages configure it.
GPU_ENGINE = GpuEngine(
    hook="/usr/bin/nvidia-container-runtime-hook",
    runtime="/usr/bin/nvidia-container-runtime",
    runtimes={"runc": "runc", "nvidia": "nvidia-container-runtime"},
    default_runtime="runc",
    cgroup_driver="systemd",
)


def node(number: int, **more: Any) -> Node:
    return Node(**{"name": f"gpu{number}", "address": f"10.0.0.{number}", "slots": 2, "cores": 8, **more})


def key(name: str, *, private: bool = True) -> KeyPair:
    """Return a fake key that is the same each time. Its private half says PRIVATE-name."""
    secret = Secret(f"PRIVATE-{name}\n".encode()) if private else None
    return KeyPair(public=f"ssh-ed25519 AAAA{name} kit-{name}", private=secret)


def keys(*names: str, private: bool = True) -> ClusterKeys:
    return ClusterKeys(
        client=key("client", private=private), hosts={name: key(name, private=private) for name in names}
    )
