"""The same services for Swarm: one file for all hosts, as `docker stack deploy` reads it.

docs/swarm.md has the table of equivalents. kit.model.spec refuses what Swarm cannot express.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from kit.model import names
from kit.model.keys import ClusterKeys
from kit.model.launch import Node
from kit.model.observed import HostFacts
from kit.model.quantity import size_bytes
from kit.model.spec import PROPAGATIONS, ClusterSpec
from kit.model.swarm import Role
from kit.plan.cluster import fence, stack, wires, yamltext

CLIENT_KEY = f"{names.SECRETS_MOUNT}/id_ed25519"
# The kinds under which guides let engines advertise GPUs.
GPU_KINDS = ("NVIDIA-GPU", "gpu", "GPU")
KEY_FILES: Mapping[Role, str] = {"client": "id_ed25519", "head": "host_ed25519", "node": "host_ed25519"}


class Wanted(Struct, frozen=True, kw_only=True):
    """The definitions of a cluster's services by name. Each has its digest among its labels."""

    services: Mapping[str, dict[str, Any]]
    secrets: Mapping[Role, str]

    def digest(self, service: str) -> str:
        return str(self.services[service]["labels"][names.LABEL_SPEC])


def secret_name(spec: ClusterSpec, role: Role, public: str) -> str:
    """Return a secret's name (at most 64 characters). A new key has a new name, so the service's definition changes."""
    return f"{names.project(spec.name)}-{role}-{stack.short(public)[:12]}"


def secret_names(spec: ClusterSpec, nodes: Sequence[Node], keys: ClusterKeys) -> dict[Role, str]:
    """Return the names of the secrets with these keys. A cluster of one host has no nodes' key."""
    names: dict[Role, str] = {
        "client": secret_name(spec, "client", keys.client.public),
        "head": secret_name(spec, "head", keys.hosts[nodes[0].name].public),
    }
    if len(nodes) > 1:
        names["node"] = secret_name(spec, "node", keys.hosts[nodes[1].name].public)
    return names


def image_of(observed: Sequence[HostFacts], *, tag: str, image_id: str) -> str:
    """Return the image's id, which no engine tries to pull, or its tag if ids differ between hosts."""
    ids = {facts.image_id or image_id for facts in observed}
    only = ids.pop()
    return only if only and not ids else tag


def node_env_text(values: Mapping[str, str]) -> str:
    """Return NODE_ENV's text."""
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
    """Return the services. `interface` is the head's: mpihead is one task, and its definition has its variables."""
    pairs = list(zip(observed, nodes, strict=True))
    groups = {names.HEAD: pairs[:1], names.NODE: pairs[1:]}
    services = {}
    for name, group in groups.items():
        if not group:
            continue
        environment = stack.variables(spec)
        # Nodes get these from node.env, which a value in the definition would override.
        if name == names.HEAD:
            environment |= stack.own_environment(spec, group[0][1], interface, wires.environment(group[0][0], spec))
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
        # For the NVIDIA runtime, the engine's default on GPU hosts. Other hosts ignore them.
        environment.setdefault("NVIDIA_VISIBLE_DEVICES", "all")
        environment.setdefault("NVIDIA_DRIVER_CAPABILITIES", "compute,utility")
    deploy = _deploy(spec, name, observed)
    labels = {names.LABEL_CLUSTER: spec.name, names.LABEL_SERVICE: name, names.LABEL_IMAGE: tag}
    body: dict[str, Any] = {
        "image": image,
        # Replaces the image's entrypoint (NGC's have one): Swarm would use that one if the list were empty.
        "entrypoint": [stack.START],
        "networks": ["host"],
        "init": True,
        "ulimits": stack.ulimits(spec),
        "cap_drop": ["ALL"],
        "cap_add": fence.capabilities(spec),
        **({"read_only": True} if spec.security.read_only else {}),
        "environment": {key: _template(value) for key, value in sorted(environment.items())},
        "secrets": [{"source": secrets[role], "target": KEY_FILES[role], "mode": 0o400} for role in roles],
        "volumes": _volumes(spec),
        "labels": labels,
        "deploy": deploy,
    }
    digest = stack.short(json.dumps(body, sort_keys=True))
    labels[names.LABEL_SPEC] = digest
    deploy["labels"] = {names.LABEL_CLUSTER: spec.name, names.LABEL_SPEC: digest}
    return {key: value for key, value in body.items() if value != {}}


