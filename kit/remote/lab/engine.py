"""The lab on this machine's engine: its networks, hosts and volumes, each found by label. Nothing here decides."""

from __future__ import annotations

import contextlib
import io
import ipaddress
import re
import tarfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import docker.errors
import docker.types
import requests

from kit.errors import NotReadyError, StepError
from kit.model.lab import (
    FOLDER_LABEL,
    HOST_LABEL,
    LABEL,
    SHAPE_LABEL,
    HostContainer,
    LabContainer,
    LabNetwork,
    LabObjects,
    network_name,
)
from kit.remote.engine import sdk
from kit.remote.engine.hiccups import insist
from kit.remote.lab.answers import errors
from kit.remote.lab.host import RunningHost

# The prefix of a route for half of all addresses.
_HALF = 1
_CERTIFICATES = "/usr/local/share/ca-certificates/kit-lab.crt"
# How long to wait for what the engine is doing already.
_PATIENCE_S = 60.0
_POLL_S = 0.3
_NOT_YET = re.compile(
    r"already in progress|did not receive an exit event|resource busy|has active endpoints|volume is in use"
)
_NO_NETWORK = re.compile(r"network \S+ not found")


class LabEngine:
    """This machine's engine, for the lab. `close` it. Safe to use from several threads.

    Methods raise UnreachableError if the engine does not answer, and StepError if it refuses.
    """

    def __init__(self) -> None:
        # Hosts start side by side, each over its own connection.
        self.client = sdk.connect(timeout_s=120, connections=32)

    def close(self) -> None:
        self.client.close()

    def find(self, lab: str) -> LabObjects:
        """Return everything that carries the lab's label."""
        with errors("cannot look for the lab"):
            filters: dict[str, str | list[str] | bool] = {"label": f"{LABEL}={lab}"}
            containers = self.client.containers.list(all=True, filters=filters, ignore_removed=True)
            networks = self.client.networks.list(filters=filters)
            volumes = self.client.volumes.list(filters=filters)
            hosts = [_container(c, network_name(lab)) for c in containers if HOST_LABEL in c.labels]
            labeled = [_network(n) for n in networks]
            primary = [n for n in labeled if n.name == network_name(lab)]
            further: dict[str, LabNetwork] = {n.name: n for n in labeled if n.name != network_name(lab)}
            used = {n.id for n in (*primary[:1], *further.values())}
            return LabObjects(
                network=primary[0] if primary else None,
                more_nics=tuple(further[name] for name in sorted(further)),
                containers=tuple(sorted(hosts, key=lambda c: (len(c.host), c.host))),
                helpers=tuple(str(c.id) for c in containers if HOST_LABEL not in c.labels),
                volumes=tuple(str(v.name) for v in volumes),
                other_networks=tuple(n.id for n in labeled if n.id not in used),
            )

    def taken_subnets(self) -> tuple[ipaddress.IPv4Network, ...]:
        """Return every network that the engine or the machine's routes already use."""
        taken = list(_routes(Path("/proc/net/route")))
        with errors("cannot read the engine's networks"):
            for network in self.client.networks.list():
                for config in (network.attrs.get("IPAM") or {}).get("Config") or []:
                    with contextlib.suppress(ValueError):
                        taken.append(ipaddress.IPv4Network(config.get("Subnet", "")))
        return tuple(taken)

    def create_network(self, name: str, subnet: ipaddress.IPv4Network, labels: dict[str, str]) -> bool:
        """Create the network. Return False if the engine reports that the subnet is taken after all.

        Raises NotReadyError if it has a network of this name: another `lab up` made it since kit looked.
        """
        ipam = docker.types.IPAMConfig(pool_configs=[docker.types.IPAMPool(subnet=str(subnet))])
        try:
            with errors(f"cannot create the network {subnet}"):
                self.client.networks.create(name, driver="bridge", ipam=ipam, labels=labels, check_duplicate=True)
        except StepError as error:
            if not isinstance(error.__cause__, docker.errors.APIError):
                raise
            if "overlap" in error.message.lower():
                return False
            if "already exists" in error.message:
                lab = labels[LABEL]
                raise NotReadyError(
                    f"another kit lab up is making the lab '{lab}', or has made it",
                    hint=f"Wait for it, and look: kit lab status --name {lab}",
                ) from error
            raise
        return True

    def create(self, wanted: HostContainer) -> None:
        """Create the host's volume and container, and start nothing."""
        with errors("cannot create the container", wanted.host):
            self.client.volumes.create(wanted.volume, labels=dict(wanted.labels))
            api = self.client.api
            host_config = api.create_host_config(
                init=not wanted.own_init,
                restart_policy={"Name": "on-failure"} if wanted.own_init else None,
                cap_add=list(wanted.cap_add),
                cap_drop=list(wanted.cap_drop),
                security_opt=list(wanted.security_opt),
                device_cgroup_rules=list(wanted.device_cgroup_rules),
                tmpfs=dict(wanted.tmpfs),
                mounts=[docker.types.Mount("/var/lib/docker", wanted.volume, type="volume")],
                network_mode=wanted.network,
            )
            # The docker command calls this systempaths=unconfined; the SDK has no option for it.
            host_config |= {"MaskedPaths": [], "ReadonlyPaths": []}
            endpoint = api.create_endpoint_config(ipv4_address=wanted.address, aliases=[wanted.host])
            options = {
                "name": wanted.container,
                "hostname": wanted.host,
                "environment": dict(wanted.env),
                "labels": dict(wanted.labels),
                "host_config": host_config,
                "networking_config": {"EndpointsConfig": {wanted.network: endpoint}},
            }
            deadline = time.monotonic() + _PATIENCE_S
            while not self._created(wanted, options):
                if time.monotonic() > deadline:
                    raise StepError(
                        f"the engine did not create {wanted.container} within {_PATIENCE_S:.0f} s", host=wanted.host
                    )
                time.sleep(_POLL_S)
            for network, address in wanted.more_nics:
                self._connect(wanted, network, address)
            if wanted.certificates:
                _put_file(api, wanted.container, _CERTIFICATES, wanted.certificates)

    def _connect(self, wanted: HostContainer, network: str, address: str) -> None:
        """Give the host another NIC, unless a `lab up` that was killed did."""
        api = self.client.api
        if network not in api.inspect_container(wanted.container)["NetworkSettings"]["Networks"]:
            api.connect_container_to_network(wanted.container, network, ipv4_address=address)

    def _created(self, wanted: HostContainer, options: dict[str, Any]) -> bool:
        """Create the container. Return False while the engine still creates it for a `lab up` that was killed.

        The engine reserves the name first, and then has no container of that name yet.
        """
        try:
            self.client.api.create_container(wanted.image, **options)
            return True
        except docker.errors.APIError as error:
            # Newer engines refuse to drop a capability that this machine cannot grant.
            if "invalid CapDrop" in str(error) and options["host_config"].pop("CapDrop", None):
                return self._created(wanted, options)
            if error.status_code != requests.codes.conflict:
                raise
            try:
                existing = self.client.api.inspect_container(wanted.container)
            except docker.errors.NotFound:
                return False
            # A container has the labels of its image, too.
            if not dict(wanted.labels).items() <= existing["Config"]["Labels"].items():
                raise
            return True

    def start(self, wanted: HostContainer) -> None:
        try:
            with errors("cannot start the container", wanted.host):
                insist(lambda: self.client.api.start(wanted.container))
        except StepError as error:
            if _NO_NETWORK.search(error.message):
                # The container names the network by its id, so a new one does not help.
                raise StepError(
                    "its network is gone, as after docker network prune beside stopped hosts",
                    hint=f"Take the lab down, and make it again: kit lab down --name {wanted.labels[LABEL]}",
                    host=wanted.host,
                ) from error
            raise

    def host(self, container: str, host: str) -> RunningHost:
        """Return the host of this container, which has been started."""
        return RunningHost(self.client, container, host)

    def bridge(self, network: str) -> str:
        """Return the device that connects this machine to a network."""
        with errors("cannot read the network"):
            facts = self.client.api.inspect_network(network)
            return str((facts.get("Options") or {}).get("com.docker.network.bridge.name") or f"br-{facts['Id'][:12]}")

    def shape_links(self, image: str, rate: str, devices: list[str], labels: dict[str, str]) -> None:
        """Limit what leaves by these devices of this machine, with a short-lived container in the host's network."""
        with errors(f"cannot limit the links to {rate}"):
            container = self.client.containers.create(
                image,
                ["/usr/local/sbin/link-rate", rate, *devices],
                network_mode="host",
                cap_add=["NET_ADMIN"],
                labels=labels,
            )
            try:
                insist(container.start)
                code = int(container.wait()["StatusCode"])
                output = container.logs().decode(errors="replace").strip()
            finally:
                # The image declares a volume for the engine's data: each container gets one without a name.
                container.remove(force=True, v=True)
        if code:
            raise StepError(f"the links cannot be limited to {rate}: {output}")

    def remove(self, existing: LabObjects, *, again: str) -> None:
        """Remove all of it. What is gone already is no error.

        Raises StepError if other containers use a network of the lab. `again` is the command after they left it.
        """
        with errors("cannot remove the lab"):
            containers = [*(c.id for c in existing.containers), *existing.helpers]
            with ThreadPoolExecutor(max_workers=8) as pool:
                list(pool.map(self._remove_container, containers))
            # Before the networks, which somebody else's containers may use.
            for volume in existing.volumes:
                _until_gone(partial(self.client.api.remove_volume, volume, force=True))
            used: dict[str, list[str]] = {}
            for network in existing.networks:
                used |= self._remove_network(network, frozenset(containers))
        if used:
            names = ", ".join(dict.fromkeys(name for others in used.values() for name in others))
            commands = [f"docker network disconnect {net} {name}" for net, others in used.items() for name in others]
            raise StepError(
                f"the lab's network cannot be removed, because other containers use it: {names}",
                hint=f"{' && '.join(commands)}, then: {again}",
            )

    def _remove_network(self, network: str, ours: frozenset[str]) -> dict[str, list[str]]:
        """Remove the network, or return its name and the names of the containers that keep it."""
        others: dict[str, list[str]] = {}

        def is_kept() -> bool:
            with contextlib.suppress(docker.errors.NotFound):
                facts = self.client.api.inspect_network(network)
                if names := others_of(facts.get("Containers") or {}, ours):
                    others[str(facts["Name"])] = names
            return bool(others)

        _until_gone(partial(self.client.api.remove_network, network), is_kept)
        return others

    def _remove_container(self, container: str) -> None:
        _until_gone(partial(self.client.api.remove_container, container, force=True, v=True))


