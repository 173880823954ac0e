"""Hosts as kit doctor reads them: texts of files and outputs of programs, as the reader returns them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kit.config.validate import spec_from
from kit.model.doctor import (
    Check,
    Command,
    Disk,
    Examined,
    File,
    Files,
    Links,
    Lookup,
    Mount,
    Mounts,
    Ran,
    Read,
    Room,
    Seen,
    Sight,
)
from kit.model.host import Host
from kit.model.launch import Node

HEX = "{:02X}{:02X}{:02X}{:02X}"
ROUTE = "{}\t{}\t{}\t{}\t0\t0\t{}\t{}\t0\t0\t0"
HEADER = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT"


def little(address: str) -> str:
    """Return an address as /proc/net/route has it."""
    return HEX.format(*reversed([int(part) for part in address.split(".")]))


def table(*rows: tuple[str, str, str] | tuple[str, str, str, str]) -> str:
    """Return a /proc/net/route of (interface, network, mask, gateway)."""
    lines = []
    for interface, network, mask, *gateway in rows:
        flags = "0003" if gateway else "0001"
        through = little(gateway[0]) if gateway else "00000000"
        lines.append(ROUTE.format(interface, little(network), through, flags, 0, little(mask)))
    return "\n".join([HEADER, *lines]) + "\n"


@dataclass(frozen=True)
class Machine:
    """What is on a host: texts by path, targets of links, outputs by argv (in the node: after "node"), and disks.

    `mounts` has mounts of one type, by their folders. None: the host does not say.
    """

    files: Mapping[str, str] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    runs: Mapping[tuple[str, ...], str | Ran] = field(default_factory=dict)
    rooms: Mapping[str, Room] = field(default_factory=dict)
    mounts: Mapping[str, Mount] | None = field(default_factory=dict)

    def but(self, **files: Any) -> Machine:
        """Return this machine with other files, given by `files=`, `links=`, `runs=` or `rooms=`. None removes one.

        `mounts=` replaces all mounts.
        """
        merged = {
            name: {
                key: value for key, value in {**getattr(self, name), **files.get(name, {})}.items() if value is not None
            }
            for name in ("files", "links", "runs", "rooms")
        }
        return Machine(**merged, mounts=files.get("mounts", self.mounts))


def seen(name: str, number: int, machine: Machine, reads: Iterable[Read], *, slots: int | None = None) -> Seen:
    """Return what the reader would return about these reads."""
    address = f"10.0.0.{number}"
    files: dict[str, str | None] = {}
    globs: dict[str, dict[str, str]] = {}
    links: dict[str, dict[str, str]] = {}
    commands: dict[Command, Ran | None] = {}
    rooms: dict[str, Room | None] = {}
    addresses: dict[str, tuple[str, ...]] = {}
    mounts: dict[str, Mapping[str, Mount] | None] = {}
    for read in reads:
        match read:
            case File(path=path):
                files[path] = machine.files.get(path)
            case Files(pattern=pattern):
                globs[pattern] = matching(machine.files, pattern)
            case Links(pattern=pattern):
                links[pattern] = matching(machine.links, pattern)
            case Command(argv=argv, node=inside):
                ran = machine.runs.get(("node", *argv) if inside else argv)
                commands[read] = Ran(code=0, out=ran) if isinstance(ran, str) else ran
            case Disk(path=path):
                rooms[path] = machine.rooms.get(path)
            case Lookup(name=word):
                addresses[word] = (address,)
            case Mounts(kind=kind):
                mounts[kind] = machine.mounts
    return Seen(
        host=Host(name=name, address=address, slots=slots),
        files=files,
        globs=globs,
        links=links,
        commands=commands,
        rooms=rooms,
        addresses=addresses,
        mounts=mounts,
        node=Node(name=name, address=address, slots=slots or 2),
    )


def matching(files: Mapping[str, str], pattern: str) -> dict[str, str]:
    """Return the paths that a shell's pattern matches."""
    form = re.compile(
        re.escape(pattern).replace(r"\*", "[^/]*").replace(r"\[", "[").replace(r"\]", "]").replace(r"\-", "-")
    )
    return {path: text for path, text in files.items() if form.fullmatch(path)}


def judged(
    check: Check,
    *machines: Machine,
    spec: Mapping[str, Any] | None = None,
    head: str = "",
    slots: Mapping[str, int] | None = None,
) -> Sequence[Sight]:
    """Return what a check sees on hosts gpu1, gpu2 … `slots` are those of the hosts file, by host."""
    hosts = tuple(
        seen(name, number, one, check.reads, slots=(slots or {}).get(name))
        for number, one in enumerate(machines, 1)
        for name in (f"gpu{number}",)
    )
    settings = spec_from({"name": "lab", **(spec or {})})
    return tuple(check.judge(Examined(spec=settings, hosts=hosts, deployed=True, head=head)))


def rows(sights: Iterable[Sight]) -> list[tuple[str, str]]:
    """Return the hosts and the text of each sight."""
    return [(" ".join(sight.hosts), sight.seen) for sight in sights]
