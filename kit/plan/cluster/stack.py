"""The services mpihead and mpinode as data, and the Compose file that each host gets."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from kit.model import names
from kit.plan.cluster import data, fence, yamltext
from kit.plan.cluster.gpus import Driver
from kit.plan.cluster.rdma import DEVICES as RDMA_DEVICES

if TYPE_CHECKING:
    from kit.model.launch import Node
    from kit.model.spec import ClusterSpec


START = f"{names.IMAGE_BIN}/start.sh"


class ComposeFile(Struct, frozen=True, kw_only=True):
    """One host's Compose file. The running container has `digest`, that of its definition, as a label."""

    text: str
    digest: str


class ComposeFiles:
    """Writes the Compose files of a cluster. `image` is a tag.

    The files of similar hosts differ in a few values only, so each form is written once and filled in for each host: a
    plan may hold 10,000 of them.
    """

    def __init__(self, spec: ClusterSpec, image: str) -> None:
        self._spec = spec
        self._image = image
        self._forms: dict[tuple[str, Driver, bool, bool, tuple[str, ...]], _Form] = {}

    def file(
        self,
        service: str,
        *,
        node: Node,
        interface: str,
        gpus: Driver,
        host_key: str,
        rdma: bool = False,
        more: Mapping[str, str] = MappingProxyType({}),
    ) -> ComposeFile:
        """Return the file of one host. `host_key` is the public half, '' if it does not exist yet.

        `rdma`: the node gets the host's RDMA devices. `more` has further variables of this host.
        """
        own = own_environment(self._spec, node, interface, more)
        values = {**own, _KEY: short(host_key)}
        kind = (service, gpus, bool(host_key), rdma, tuple(more))
        form = self._forms.get(kind)
        if form is None:
            form = self._forms[kind] = self._form(service, gpus=gpus, rdma=rdma, keyed=bool(host_key), own_names=own)
        digest = short(form.definition.fill(values))
        return ComposeFile(text=form.text.fill({**values, _DIGEST: digest}), digest=digest)

    def _form(self, service: str, *, gpus: Driver, rdma: bool, keyed: bool, own_names: Iterable[str]) -> _Form:
        def body(gap: Callable[[str], str]) -> dict[str, Any]:
            own = {name: gap(name) for name in sorted(own_names)}
            key = gap(_KEY) if keyed else ""
            return definition(self._spec, name=service, image=self._image, gpus=gpus, rdma=rdma, own=own, key=key)

        mark = "gap"
        while mark in json.dumps(body(str)):
            mark += "_"
        gaps = body(lambda name: f"{mark}{name}{mark}")
        defined = json.dumps(gaps, sort_keys=True)
        gaps["labels"][names.LABEL_SPEC] = f"{mark}{_DIGEST}{mark}"
        return _Form(
            definition=_Template(defined, mark, _json),
            text=_Template(compose_text(self._spec, service, gaps), mark, lambda value: yamltext.scalar(escape(value))),
        )


_json = json.JSONEncoder().encode
# The names of gaps that are no variables.
_KEY, _DIGEST = "key", "digest"


class _Template:
    """Text with gaps. Each gap is between two `mark`s and holds a whole value. `write` spells a value."""

    def __init__(self, text: str, mark: str, write: Callable[[str], str]) -> None:
        # Text and names of gaps in turn. JSON quotes a gap, kit's YAML does not.
        self._parts = re.split(rf'"?{mark}(\w+?){mark}"?', text)
        self._write = write

    def fill(self, values: Mapping[str, str]) -> str:
        parts = self._parts.copy()
        parts[1::2] = [self._write(values[name]) for name in parts[1::2]]
        return "".join(parts)


class _Form(Struct, frozen=True, kw_only=True):
    definition: _Template
    text: _Template