def reaches(subnet: ipaddress.IPv4Network) -> bool:
    """Return whether this machine has a route into a network of the engine, as it has if the engine is its own."""
    return subnet in _routes(Path("/proc/net/route"))


def others_of(endpoints: Mapping[str, Mapping[str, str]], ours: Collection[str]) -> list[str]:
    """Return the names of the containers on a network that are not the lab's, from the engine's facts of it.

    An endpoint whose container is gone has no ID of a container, and the engine may still remove it.
    """
    return sorted(
        facts.get("Name") or container
        for container, facts in endpoints.items()
        if container not in ours and not container.startswith("ep-")
    )


def _until_gone(remove: Callable[[], object], is_kept: Callable[[], bool] = lambda: False) -> None:
    """Repeat the removal while the engine is busy: processes still end, or somebody else removes the same thing.

    Give up if `is_kept`: waiting does not help.
    """
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            remove()
            return
        except docker.errors.NotFound:
            return
        except docker.errors.APIError as error:
            if time.monotonic() > deadline or not _NOT_YET.search(str(error.explanation or error)):
                raise
            if is_kept():
                return
        time.sleep(_POLL_S)


def _put_file(api: Any, container: str, path: str, content: bytes) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        member = tarfile.TarInfo(path.lstrip("/"))
        member.size, member.mode = len(content), 0o644
        archive.addfile(member, io.BytesIO(content))
    api.put_archive(container, "/", stream.getvalue())


