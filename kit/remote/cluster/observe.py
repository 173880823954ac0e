"""Reads a VM's state in one command and turns its text into HostFacts."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from kit.errors import SlowError, StepError
from kit.model import names
from kit.model.answer import OddAnswer, answer_of, decode, number
from kit.model.host import Host
from kit.model.launch import MOST_SLOTS
from kit.model.observed import Container, HostFacts, HugePages, Interface, Lease
from kit.model.run import BY_HAND, RUN_ID
from kit.model.values import replace
from kit.remote.cluster import rdma
from kit.remote.cluster.forms import ClientContainer, EngineContainer, Info, LeaseRow
from kit.remote.cluster.gpus import GpuList, gpu_engine, gpu_processes, node_gpus_of
from kit.remote.cluster.look import Answer, look
from kit.remote.cluster.words import version as _version
from kit.remote.cluster.words import word as _word
from kit.remote.scripts import script
from kit.remote.ssh.transport import Completed, Transport
from kit.remote.swarm.facts import swarm_facts

# The largest answer to a look, in bytes. A manager of 10,000 nodes needs 8 MB.
MOST_BYTES = 32 * 2**20
# The exit code of observe.sh for an engine that did not answer in time.
_SLOW = 75
_KEY = re.compile(r"ssh-[a-z0-9-]{1,30} [A-Za-z0-9+/]{1,2000}={0,2}( [\x20-\x7e]{0,200})?")
_RANK = re.compile(r"(\S{1,40}) [0-9]{1,9} [0-9]{1,10}")
# The folder of a plugin that is copied completely (kit.plan.cluster.plugin.key_of).
_PLUGIN = re.compile(r"[0-9a-f]{16}")
_LISTENER = re.compile(r"[0-9A-F]{8}:[0-9A-F]{4}")


def observe(transport: Transport, *, folder: str, image: str) -> HostFacts:
    """Return the facts of one host.

    Raises UnreachableError, SlowError when the host or its engine does not answer in time, or StepError when the
    login cannot become root.
    """
    return facts_of(transport.host, look(transport, folder=folder, image=image))


def observe_ranks(transport: Transport, *, folder: str) -> tuple[HostFacts, str]:
    """Return the facts of one host, with the processes on its GPUs, and a line `RUN RANK PID` for each process of the
    cluster's runs, in one command.

    Raises the same errors as `observe`.
    """
    answer = look(transport, folder=folder, name="look")
    facts = facts_of(transport.host, answer)
    sections = _sections(answer.done.text, answer.mark)
    ranks = "\n".join(_ranks(sections.get("ranks", ())))
    return replace(facts, leases=leases_of(sections.get("slots", ()))), ranks


def runs_with_ranks(transport: Transport, *, cluster: str) -> frozenset[str]:
    """Return the runs of a cluster of this name that have ranks on the host. The head need not be known.

    Raises UnreachableError, SlowError, or StepError if the host does not say.
    """
    done = transport.run(script("ranks", cluster), timeout_s=30)
    if done.code != 0:
        raise StepError(
            f"kit cannot know whether ranks run here: {done.error_text or f'exit {done.code}'}",
            hint="run the same again, or look at the host: kit ssh " + transport.host.name,
            host=transport.host.name,
        )
    return frozenset(line.split()[0] for line in _ranks(done.text.splitlines()))


def _ranks(lines: Sequence[str]) -> list[str]:
    """Return the lines `RUN RANK PID`. The rest can come from a process that has chosen its environment."""
    return [line for line in lines if (rank := _RANK.fullmatch(line)) and _is_run(rank[1])]


def living_runs(transport: Transport, *, folder: str) -> tuple[str, ...]:
    """Return the active runs on the head, and the marks of ranks that somebody started by hand there.

    Raises UnreachableError, or StepError if the head does not say.
    """
    return tuple(filter(_is_run, _ask_runs(transport, folder, "living", "whether a run is active").split()))


def run_leases(transport: Transport, *, folder: str) -> tuple[Lease, ...]:
    """Return the slots that the active runs of the head hold. Raises the errors of `living_runs`."""
    return leases_of(_ask_runs(transport, folder, "slots", "which hosts a run uses").splitlines())


def _ask_runs(transport: Transport, folder: str, about: str, unknown: str) -> str:
    done = transport.run(script("runs", folder, about), timeout_s=30)
    if done.code != 0:
        raise StepError(
            f"kit cannot know {unknown}: {done.error_text or f'exit {done.code}'}",
            hint="run the same again, or see why: kit runs",
            host=transport.host.name,
        )
    return done.text


def leases_of(lines: Sequence[str]) -> tuple[Lease, ...]:
    """Return the slots that active runs hold. Leave out lines that do not fit: ranks can change their run's record."""
    leases = []
    for line in lines:
        with suppress(OddAnswer):
            row: LeaseRow = decode(line, LeaseRow)
            if RUN_ID.fullmatch(row.id) and all(0 <= n < MOST_SLOTS for place in row.places for n in place.slots):
                leases.append(Lease(run=row.id, slots={place.node: frozenset(place.slots) for place in row.places}))
    return tuple(leases)


