"""The same stack for Swarm: one file for all hosts, in the words that `docker stack deploy` understands.

docs/swarm.md has the table of what is said how; whatever Swarm has no word for is refused in kit.model.spec.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kit.model import names
from kit.model.keys import ClusterKeys
from kit.model.launch import Node
from kit.model.observed import HostFacts
from kit.model.spec import PROPAGATIONS, ClusterSpec
from kit.model.swarm import Role
from kit.plan.cluster import stack, yamltext

CLIENT_KEY = f"{names.SECRETS_MOUNT}/id_ed25519"
# The engine marks its GPUs with this kind in every guide there is.
GPU_KINDS = ("NVIDIA-GPU", "gpu", "GPU")
UNITS = {"b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
KEY_FILES: Mapping[Role, str] = {"client": "id_ed25519", "head": "host_ed25519", "node": "host_ed25519"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """The services of a cluster by name: their definitions, each with its digest in its labels."""

    services: Mapping[str, dict[str, Any]]
    secrets: Mapping[Role, str]

    def digest(self, service: str) -> str:
        return str(self.services[service]["labels"][names.LABEL_SPEC])


def secret_name(spec: ClusterSpec, role: Role, public: str) -> str:
    """By content: a key made anew is another secret, so another definition of the service. At most 64 characters."""
    return f"{names.project(spec.name)}-{role}-{stack.short(public)[:12]}"


def secret_names(spec: ClusterSpec, nodes: Sequence[Node], keys: ClusterKeys) -> dict[Role, str]:
    names: dict[Role, str] = {
        "client": secret_name(spec, "client", keys.client.public),
        "head": secret_name(spec, "head", keys.hosts[nodes[0].name].public),
    }
    if len(nodes) > 1:
        names["node"] = secret_name(spec, "node", keys.hosts[nodes[1].name].public)
    return names


def image_of(observed: Sequence[HostFacts], *, tag: str, image_id: str) -> str:
    """What the services name: the image's id, which no engine ever tries to pull; the tag where ids differ."""
    ids = {facts.image_id or image_id for facts in observed}
    found = ids.pop()
    return found if found and not ids else tag


def node_env(spec: ClusterSpec, node: Node, interface: str) -> dict[str, str]:
    """What a node has of its own."""
    return {
        "HOROVOD_GLOO_IFACE": spec.env.get("HOROVOD_GLOO_IFACE", interface),
        "KIT_ADDRESS": node.address,
        "KIT_NODE": node.name,
        "NCCL_SOCKET_IFNAME": spec.env.get("NCCL_SOCKET_IFNAME", f"={interface}"),
    }


