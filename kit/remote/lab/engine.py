"""The lab on this machine's engine: its network, hosts and volumes, each found by label. Nothing here decides."""

from __future__ import annotations

import contextlib
import io
import ipaddress
import re
import tarfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import docker
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
    LabFound,
    LabNetwork,
)
from kit.remote.engine.hiccups import insist, no_exec, persistently
from kit.remote.ssh.transport import Completed

_HOST_KEY = "/etc/ssh/ssh_host_ed25519_key.pub"
# For what an engine is at already, or has not been told yet.
_PATIENCE_S = 60.0
_POLL_S = 0.3
_NOT_YET = re.compile(
    r"already in progress|did not receive an exit event|resource busy|has active endpoints|volume is in use"
)


@contextlib.contextmanager
def _engine_errors(doing: str, host: str | None = None) -> Iterator[None]:
    """The SDK's exceptions, and those of the libraries below it, become ours."""
    try:
        yield
    except docker.errors.APIError as error:
        raise StepError(f"{doing}: {error.explanation or error}", host=host) from error
    except (docker.errors.DockerException, requests.RequestException) as error:
        raise NotReadyError(
            f"{doing}: this machine's Docker Engine does not answer ({_reason(error)})",
            hint="Run scripts/engine: it starts one, or says what is missing. Not in the group docker? Use sudo.",
        ) from error


def _reason(error: BaseException) -> str:
    """The system's own words, which the libraries wrap several times over."""
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, OSError) and inner.strerror:
            return inner.strerror
        inner = inner.__cause__ or inner.__context__
    return str(error)