def facts_of(host: Host, answer: Answer) -> HostFacts:
    """Return the facts in the output of observe.sh. Raises the errors of `observe`, or AnswerError for odd output."""
    done = answer.done
    with answer_of(host.name, "its state"):
        if len(done.stdout) > MOST_BYTES:
            raise OddAnswer(f"it has more than {MOST_BYTES} bytes", done.stdout)
        text = done.text
    _check_end(host, done, text, f"@@ {answer.mark} end")
    with answer_of(host.name, "its state"):
        return parse(host, text, mark=answer.mark)


def _check_end(host: Host, done: Completed, text: str, end: str) -> None:
    """Raise the error of a look that did not print its last section."""
    if end not in text:
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
            f"the host could not be looked at (exit {done.code}): {done.error_text or text[-200:]}",
            hint="does a POSIX shell answer there? try: kit ssh " + name,
            host=name,
        )


def parse(host: Host, text: str, *, mark: str = "") -> HostFacts:
    """Return the facts in the output of observe.sh, whose sections have this mark. Raises OddAnswer."""
    sections = _sections(text, mark)
    system = dict(line.split(" ", 1) for line in sections.get("system", ()) if " " in line)
    info = _engine(sections.get("engine", ()))
    images = {_word(tag): _word(image) for image, _, tag in (row.partition(" ") for row in sections.get("image", ()))}
    node_gpus = node_gpus_of(sections.get("gpu_node", ()))
    gpus = GpuList(sections.get("gpus", ()))
    return HostFacts(
        host=host,
        engine="" if info.podman else _version(info.ServerVersion),
        compose=_compose(info),
        arch=_word(system.get("arch")),
        os=_word(system.get("os")),
        cores=_number(system.get("cores")),
        memory_mib=_number(system.get("memory_kib")) // 1024,
        disk_free_mib=_number(system.get("disk_free_kib")) // 1024,
        interfaces=interfaces_of(sections.get("addresses", ())),
        default_interface=_default_interface(sections.get("route", ())),
        gpus=gpus.devices(),
        driver=gpus.driver(),
        gpu_fault=gpus.fault(),
        gpu_engine=gpu_engine(sections.get("gpu_engine", ()), info),
        node_gpus=node_gpus.uuids,
        node_gpu_fault=node_gpus.fault,
        gpu_processes=gpu_processes(sections["gpu_processes"]) if "gpu_processes" in sections else None,
        image_id=next(iter(images.values()), None),
        images=images,
        containers=_containers(sections.get("containers", ())),
        record="\n".join(sections.get("record", ())) or None,
        files={path: digest for digest, path in _pairs(sections.get("digests", ()))},
        modes={path: mode for mode, path in _pairs(sections.get("files", ()))},
        host_key=_public_key(sections.get("host_key", ())),
        client_key=_public_key(sections.get("client_key", ())),
        python=_version(system.get("python")) or None,
        living=tuple(filter(_is_run, sections.get("living", ()))),
        waiting=tuple(filter(RUN_ID.fullmatch, sections.get("waiting", ()))),
        cordoned=bool(sections.get("cordoned")),
        listening=frozenset(_listener(word) for word in sections.get("listening", ())),
        udp=frozenset(_listener(word) for word in sections.get("udp", ())),
        absent=frozenset(sections.get("absent", ())),
        plugins=frozenset(filter(_PLUGIN.fullmatch, sections.get("plugins", ()))),
        slow=bool(sections.get("slow")),
        podman=info.podman,
        swarm=swarm_facts(info, sections),
        rdma_devices=rdma.devices_of(sections.get("rdma", ())),
        rdma_ports=rdma.ports_of(sections.get("rdma", ())),
        huge_pages=HugePages(
            total_mib=_number(system.get("hugepages_kib")) // 1024,
            free_mib=_number(system.get("hugepages_free_kib")) // 1024,
        ),
    )


def _sections(text: str, mark: str) -> dict[str, list[str]]:
    start = f"@@ {mark} " if mark else "@@ "
    sections: dict[str, list[str]] = {}
    current: list[str] = []
    # Other line ends, which splitlines knows, are a part of the text.
    for line in text.split("\n"):
        if line.startswith(start):
            current = sections.setdefault(line[len(start) :], [])
        elif line.strip():
            current.append(line)
    return sections