def _deploy(spec: ClusterSpec, name: str, observed: Sequence[HostFacts]) -> dict[str, Any]:
    """Return where the tasks of a service run, how they are replaced, and what they reserve and may use."""
    head = name == names.HEAD
    deploy: dict[str, Any] = {
        **({"mode": "replicated", "replicas": 1} if head else {"mode": "global"}),
        "endpoint_mode": "dnsrr",
        "placement": {"constraints": [f"node.labels.{names.node_label(spec.name)} == {'head' if head else 'node'}"]},
        "restart_policy": {"condition": "any", "delay": "2s"},
        # All at once, and stop the old task first: two cannot have the same port.
        "update_config": {"parallelism": 0, "order": "stop-first"},
    }
    reserved = gpu_reservation(observed)
    if reserved:
        kind, count = reserved
        resource = {"discrete_resource_spec": {"kind": kind, "value": count}}
        deploy["resources"] = {"reservations": {"generic_resources": [resource]}}
    if limits := _limits(spec):
        deploy.setdefault("resources", {})["limits"] = limits
    return deploy


def _volumes(spec: ClusterSpec) -> list[dict[str, Any]]:
    return [
        {"type": "bind", "source": names.folder(spec.name), "target": names.MOUNT, "read_only": True},
        _bind(f"{names.folder(spec.name)}/{names.STATE}", names.STATE_MOUNT),
        _tmpfs("/dev/shm", size_bytes(spec.shm_size)),  # noqa: S108
        *([_tmpfs(fence.RUN, fence.RUN_BYTES)] if fence.has_run(spec) else []),
        *(_bind(fence.scratch_folder(spec), target) for target in fence.scratch(spec)),
        *(_mount(volume) for volume in fence.own_names(spec)),
        *(_bind(fence.HUGE_PAGES, fence.HUGE_PAGES) for _ in fence.huge_pages(spec)),
        *(_mount(volume) for volume in stack.volumes(spec)),
    ]


def _limits(spec: ClusterSpec) -> dict[str, Any]:
    """Return the limits of a task. Swarm has none for swap (docs/swarm.md)."""
    return {
        **({"cpus": f"{spec.cpu_limit:g}"} if spec.cpu_limit else {}),
        **({"memory": spec.memory} if spec.memory else {}),
        **({"pids": spec.processes} if spec.processes else {}),
    }


def gpu_reservation(observed: Sequence[HostFacts]) -> tuple[str, int] | None:
    """Return (kind, count) if every host of a service advertises the same number of GPUs and has that many."""
    counts = {len(facts.gpus) for facts in observed}
    for kind in GPU_KINDS:
        advertised = {facts.swarm.resources.get(kind, 0) for facts in observed}
        if len(advertised) == 1 and advertised == counts and counts != {0}:
            return kind, counts.pop()
    return None


def _bind(source: str, target: str) -> dict[str, Any]:
    return {"type": "bind", "source": source, "target": target}


def _tmpfs(target: str, size: int) -> dict[str, Any]:
    return {"type": "tmpfs", "target": target, "tmpfs": {"size": size}}


def _mount(volume: str) -> dict[str, Any]:
    """Return Compose's short form as a mount. kit.model.spec has refused the modes that Swarm lacks."""
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
    """Return the value with `{{` escaped: Swarm expands Go templates in variables and mounts."""
    return value.replace("{{", '{{"{{"}}')


def stack_text(spec: ClusterSpec, wanted: Wanted, *, notes: Sequence[str] = ()) -> str:
    """Return the stack file. Each `$` in a value is doubled, or it would be expanded as a variable."""
    file, name = f"{names.folder(spec.name)}/{names.STACK_FILE}", names.project(spec.name)
    head = (
        f"# Cluster {spec.name}, written by kit deploy. By hand, on the head:\n"
        f"# docker stack deploy --resolve-image never --prune -c {file} {name}\n"
    )
    return head + "".join(f"# {note}\n" for note in notes) + yamltext.dump(document(spec, wanted))


def document(spec: ClusterSpec, wanted: Wanted) -> dict[str, Any]:
    """Return the stack file as data."""
    content: dict[str, Any] = {
        # Engines before 25 require it; they read a file without it in the format of 2014. 3.9 has limits of processes.
        "version": "3.9",
        "services": stack.escape(dict(wanted.services)),
        "networks": {"host": {"external": True}},
        "secrets": {name: {"external": True} for name in sorted(set(wanted.secrets.values()))},
    }
    if named := stack.declared_volumes(spec):
        content["volumes"] = stack.escape(named)
    return content
