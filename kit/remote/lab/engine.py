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
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import docker.errors
import docker.types
import requests

from kit.errors import AnswerError, StepError
from kit.model.answer import answer_of, beginning, decode, number
from kit.model.lab import (
    FOLDER_LABEL,
    HOST_LABEL,
    LABEL,
    SHAPE_LABEL,
    HostContainer,
    LabContainer,
    LabGpu,
    LabGpus,
    LabNetwork,
    LabObjects,
    network_name,
)
from kit.remote.engine import sdk
from kit.remote.engine.hiccups import insist, no_exec, persistently
from kit.remote.lab.fault import END
from kit.remote.ssh.transport import Completed

_CERTIFICATES = "/usr/local/share/ca-certificates/kit-lab.crt"
_HOST_KEY = "/etc/ssh/ssh_host_ed25519_key.pub"
# How long to wait for what the engine is doing already.
_PATIENCE_S = 60.0
_POLL_S = 0.3
_CODE_POLL_S = 0.02
_NOT_YET = re.compile(
    r"already in progress|did not receive an exit event|resource busy|has active endpoints|volume is in use"
)


# What the SDK and this module raise for an answer of another shape, because the SDK checks none.
_ODD = (LookupError, TypeError, ValueError, AttributeError, RecursionError)


@contextlib.contextmanager
def _errors(doing: str, host: str | None = None) -> Iterator[None]:
    with sdk.errors(refused=lambda error: StepError(f"{doing}: {sdk.reply(error)}", host=host)):
        try:
            yield
        except _ODD as error:
            odd = beginning(f"{type(error).__name__}: {error}")
            raise AnswerError(
                f"{doing}: kit cannot read the answer of this machine's engine: {odd}",
                hint="another program may answer on its socket; look: docker info",
                host=host,
            ) from error