def own_environment(
    spec: ClusterSpec, node: Node, interface: str, more: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """Return the variables whose values differ from host to host. NCCL and Gloo accept only names of interfaces.

    `more` are those of the host's RDMA (kit.plan.cluster.rdma).
    """
    return {
        "HOROVOD_GLOO_IFACE": spec.env.get("HOROVOD_GLOO_IFACE", interface),
        "KIT_ADDRESS": node.address,
        "KIT_NODE": node.name,
        # With '=', NCCL uses exactly this interface, and not all whose names begin with this one.
        "NCCL_SOCKET_IFNAME": spec.env.get("NCCL_SOCKET_IFNAME", f"={interface}"),
        **more,
    }


def volumes(spec: ClusterSpec) -> tuple[str, ...]:
    """Return the user's volumes, the data sets, and the folder of NCCL's plugin.

    A plugin in an image must have its folder by now (kit.plan.cluster.plugin.mounted).
    """
    plugin = (f"{spec.nccl.folder}:{names.NCCL_PLUGIN}:ro",) if spec.nccl.folder else ()
    return (*spec.volumes, *data.volumes(spec), *plugin)


def declared_volumes(spec: ClusterSpec) -> dict[str, Any]:
    """Return the named volumes, which both Compose and Swarm require to be declared."""
    named = sorted({source for source, _, _ in (v.partition(":") for v in spec.volumes) if source[0] not in "/."})
    return {**{source: {} for source in named}, **data.declared(spec)}


def definition(
    spec: ClusterSpec, *, name: str, image: str, gpus: Driver, own: Mapping[str, str], key: str, rdma: bool = False
) -> dict[str, Any]:
    """Return the service as Compose spells it. `own`: the host's variables. `key`: the digest of its host key or ''.

    `rdma`: the node gets the host's RDMA devices.
    """
    environment = {**variables(spec), **own}
    body: dict[str, Any] = {
        "image": image,
        "container_name": names.container(spec.name, name),
        "command": [START],
        "entrypoint": [],
        # kit brings the image; Compose must not pull another one.
        "pull_policy": "never",
        "network_mode": "host",
        # An engine with userns-remap refuses the VM's network to users of another namespace. Others ignore this.
        "userns_mode": "host",
        "init": True,
        "restart": "unless-stopped",
        "shm_size": spec.shm_size,
        "ulimits": ulimits(spec),
        **_fenced(spec, rdma=rdma),
        **_limits(spec),
        **({"devices": devices} if (devices := _devices(spec, rdma=rdma)) else {}),
        "environment": dict(sorted(environment.items())),
        "volumes": [
            f"{names.folder(spec.name)}:{names.MOUNT}:ro",
            _state(spec),
            *_scratch(spec),
            *fence.own_names(spec),
            *fence.huge_pages(spec),
            *volumes(spec),
        ],
        "labels": {
            names.LABEL_CLUSTER: spec.name,
            names.LABEL_SERVICE: name,
            **({names.LABEL_KEY: key} if key else {}),
        },
    }
    if gpus:
        which: dict[str, Any] = {"device_ids": [names.ALL_GPUS]} if gpus == "cdi" else {"count": "all"}
        reserved = [{"driver": gpus, **which, "capabilities": ["gpu"]}]
        body["deploy"] = {"resources": {"reservations": {"devices": reserved}}}
    return body


def variables(spec: ClusterSpec) -> dict[str, str]:
    """Return the variables of every node of the cluster."""
    ours = {"SSH_PORT": str(spec.ssh_port), "KIT_CLUSTER": spec.name, **fence.environment(spec)}
    return {**spec.env, **ours, **data.variables(spec.data)}


def _fenced(spec: ClusterSpec, *, rdma: bool) -> dict[str, Any]:
    """Return the fence as Compose spells it."""
    return {
        "cap_drop": ["ALL"],
        "cap_add": fence.capabilities(spec, rdma=rdma),
        **({"security_opt": options} if (options := fence.security_options(spec)) else {}),
        **({"read_only": True} if spec.security.read_only else {}),
        **({"tmpfs": [f"{fence.RUN}:mode=755,size={fence.RUN_BYTES}"]} if fence.has_run(spec) else {}),
        **({"pids_limit": spec.processes} if spec.processes else {}),
    }


def _devices(spec: ClusterSpec, *, rdma: bool) -> list[str]:
    """Return the devices of a node. A folder stands for all devices in it."""
    written = [device if ":" in device else f"{device.rstrip('/')}:{device.rstrip('/')}" for device in spec.devices]
    own = [] if not rdma or any(device.split(":")[1] == RDMA_DEVICES for device in written) else [RDMA_DEVICES]
    return [*(f"{folder}:{folder}" for folder in own), *written]


def _limits(spec: ClusterSpec) -> dict[str, Any]:
    """Return the limits as Compose spells them. Ranks in swap would slow the whole job down, so they get none."""
    return {
        **({"cpus": f"{spec.cpu_limit:g}"} if spec.cpu_limit else {}),
        **({"mem_limit": spec.memory, "memswap_limit": spec.memory} if spec.memory else {}),
    }


def _scratch(spec: ClusterSpec) -> list[str]:
    return [f"{fence.scratch_folder(spec)}:{target}" for target in fence.scratch(spec)]


def _state(spec: ClusterSpec) -> str:
    """Mount the folder of what runs leave behind, which outlives the container."""
    return f"{names.folder(spec.name)}/{names.STATE}:{names.STATE_MOUNT}"


def digest(body: Mapping[str, Any]) -> str:
    """Return the digest of a service's definition. The running container has it as a label."""
    return short(json.dumps(body, sort_keys=True))


def short(text: str) -> str:
    """Return 16 hexadecimal digits of the text's SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def ulimits(spec: ClusterSpec) -> dict[str, Any]:
    """Return the limits as both Compose and Swarm spell them."""
    limits: dict[str, Any] = {}
    if spec.ulimits.memlock == "unlimited":
        limits["memlock"] = {"soft": -1, "hard": -1}
    if spec.ulimits.nofile:
        limits["nofile"] = {"soft": spec.ulimits.nofile, "hard": spec.ulimits.nofile}
    if spec.ulimits.stack:
        limits["stack"] = {"soft": spec.ulimits.stack, "hard": spec.ulimits.stack}
    return limits


def compose_text(spec: ClusterSpec, name: str, body: Mapping[str, Any]) -> str:
    """Return the Compose file with one service. Each `$` in a value is doubled, or Compose would expand a variable."""
    file = f"{names.folder(spec.name)}/{names.COMPOSE_FILE}"
    head = f"# Cluster {spec.name}, written by kit deploy. By hand: docker compose -f {file} up -d\n"
    document: dict[str, Any] = {
        "name": names.project(spec.name),
        "services": {name: {key: escape(value) for key, value in body.items() if value != {}}},
    }
    if named := declared_volumes(spec):
        document["volumes"] = escape(named)
    return head + yamltext.dump(document)


def escape(value: Any) -> Any:
    """Return the value with each `$` doubled, at any depth."""
    if isinstance(value, str):
        return value.replace("$", "$$") if "$" in value else value
    if isinstance(value, dict):
        return {key: escape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [escape(item) for item in value]
    return value