def _number(word: str | None) -> int:
    """Return 0 if the host has no tool that counts."""
    return number(word) if word is not None and word.isascii() and word.isdigit() else 0


def _is_run(name: str) -> bool:
    """Return whether this can be a running run, or ranks that somebody started by hand."""
    return bool(RUN_ID.fullmatch(name) or BY_HAND.fullmatch(name))


def _public_key(lines: Sequence[str]) -> str | None:
    """Return a public key as OpenSSH writes it, or None for anything else, so that a deploy replaces it."""
    return lines[0] if lines and _KEY.fullmatch(lines[0]) else None


def _engine(lines: Sequence[str]) -> Info:
    """Return what `docker info` reports. Lines that are not an object of JSON are complaints of the client."""
    for line in lines:
        if line.startswith("{"):
            info: Info = decode(line, Info)
            return info
    return Info()


def _compose(info: Info) -> str | None:
    for plugin in (info.ClientInfo and info.ClientInfo.Plugins) or ():
        if plugin.Name == "compose" and not plugin.Err:
            return _version(plugin.Version) or "unknown"
    return None


def interfaces_of(lines: Sequence[str]) -> tuple[Interface, ...]:
    """Return the addresses in lines such as `2: eth0    inet 10.0.0.4/24 brd … scope global eth0`. Raises OddAnswer."""
    interfaces = []
    for line in lines:
        words = line.split()
        if len(words) > 3 and words[2] == "inet":
            try:
                address = ipaddress.IPv4Interface(words[3] if "/" in words[3] else f"{words[3]}/32")
            except ValueError:
                raise OddAnswer("this is not an address", line) from None
            interfaces.append(Interface(name=_word(words[1].split("@")[0]), address=address))
    return tuple(interfaces)


def _default_interface(lines: Sequence[str]) -> str | None:
    for line in lines:
        words = line.split()
        if "dev" in words[:-1]:
            return words[words.index("dev") + 1]
    return None


def _containers(lines: Sequence[str]) -> tuple[Container, ...]:
    containers = []
    for name, labels, row in _container_rows(lines):
        if names.LABEL_BENCH in labels:
            # A network probe that is running: it is gone in a moment, and is not a node.
            continue
        containers.append(
            Container(
                name=name,
                service=labels.get(names.LABEL_SERVICE, ""),
                cluster=labels.get(names.LABEL_CLUSTER, ""),
                image=labels.get(names.LABEL_IMAGE) or row.Image,
                spec=labels.get(names.LABEL_SPEC, ""),
                running=row.State == "running",
                status=row.Status,
                swarm="com.docker.swarm.task.id" in labels,
            )
        )
    return tuple(one for one in containers if not one.swarm or _is_current(containers, one))


def _container_rows(
    lines: Sequence[str],
) -> Iterator[tuple[str, Mapping[str, str], EngineContainer | ClientContainer]]:
    """Yield name, labels and the rest of each container: a line is the engine's list, or a row of its client."""
    for line in lines:
        if line.startswith("["):
            rows: tuple[EngineContainer, ...] = decode(line, tuple[EngineContainer, ...])
            for row in rows:
                yield ",".join(name[1:] for name in row.Names or ()), row.Labels or {}, row
        else:
            one: ClientContainer = decode(line, ClientContainer)
            yield one.Names, dict(pair.split("=", 1) for pair in one.Labels.split(",") if "=" in pair), one


def _is_current(containers: list[Container], task: Container) -> bool:
    """Return whether this is its service's running task, or the latest if no task of the cluster runs on the host.

    Swarm keeps the containers of earlier tasks, also of the service that the host ran before it became the head.
    """
    tasks = [one for one in containers if one.swarm and one.cluster == task.cluster]
    if not task.running and any(one.running for one in tasks):
        return False
    own = [one for one in tasks if one.service == task.service]
    return task is next((one for one in own if one.running), own[0])


def _pairs(lines: Sequence[str]) -> list[tuple[str, str]]:
    """`WORD  ./path` lines, without the `./`."""
    return [(first, path.strip().removeprefix("./")) for first, _, path in (line.partition(" ") for line in lines)]


def _listener(word: str) -> str:
    """Return `0400000A:0021` of /proc/net/tcp as 10.0.0.4:33. The kernel's byte order is little-endian."""
    if not _LISTENER.fullmatch(word):
        raise OddAnswer("this is not a listener", word)
    address, _, port = word.partition(":")
    return f"{ipaddress.IPv4Address(bytes.fromhex(address)[::-1])}:{int(port, 16)}"


def listener_word(address: str, port: int) -> str:
    """The reverse of what `_listener` reads."""
    return f"{ipaddress.IPv4Address(address).packed[::-1].hex().upper()}:{port:04X}"