class LabEngine:
    """This machine's engine, for the lab. `close` it. Safe to use from several threads."""

    def __init__(self) -> None:
        with _engine_errors("reaching the engine"):
            # Hosts are started side by side, each over a connection of its own.
            self.client = docker.from_env(timeout=120, max_pool_size=32)
            self.client.ping()

    def close(self) -> None:
        self.client.close()

    def find(self, lab: str) -> LabFound:
        """All that carries the lab's label."""
        with _engine_errors("looking for the lab"):
            filters: dict[str, str | list[str] | bool] = {"label": f"{LABEL}={lab}"}
            containers = self.client.containers.list(all=True, filters=filters, ignore_removed=True)
            networks = self.client.networks.list(filters=filters)
            volumes = self.client.volumes.list(filters=filters)
        hosts = [_container(c) for c in containers if HOST_LABEL in c.labels]
        known = [_network(n) for n in networks]
        return LabFound(
            network=known[0] if known else None,
            containers=tuple(sorted(hosts, key=lambda c: (len(c.host), c.host))),
            helpers=tuple(str(c.id) for c in containers if HOST_LABEL not in c.labels),
            volumes=tuple(str(v.name) for v in volumes),
            other_networks=tuple(n.id for n in known[1:]),
        )

    def taken_subnets(self) -> tuple[ipaddress.IPv4Network, ...]:
        """Every network that the engine or the machine's routes already use."""
        taken = list(_routes(Path("/proc/net/route")))
        with _engine_errors("reading the engine's networks"):
            for network in self.client.networks.list():
                for config in (network.attrs.get("IPAM") or {}).get("Config") or []:
                    with contextlib.suppress(ValueError):
                        taken.append(ipaddress.IPv4Network(config.get("Subnet", "")))
        return tuple(taken)

    def create_network(self, name: str, subnet: ipaddress.IPv4Network, labels: dict[str, str]) -> bool:
        """False when the engine says that the subnet is taken after all."""
        ipam = docker.types.IPAMConfig(pool_configs=[docker.types.IPAMPool(subnet=str(subnet))])
        try:
            with _engine_errors(f"making the network {subnet}"):
                self.client.networks.create(name, driver="bridge", ipam=ipam, labels=labels, check_duplicate=True)
        except StepError as error:
            if isinstance(error.__cause__, docker.errors.APIError) and "overlap" in error.message.lower():
                return False
            raise
        return True

    def create(self, wanted: HostContainer) -> None:
        """Makes the host's volume and container, and starts nothing."""
        with _engine_errors("making the container", wanted.host):
            self.client.volumes.create(wanted.volume, labels=dict(wanted.labels))
            api = self.client.api
            host_config = api.create_host_config(
                init=True,
                cap_add=list(wanted.cap_add),
                cap_drop=list(wanted.cap_drop),
                security_opt=list(wanted.security_opt),
                device_cgroup_rules=list(wanted.device_cgroup_rules),
                tmpfs=dict(wanted.tmpfs),
                mounts=[docker.types.Mount("/var/lib/docker", wanted.volume, type="volume")],
                network_mode=wanted.network,
            )
            # What the docker command calls systempaths=unconfined; the SDK has no word for it.
            host_config |= {"MaskedPaths": [], "ReadonlyPaths": []}
            endpoint = api.create_endpoint_config(ipv4_address=wanted.address, aliases=[wanted.host])
            words = {
                "name": wanted.container,
                "hostname": wanted.host,
                "environment": dict(wanted.env),
                "labels": dict(wanted.labels),
                "host_config": host_config,
                "networking_config": {"EndpointsConfig": {wanted.network: endpoint}},
            }
            deadline = time.monotonic() + _PATIENCE_S
            while not self._made(wanted, words):
                if time.monotonic() > deadline:
                    raise StepError(f"the engine does not finish making {wanted.container}", host=wanted.host)
                time.sleep(_POLL_S)

    def _made(self, wanted: HostContainer, words: dict[str, Any]) -> bool:
        """False while the engine still makes it for an up that was killed: a name, and nothing behind it yet."""
        try:
            self.client.api.create_container(wanted.image, **words)
            return True
        except docker.errors.APIError as error:
            if error.status_code != requests.codes.conflict:
                raise
            try:
                standing = self.client.api.inspect_container(wanted.container)
            except docker.errors.NotFound:
                return False
            if standing["Config"]["Labels"] != dict(wanted.labels):
                raise
            return True

    def start(self, container: str, host: str) -> None:
        with _engine_errors("starting the container", host):
            insist(lambda: self.client.api.start(container))

    def public_host_key(self, container: str, host: str) -> str | None:
        """The host key that sshd shows, or None while it has not been made. Read here as a cloud's console would."""
        with _engine_errors("reading the host key", host):
            try:
                chunks, _ = self.client.api.get_archive(container, _HOST_KEY)
                with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as archive:
                    member = archive.extractfile(archive.getmembers()[0])
                    text = member.read().decode().strip() if member else ""
            except (docker.errors.NotFound, tarfile.TarError, requests.exceptions.ChunkedEncodingError):
                # Not there, or written at this very moment: then the engine breaks off in the middle of the tar.
                return None
        return text or None

    def alive(self, container: str, host: str) -> None:
        """Raises StepError, with the container's last lines, when the host is not running."""
        with _engine_errors("looking at the container", host):
            state = self.client.api.inspect_container(container)["State"]
            if state["Running"]:
                return
            log = self.client.api.logs(container, tail=5).decode(errors="replace").strip()
        raise StepError(
            f"the container ended with exit code {state['ExitCode']}" + (f": {log}" if log else ""),
            host=host,
            hint="This machine's engine may not allow what an engine inside a container needs; see docs/lab.md.",
        )

    def link(self, container: str, host: str) -> int:
        """Index, in the machine's own network, of the far end of the host's eth0."""
        with _engine_errors("reading the link", host):
            done = self._inside(container, ["cat", "/sys/class/net/eth0/iflink"])
        if done.code or not done.text.strip().isdigit():
            raise StepError(f"its link could not be looked at: {done.text.strip()}", host=host)
        return int(done.text)

    def bridge(self, network: str) -> str:
        """The device by which this machine itself takes part in a network."""
        with _engine_errors("reading the network"):
            found = self.client.api.inspect_network(network)
        return str((found.get("Options") or {}).get("com.docker.network.bridge.name") or f"br-{found['Id'][:12]}")

    def shape_links(self, image: str, rate: str, devices: list[str], labels: dict[str, str]) -> None:
        """Shapes what leaves by these devices of the machine, by a short-lived container in the host network."""
        with _engine_errors(f"shaping the links to {rate}"):
            made = self.client.containers.create(
                image,
                ["/usr/local/sbin/link-rate", rate, *devices],
                network_mode="host",
                cap_add=["NET_ADMIN"],
                labels=labels,
            )
            try:
                insist(made.start)
                code = int(made.wait()["StatusCode"])
                said = made.logs().decode(errors="replace").strip()
            finally:
                made.remove(force=True)
        if code:
            raise StepError(f"the links could not be shaped to {rate}: {said}")

    def image(self, container: str) -> str:
        """The id of the image that a host was made from."""
        with _engine_errors("looking at the container"):
            return str(self.client.api.inspect_container(container)["Image"])

    def shape_own_link(self, container: str, host: str, rate: str) -> None:
        """Shapes what the host itself sends."""
        with _engine_errors(f"shaping the link to {rate}", host):
            done = self._inside(container, ["/usr/local/sbin/link-rate", rate, "eth0"])
        if done.code:
            raise StepError(f"its link could not be shaped to {rate}: {done.text.strip()}", host=host)

    def _inside(self, container: str, argv: list[str]) -> Completed:
        """A command in a host. All that it said is in its standard output."""
        api = self.client.api

        def act() -> Completed:
            made = api.exec_create(container, argv)
            said = api.exec_start(made["Id"])
            return Completed(code=api.exec_inspect(made["Id"])["ExitCode"] or 0, stdout=said, stderr=b"")

        # Engines tell of a command that never began by an error, or in the place of what it would have said.
        return persistently(lambda: insist(act), no_exec)

    def remove(self, found: LabFound) -> None:
        """Takes all of it away. What is gone already is no error."""
        with _engine_errors("removing the lab"):
            containers = [*(c.id for c in found.containers), *found.helpers]
            with ThreadPoolExecutor(max_workers=8) as pool:
                list(pool.map(self._remove_container, containers))
            networks = [*([found.network.id] if found.network else []), *found.other_networks]
            for network in networks:
                _until_gone(partial(self.client.api.remove_network, network))
            for volume in found.volumes:
                _until_gone(partial(self.client.api.remove_volume, volume, force=True))

    def _remove_container(self, container: str) -> None:
        _until_gone(partial(self.client.api.remove_container, container, force=True, v=True))


def _until_gone(remove: Callable[[], object]) -> None:
    """An engine that is busy may be told late that processes have ended, or be at the removal for somebody else."""
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
        time.sleep(_POLL_S)


def _container(container: Any) -> LabContainer:
    attrs = container.attrs
    configured = [
        (endpoint.get("IPAMConfig") or {}).get("IPv4Address") or endpoint.get("IPAddress") or ""
        for endpoint in (attrs["NetworkSettings"].get("Networks") or {}).values()
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
    """The machine's IPv4 routes but the default one, from the kernel's table of little-endian words."""
    if not table.exists():
        return
    for line in table.read_text().splitlines()[1:]:
        fields = line.split()
        target, mask = (int.from_bytes(bytes.fromhex(word), "little") for word in (fields[1], fields[7]))
        if mask:
            yield ipaddress.IPv4Network((target, mask.bit_count()))
