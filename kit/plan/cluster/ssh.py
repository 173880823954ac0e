"""SSH: how kit logs in to a VM, and the files that let the head log in to every node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kit.model import names
from kit.model.host import Host, Login
from kit.model.launch import Node

if TYPE_CHECKING:
    from kit.model.spec import SshSpec

# As mounted in the containers.
CLIENT_KEY = f"{names.MOUNT}/{names.CLIENT_KEY}"


def login(host: Host, spec: SshSpec) -> Login:
    """Return how kit logs in to a host. The hosts file overrides `ssh:` of kit.yaml."""
    return Login(
        host=host.name,
        address=host.address,
        user=host.user or spec.user,
        port=host.port or spec.port,
        key=host.key or spec.key,
        known_hosts=spec.known_hosts,
    )


def authorized_keys(client_key: str, head_address: str) -> bytes:
    """Return authorized_keys with the head's key, accepted only from the head's address and only for sessions."""
    return f'restrict,pty,from="{head_address}" {client_key}\n'.encode()


def known_hosts(nodes: Sequence[Node], keys: Mapping[str, str], port: int) -> bytes:
    """Return known_hosts with one pinned key a node. `keys` maps a node's name to its public host key."""
    form = "{}" if port == 22 else f"[{{}}]:{port}"  # as OpenSSH writes and looks them up
    lines = [f"{form.format(node.address)},{form.format(node.name)} {keys[node.name]}" for node in nodes]
    return ("\n".join(lines) + "\n").encode()


def client_config(nodes: Sequence[Node], port: int, *, key: str = CLIENT_KEY) -> bytes:
    """Return the head's ssh_config. It affects connections to the cluster's nodes only."""
    lines = ["# Written by kit deploy: how the head reaches the nodes. Host keys are pinned in known_hosts."]
    for node in nodes:
        lines += [f"Host {node.name}", f"  HostName {node.address}"]
    lines += [f"Host {' '.join(word for node in nodes for word in (node.name, node.address))}"]
    settings = {
        "Port": str(port),
        "User": "root",
        "IdentityFile": key,
        "IdentitiesOnly": "yes",
        "BatchMode": "yes",
        "StrictHostKeyChecking": "yes",
        "CheckHostIP": "no",
        "UserKnownHostsFile": f"{names.MOUNT}/{names.KNOWN_HOSTS}",
        "GlobalKnownHostsFile": "/dev/null",
        "ConnectTimeout": "15",
        "ServerAliveInterval": "15",
        "ServerAliveCountMax": "4",
        "LogLevel": "ERROR",
    }
    lines += [f"  {name} {value}" for name, value in settings.items()]
    return ("\n".join(lines) + "\n").encode()