@dataclass(frozen=True, kw_only=True, slots=True)
class _Gpus:
    """What `pretended-gpus` prints."""

    name: str
    driver: str
    uuids: list[str]
    lost: int
    faults: dict[str, list[str]]


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
        with _errors("cannot look for the lab"):
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
        with _errors("cannot read the engine's networks"):
            for network in self.client.networks.list():
                for config in (network.attrs.get("IPAM") or {}).get("Config") or []:
                    with contextlib.suppress(ValueError):
                        taken.append(ipaddress.IPv4Network(config.get("Subnet", "")))
        return tuple(taken)

    def create_network(self, name: str, subnet: ipaddress.IPv4Network, labels: dict[str, str]) -> bool:
        """Create the network. Return False if the engine reports that the subnet is taken after all."""
        ipam = docker.types.IPAMConfig(pool_configs=[docker.types.IPAMPool(subnet=str(subnet))])
        try:
            with _errors(f"cannot create the network {subnet}"):
                self.client.networks.create(name, driver="bridge", ipam=ipam, labels=labels, check_duplicate=True)
        except StepError as error:
            if isinstance(error.__cause__, docker.errors.APIError) and "overlap" in error.message.lower():
                return False
            raise
        return True

    def create(self, wanted: HostContainer) -> None:
        """Create the host's volume and container, and start nothing."""
        with _errors("cannot create the container", wanted.host):
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
            if existing["Config"]["Labels"] != dict(wanted.labels):
                raise
            return True

    def start(self, container: str, host: str) -> None:
        with _errors("cannot start the container", host):
            insist(lambda: self.client.api.start(container))

    def public_host_key(self, container: str, host: str) -> str | None:
        """Return the host key that sshd shows, or None while it does not exist.

        It comes from the container's files, as from a cloud's console, so no ssh has to trust a first connection.
        """
        with _errors("cannot read the host key", host):
            try:
                chunks, _ = self.client.api.get_archive(container, _HOST_KEY)
                with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as archive:
                    member = archive.extractfile(archive.getmembers()[0])
                    text = member.read().decode().strip() if member else ""
            except (docker.errors.NotFound, tarfile.TarError, requests.exceptions.ChunkedEncodingError):
                # It does not exist, or is being written: then the engine breaks off in the middle of the tar.
                return None
        return text or None

    def alive(self, container: str, host: str) -> None:
        """Raise StepError with the container's last lines if the host is not running."""
        with _errors("cannot inspect the container", host):
            state = self.client.api.inspect_container(container)["State"]
            code = state["ExitCode"]
            # A host that cannot boot is started again and again.
            if state["Running"] and not state.get("Restarting"):
                return
            log = self.client.api.logs(container, tail=5).decode(errors="replace").strip()
        raise StepError(
            f"the container ended with exit code {code}" + (f": {log}" if log else ""),
            host=host,
            hint="This machine's engine may not allow what an engine inside a container needs; see docs/lab.md.",
        )

    def link(self, container: str, host: str, nic: int = 0) -> int:
        """Return the index, among this machine's devices, of the far end of one of the host's NICs."""
        with _errors("cannot read the link", host):
            read = ["cat", f"/sys/class/net/eth{nic}/iflink"]
            # A busy engine waits only a short time for the end of a command's output.
            done = persistently(
                lambda: self._inside(container, read), lambda done: not (done.code or done.text.strip())
            )
            if done.code or not done.text.strip():
                raise StepError(f"its link cannot be read: {done.text.strip()}", host=host)
            return number(done.text.strip())

    def bridge(self, network: str) -> str:
        """Return the device that connects this machine to a network."""
        with _errors("cannot read the network"):
            facts = self.client.api.inspect_network(network)
            return str((facts.get("Options") or {}).get("com.docker.network.bridge.name") or f"br-{facts['Id'][:12]}")

    def shape_links(self, image: str, rate: str, devices: list[str], labels: dict[str, str]) -> None:
        """Limit what leaves by these devices of this machine, with a short-lived container in the host's network."""
        with _errors(f"cannot limit the links to {rate}"):
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

    def image(self, container: str) -> str:
        """Return the ID of the image that a host was made from."""
        with _errors("cannot inspect the container"):
            return str(self.client.api.inspect_container(container)["Image"])

    def shape_own_links(self, container: str, host: str, rate: str, nics: int) -> None:
        """Limit what the host itself sends."""
        with _errors(f"cannot limit the link to {rate}", host):
            done = self._inside(container, ["/usr/local/sbin/link-rate", rate, *(f"eth{nic}" for nic in range(nics))])
        if done.code:
            raise StepError(f"its link cannot be limited to {rate}: {done.text.strip()}", host=host)

    def fault(self, container: str, host: str, argv: list[str]) -> str:
        """Run the program of a fault in a host, and return what it prints, without its last line."""
        with _errors("cannot change its faults", host):
            done = persistently(
                lambda: self._inside(container, argv), lambda done: not done.code and not _whole(done.text)
            )
        lines = done.text.strip().splitlines() or ["no reason"]
        if done.code:
            raise StepError(f"it cannot have this fault: {lines[-1]}", host=host)
        if not _whole(done.text):
            hint = "This machine's engine is busy. Run the command again."
            raise StepError("the engine lost the answer of its program for faults", host=host, hint=hint)
        return "".join(f"{line}\n" for line in lines[:-1])

    def pretended_gpus(self, container: str, host: str, argv: list[str]) -> LabGpus:
        """Run the host's own program for its GPUs, and return what it has then."""
        with _errors("cannot change its GPUs", host):
            # Twice is once. A busy engine can lose what a command prints.
            done = persistently(
                lambda: self._inside(container, ["/usr/local/sbin/pretended-gpus", *argv]),
                lambda done: not (done.code or done.text.strip()),
            )
        if done.code:
            raise StepError(f"its GPUs refuse that: {done.text.strip()}", host=host)
        with answer_of(host, "pretended-gpus"):
            state: _Gpus = decode(done.stdout, _Gpus)
        return LabGpus(
            host=host,
            name=state.name,
            driver=state.driver,
            lost=state.lost,
            gpus=tuple(
                LabGpu(number=number, uuid=uuid, faults=tuple(state.faults.get(str(number), ())))
                for number, uuid in enumerate(state.uuids)
            ),
        )

    def _inside(self, container: str, argv: list[str]) -> Completed:
        """Run a command in a host. Return all of its output as standard output."""
        api = self.client.api

        def act() -> Completed:
            identity = api.exec_create(container, argv)["Id"]
            output = api.exec_start(identity)
            return Completed(code=_exit_code(api, identity), stdout=output, stderr=b"")

        # An engine reports a command that never began as an error, or in place of the command's output.
        return persistently(lambda: insist(act), no_exec)

    def remove(self, existing: LabObjects) -> None:
        """Remove all of it. What is gone already is no error."""
        with _errors("cannot remove the lab"):
            containers = [*(c.id for c in existing.containers), *existing.helpers]
            with ThreadPoolExecutor(max_workers=8) as pool:
                list(pool.map(self._remove_container, containers))
            for network in existing.networks:
                _until_gone(partial(self.client.api.remove_network, network))
            for volume in existing.volumes:
                _until_gone(partial(self.client.api.remove_volume, volume, force=True))

    def _remove_container(self, container: str) -> None:
        _until_gone(partial(self.client.api.remove_container, container, force=True, v=True))


def _whole(answer: str) -> bool:
    return answer.endswith(f"{END}\n")


def _exit_code(api: Any, identity: str) -> int:
    """Return the exit code of a command in a container. The engine knows it a moment after the output has ended."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        code = api.exec_inspect(identity)["ExitCode"]
        if code is not None:
            return int(code)
        if time.monotonic() > deadline:
            hint = "Restart this machine's engine if it is not busy."
            raise StepError("the engine does not report the end of a command", hint=hint)
        time.sleep(_CODE_POLL_S)


def _until_gone(remove: Callable[[], object]) -> None:
    """Repeat the removal while the engine is busy: processes still end, or somebody else removes the same thing."""
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
    """Yield the machine's IPv4 routes except the default one, from the kernel's table of little-endian words."""
    if not table.exists():
        return
    for line in table.read_text().splitlines()[1:]:
        fields = line.split()
        target, mask = (int.from_bytes(bytes.fromhex(word), "little") for word in (fields[1], fields[7]))
        if mask:
            yield ipaddress.IPv4Network((target, mask.bit_count()))
