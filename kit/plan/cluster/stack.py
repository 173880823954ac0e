"""The stack: services mpihead and mpinode as data, and the Compose file that each host gets of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kit.model import names
from kit.plan.cluster import yamltext

if TYPE_CHECKING:
    from kit.model.launch import Node
    from kit.model.observed import HostFacts
    from kit.model.spec import ClusterSpec


START = f"{names.IMAGE_BIN}/start.sh"


def service(
    spec: ClusterSpec,
    *,
    name: str,
    image: str,
    node: Node,
    interface: str,
    gpus: bool,
    host_key: str,
) -> dict[str, Any]:
    """One service as Compose writes it. `interface` is the host's own, for NCCL and Gloo, which take names only.

    `host_key` is the public half, '' where there is none yet.
    """
    environment = {
        **spec.env,
        "SSH_PORT": str(spec.ssh_port),
        "KIT_CLUSTER": spec.name,
        "KIT_NODE": node.name,
        "KIT_ADDRESS": node.address,
        # '=' asks NCCL for this name and not for all that begin with it.
        "NCCL_SOCKET_IFNAME": spec.env.get("NCCL_SOCKET_IFNAME", f"={interface}"),
        "HOROVOD_GLOO_IFACE": spec.env.get("HOROVOD_GLOO_IFACE", interface),
    }
    body: dict[str, Any] = {
        "image": image,
        "container_name": names.container(spec.name, name),
        "command": [START],
        "entrypoint": [],
        # Never a pull behind the user's back: kit ships the image.
        "pull_policy": "never",
        "network_mode": "host",
        "init": True,
        "restart": "unless-stopped",
        "shm_size": spec.shm_size,
        "ulimits": ulimits(spec),
        "environment": dict(sorted(environment.items())),
        "volumes": [f"{names.folder(spec.name)}:{names.MOUNT}:ro", *_runs(spec, name), *spec.volumes],
        "labels": {
            names.LABEL_CLUSTER: spec.name,
            names.LABEL_SERVICE: name,
            **({names.LABEL_KEY: short(host_key)} if host_key else {}),
        },
    }
    if gpus:
        devices = [{"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}]
        body["deploy"] = {"resources": {"reservations": {"devices": devices}}}
    body["labels"][names.LABEL_SPEC] = digest(body)
    return {key: value for key, value in body.items() if value != {}}


def _runs(spec: ClusterSpec, name: str) -> list[str]:
    """The head keeps the runs: their records and logs outlive its container."""
    return [f"{names.folder(spec.name)}/{names.STATE}:{names.STATE_MOUNT}"] if name == names.HEAD else []


def digest(body: Mapping[str, Any]) -> str:
    """What tells two definitions of a service apart; the running container carries it as a label."""
    return short(json.dumps(body, sort_keys=True))


def short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def ulimits(spec: ClusterSpec) -> dict[str, Any]:
    """The limits as both Compose and Swarm write them."""
    limits: dict[str, Any] = {}
    if spec.ulimits.memlock == "unlimited":
        limits["memlock"] = {"soft": -1, "hard": -1}
    if spec.ulimits.nofile:
        limits["nofile"] = {"soft": spec.ulimits.nofile, "hard": spec.ulimits.nofile}
    if spec.ulimits.stack:
        limits["stack"] = {"soft": spec.ulimits.stack, "hard": spec.ulimits.stack}
    return limits


def compose_text(spec: ClusterSpec, name: str, body: Mapping[str, Any]) -> str:
    """The Compose file of one host. A `$` in a value is doubled, or Compose would look for a variable."""
    file = f"{names.folder(spec.name)}/{names.COMPOSE_FILE}"
    head = f"# Cluster {spec.name}, written by kit deploy. By hand: docker compose -f {file} up -d\n"
    document: dict[str, Any] = {"name": names.project(spec.name), "services": {name: escape(body)}}
    # A volume that is no path is Compose's own, and has to be declared.
    named = [source for source, _, _ in (volume.partition(":") for volume in spec.volumes) if source[0] not in "/."]
    if named:
        document["volumes"] = {source: {} for source in named}
    return head + yamltext.dump(document)


def escape(value: Any) -> Any:
    """The value with each `$` doubled, at any depth."""
    if isinstance(value, str):
        return value.replace("$", "$$") if "$" in value else value
    if isinstance(value, dict):
        return {key: escape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [escape(item) for item in value]
    return value


def has_gpus(facts: HostFacts) -> bool:
    return bool(facts.gpus)