def _container(container: Any, network: str) -> LabContainer:
    """Return a host with its address in `network`, or in any other if it has left that."""
    attrs = container.attrs
    endpoints = attrs["NetworkSettings"].get("Networks") or {}
    configured = [
        (endpoint.get("IPAMConfig") or {}).get("IPv4Address") or endpoint.get("IPAddress") or ""
        for name, endpoint in sorted(endpoints.items(), key=lambda item: item[0] != network)
    ]
    return LabContainer(
        id=str(container.id),
        host=str(container.labels[HOST_LABEL]),
        address=next(iter(configured), ""),
        state=str(attrs["State"]["Status"]),
    )


def _network(network: Any) -> LabNetwork:
    labels = network.attrs.get("Labels") or {}
    subnet = network.attrs["IPAM"]["Config"][0]["Subnet"]
    return LabNetwork(
        id=str(network.id),
        name=str(network.name),
        subnet=ipaddress.IPv4Network(subnet),
        shape=str(labels.get(SHAPE_LABEL, "")),
        folder=str(labels.get(FOLDER_LABEL, "")),
    )


def _routes(table: Path) -> Iterator[ipaddress.IPv4Network]:
    """Yield the machine's IPv4 routes, from the kernel's table of little-endian words.

    Default routes take nothing from a lab, whose routes are narrower. A VPN for all traffic has two: 0.0.0.0/1 and
    128.0.0.0/1.
    """
    if not table.exists():
        return
    for line in table.read_text().splitlines()[1:]:
        fields = line.split()
        target, mask = (int.from_bytes(bytes.fromhex(word), "little") for word in (fields[1], fields[7]))
        if mask.bit_count() > _HALF:
            yield ipaddress.IPv4Network((target, mask.bit_count()))
