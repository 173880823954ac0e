"""Reads a VM's state in one command and turns its text into HostFacts."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterator, Sequence
from typing import Any

from kit.errors import SlowError, StepError
from kit.model import names
from kit.model.host import Host
from kit.model.observed import Container, Gpu, HostFacts, Interface
from kit.remote.cluster.look import look
from kit.remote.ssh.transport import Completed, Transport
from kit.remote.swarm.facts import swarm_facts

# The exit code of observe.sh for an engine that did not answer in time.
_SLOW = 75


def observe(transport: Transport, *, folder: str, image: str) -> HostFacts:
    """Return the facts of one host.

    Raises UnreachableError, SlowError when the host or its engine does not answer in time, or StepError when the
    login cannot become root.
    """
    return facts_of(transport.host, look(transport, folder=folder, image=image))


def observe_ranks(transport: Transport, *, folder: str) -> tuple[HostFacts, str]:
    """Return the facts of one host and a line `RUN RANK PID` for each process of the cluster's runs, in one command.

    Raises the same errors as `observe`.
    """
    done = look(transport, folder=folder, name="look")
    return facts_of(transport.host, done), done.text.partition("@@ ranks\n")[2]


def facts_of(host: Host, done: Completed) -> HostFacts:
    """Return the facts in the output of observe.sh. Raises the errors of `observe`."""
    if "@@ end" not in done.text:
        name = host.name
        if done.code == _SLOW:
            raise SlowError(
                done.error_text.splitlines()[-1] if done.error_text else "the engine did not answer in time",
                hint=f"look at its load: kit ssh {name} -- uptime; then try again",
                host=name,
            )
        if "sudo" in done.error_text:
            raise StepError(
                f"the login is not root and cannot become it: {done.error_text.splitlines()[-1]}",
                hint="give the user sudo without a password, or set user=root in the hosts file",
                host=name,
            )
        raise StepError(
            f"the host could not be looked at (exit {done.code}): {done.error_text or done.text[-200:]}",
            hint="does a POSIX shell answer there? try: kit ssh " + name,
            host=name,
        )
    return parse(host, done.text)


def parse(host: Host, text: str) -> HostFacts:
    """The output of observe.sh as facts."""
    sections = _sections(text)
    system = dict(line.split(" ", 1) for line in sections.get("system", ()) if " " in line)
    info = _engine(sections.get("engine", ()))
    return HostFacts(
        host=host,
        engine=str(info.get("ServerVersion") or ""),
        compose=_compose(info),
        arch=system.get("arch", ""),
        os=system.get("os", ""),
        cores=_number(system.get("cores")),
        memory_mib=_number(system.get("memory_kib")) // 1024,
        disk_free_mib=_number(system.get("disk_free_kib")) // 1024,
        interfaces=interfaces_of(sections.get("addresses", ())),
        default_interface=_default_interface(sections.get("route", ())),
        gpus=_gpus(sections.get("gpus", ())),
        gpu_runtime="nvidia" in (info.get("Runtimes") or {}) or bool(info.get("DiscoveredDevices")),
        image_id=next(iter(sections.get("image", ())), None),
        containers=_containers(sections.get("containers", ())),
        record="\n".join(sections.get("record", ())) or None,
        files={path: digest for digest, path in _pairs(sections.get("digests", ()))},
        modes={path: mode for mode, path in _pairs(sections.get("files", ()))},
        host_key=next(iter(sections.get("host_key", ())), None),
        client_key=next(iter(sections.get("client_key", ())), None),
        python=system.get("python"),
        living=tuple(sections.get("living", ())),
        listening=frozenset(_listener(word) for word in sections.get("listening", ())),
        udp=frozenset(_listener(word) for word in sections.get("udp", ())),
        absent=frozenset(sections.get("absent", ())),
        slow=bool(sections.get("slow")),
        swarm=swarm_facts(info, sections),
    )


def _sections(text: str) -> dict[str, list[str]]:
    sections: dict[str, list[str]] = {}
    current: list[str] = []
    for line in text.splitlines():
        if line.startswith("@@ "):
            current = sections.setdefault(line[3:], [])
        elif line.strip():
            current.append(line)
    return sections


def _number(word: str | None) -> int:
    """0 where the host has no tool that counts."""
    return int(word) if word is not None and word.isdigit() else 0


def _engine(lines: list[str] | tuple[()]) -> dict[str, Any]:
    for line in lines:
        try:
            info = json.loads(line)
        except ValueError:
            continue
        if isinstance(info, dict):
            return info
    return {}


def _compose(info: dict[str, Any]) -> str | None:
    plugins = (info.get("ClientInfo") or {}).get("Plugins") or []
    for plugin in plugins:
        if plugin.get("Name") == "compose" and not plugin.get("Err"):
            return str(plugin.get("Version") or "unknown")
    return None


def interfaces_of(lines: Sequence[str]) -> tuple[Interface, ...]:
    """Lines such as `2: eth0    inet 10.0.0.4/24 brd … scope global eth0`."""
    interfaces = []
    for line in lines:
        words = line.split()
        if len(words) > 3 and words[2] == "inet":
            address = words[3] if "/" in words[3] else f"{words[3]}/32"
            interfaces.append(Interface(name=words[1].split("@")[0], address=ipaddress.IPv4Interface(address)))
    return tuple(interfaces)


def _default_interface(lines: list[str] | tuple[()]) -> str | None:
    for line in lines:
        words = line.split()
        if "dev" in words[:-1]:
            return words[words.index("dev") + 1]
    return None


def _gpus(lines: list[str] | tuple[()]) -> tuple[Gpu, ...]:
    """Lines such as `NVIDIA A100-SXM4-40GB, 40960, GPU-5c3b…`; anything else is nvidia-smi's complaint."""
    gpus = []
    for line in lines:
        parts = [part.strip() for part in line.split(",")]
        if len(parts) == 3 and parts[2].startswith("GPU-"):
            gpus.append(Gpu(name=parts[0], memory_mib=int(parts[1]) if parts[1].isdigit() else 0, uuid=parts[2]))
    return tuple(gpus)