def node_env_text(values: Mapping[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in sorted(values.items()))


def wanted(
    spec: ClusterSpec,
    observed: Sequence[HostFacts],
    nodes: Sequence[Node],
    *,
    image: str,
    tag: str,
    interface: str,
    secrets: Mapping[Role, str],
) -> Wanted:
    """The services. `interface` is the head's: mpihead is one task, so it is told all that it has of its own."""
    pairs = list(zip(observed, nodes, strict=True))
    groups = {names.HEAD: pairs[:1], names.NODE: pairs[1:]}
    services = {}
    for name, group in groups.items():
        if not group:
            continue
        environment = {**spec.env, "SSH_PORT": str(spec.ssh_port), "KIT_CLUSTER": spec.name}
        # On nodes these come from node.env; a value of the service's own would go before it there.
        if name == names.HEAD:
            environment |= node_env(spec, group[0][1], interface)
        services[name] = _service(
            spec, name, [f for f, _ in group], image=image, tag=tag, environment=environment, secrets=secrets
        )
    return Wanted(services=services, secrets=secrets)


def _service(
    spec: ClusterSpec,
    name: str,
    observed: Sequence[HostFacts],
    *,
    image: str,
    tag: str,
    environment: dict[str, str],
    secrets: Mapping[Role, str],
) -> dict[str, Any]:
    head = name == names.HEAD
    roles: tuple[Role, ...] = ("head", "client") if head else ("node",)
    if any(facts.gpus for facts in observed):
        # For the NVIDIA runtime, which is the engine's default there. Other hosts take no notice.
        environment.setdefault("NVIDIA_VISIBLE_DEVICES", "all")
        environment.setdefault("NVIDIA_DRIVER_CAPABILITIES", "compute,utility")
    deploy: dict[str, Any] = {
        **({"mode": "replicated", "replicas": 1} if head else {"mode": "global"}),
        "endpoint_mode": "dnsrr",
        "placement": {"constraints": [f"node.labels.{names.node_label(spec.name)} == {'head' if head else 'node'}"]},
        "restart_policy": {"condition": "any", "delay": "2s"},
        # All at once, and the old one first: two cannot have the same port.
        "update_config": {"parallelism": 0, "order": "stop-first"},
    }
    reserved = gpu_reservation(observed)
    if reserved:
        kind, count = reserved
        resource = {"discrete_resource_spec": {"kind": kind, "value": count}}
        deploy["resources"] = {"reservations": {"generic_resources": [resource]}}
    labels = {names.LABEL_CLUSTER: spec.name, names.LABEL_SERVICE: name, names.LABEL_IMAGE: tag}
    body: dict[str, Any] = {
        "image": image,
        # The image's own entrypoint (NGC's have one) is replaced: an empty list would mean that one to Swarm.
        "entrypoint": [stack.START],
        "networks": ["host"],
        "init": True,
        "ulimits": stack.ulimits(spec),
        "environment": {key: _template(value) for key, value in sorted(environment.items())},
        "secrets": [{"source": secrets[role], "target": KEY_FILES[role], "mode": 0o400} for role in roles],
        "volumes": [
            {"type": "bind", "source": names.folder(spec.name), "target": names.MOUNT, "read_only": True},
            *([_bind(f"{names.folder(spec.name)}/{names.STATE}", names.STATE_MOUNT)] if head else []),
            {"type": "tmpfs", "target": "/dev/shm", "tmpfs": {"size": bytes_of(spec.shm_size)}},  # noqa: S108
            *(_mount(volume) for volume in spec.volumes),
        ],
        "labels": labels,
        "deploy": deploy,
    }
    digest = stack.digest(body)
    labels[names.LABEL_SPEC] = digest
    deploy["labels"] = {names.LABEL_CLUSTER: spec.name, names.LABEL_SPEC: digest}
    return {key: value for key, value in body.items() if value != {}}


def gpu_reservation(observed: Sequence[HostFacts]) -> tuple[str, int] | None:
    """(kind, count) where every host of a service advertises the same number of GPUs, and has that many."""
    counts = {len(facts.gpus) for facts in observed}
    for kind in GPU_KINDS:
        advertised = {facts.swarm.resources.get(kind, 0) for facts in observed}
        if len(advertised) == 1 and advertised == counts and counts != {0}:
            return kind, counts.pop()
    return None


def bytes_of(size: str) -> int:
    """`8gb` in bytes: a stack file takes no unit there."""
    digits = size.rstrip("bkmgBKMG")
    return int(digits) * UNITS[size[len(digits)].lower()]


def bind_sources(spec: ClusterSpec) -> list[str]:
    """The folders of VMs that volumes name."""
    return [volume.split(":")[0] for volume in spec.volumes if volume[0] in "/."]


def _bind(source: str, target: str) -> dict[str, Any]:
    return {"type": "bind", "source": source, "target": target}


def _mount(volume: str) -> dict[str, Any]:
    """Compose's short form as a mount; modes that Swarm has no word for do not come here."""
    source, target, *rest = volume.split(":")
    modes = rest[0].split(",") if rest else []
    mount = {"type": "bind" if source[0] in "/." else "volume", "source": source, "target": target}
    mount = {key: _template(value) for key, value in mount.items()}
    more: dict[str, Any] = {}
    if "ro" in modes:
        more["read_only"] = True
    if "nocopy" in modes:
        more["volume"] = {"nocopy": True}
    propagation = next((mode for mode in modes if mode in PROPAGATIONS), None)
    if propagation:
        more["bind"] = {"propagation": propagation}
    return {**mount, **more}


def _template(value: str) -> str:
    """Swarm reads a Go template in variables and mounts; two braces are written so that they stay what they are."""
    return value.replace("{{", '{{"{{"}}')


def stack_text(spec: ClusterSpec, wanted: Wanted, *, notes: Sequence[str] = ()) -> str:
    """The stack file. A `$` in a value is doubled, or it would be looked for as a variable."""
    file, name = f"{names.folder(spec.name)}/{names.STACK_FILE}", names.project(spec.name)
    head = (
        f"# Cluster {spec.name}, written by kit deploy. By hand, on the head:\n"
        f"# docker stack deploy --resolve-image never --prune -c {file} {name}\n"
    )
    return head + "".join(f"# {note}\n" for note in notes) + yamltext.dump(document(spec, wanted))


def document(spec: ClusterSpec, wanted: Wanted) -> dict[str, Any]:
    found: dict[str, Any] = {
        # Engines before 25 want it, and take a file without it for one of 2014.
        "version": "3.8",
        "services": stack.escape(dict(wanted.services)),
        "networks": {"host": {"external": True}},
        "secrets": {name: {"external": True} for name in sorted(set(wanted.secrets.values()))},
    }
    named = sorted(set(_named(spec.volumes)))
    if named:
        found["volumes"] = {source: {} for source in named}
    return found


def _named(volumes: Iterable[str]) -> Iterable[str]:
    return (source for source, _, _ in (volume.partition(":") for volume in volumes) if source[0] not in "/.")