def _containers(lines: list[str] | tuple[()]) -> tuple[Container, ...]:
    containers = []
    for name, image, labels, row in _container_rows(lines):
        if names.LABEL_BENCH in labels:
            # A network probe that is running: it is gone in a moment, and is not a node.
            continue
        containers.append(
            Container(
                name=name,
                service=labels.get(names.LABEL_SERVICE, ""),
                cluster=labels.get(names.LABEL_CLUSTER, ""),
                image=labels.get(names.LABEL_IMAGE) or image,
                spec=labels.get(names.LABEL_SPEC, ""),
                running=row.get("State", "") == "running",
                status=row.get("Status", ""),
                swarm="com.docker.swarm.task.id" in labels,
            )
        )
    return tuple(one for one in containers if not one.swarm or one is _current(containers, one))


def _container_rows(
    lines: list[str] | tuple[()],
) -> Iterator[tuple[str, str, dict[str, str], dict[str, Any]]]:
    """Yield name, image, labels and the rest of each container: a line is the engine's list, or a row of its client."""
    for line in lines:
        value = json.loads(line)
        for row in value if isinstance(value, list) else ():
            yield (
                ",".join(name[1:] for name in row.get("Names") or ()),
                row.get("Image", ""),
                row.get("Labels") or {},
                row,
            )
        if isinstance(value, dict):
            labels = dict(pair.split("=", 1) for pair in value.get("Labels", "").split(",") if "=" in pair)
            yield value.get("Names", ""), value.get("Image", ""), labels, value


def _current(containers: list[Container], task: Container) -> Container:
    """Return the service's running task, else its latest. Swarm keeps the containers of earlier tasks."""
    tasks = [one for one in containers if one.swarm and (one.cluster, one.service) == (task.cluster, task.service)]
    return next((one for one in tasks if one.running), tasks[0])


def _pairs(lines: list[str] | tuple[()]) -> list[tuple[str, str]]:
    """`WORD  ./path` lines, without the `./`."""
    return [(first, path.strip().removeprefix("./")) for first, _, path in (line.partition(" ") for line in lines)]


def _listener(word: str) -> str:
    """`0400000A:0021` of /proc/net/tcp as 10.0.0.4:33. The address is in the kernel's byte order (little-endian)."""
    address, _, port = word.partition(":")
    return f"{ipaddress.IPv4Address(bytes.fromhex(address)[::-1])}:{int(port, 16)}"


def listener_word(address: str, port: int) -> str:
    """The reverse of what `_listener` reads."""
    return f"{ipaddress.IPv4Address(address).packed[::-1].hex().upper()}:{port:04X}"
