"""Reads a hosts file. A plain list of VMs and an Open MPI hostfile are valid hosts files.

kit.config.hostline reads single lines. This module joins them: repeated hosts, and names that must be unique.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import NoReturn

from kit.config.hostaddress import LineError
from kit.config.hostline import MOST_SLOTS, HostEntry, read_line
from kit.config.problems import limited
from kit.config.words import plain, shown
from kit.errors import InputError, InputErrors
from kit.model.host import Host, Inventory

MAX_HOSTS = 10_000
# mpirun's hostfiles may repeat a host for each slot. Ranges on many lines would take minutes.
_MOST_ENTRIES = 20 * MAX_HOSTS
_COMMENT = re.compile(r"(?:(?<=\s)|\A)/\*")
_MERGED = ("user", "key", "internal", "hca")


def parse_hosts(text: str, *, source: str) -> Inventory:
    """Return the VMs of the text, in its order. `source` is the path of the file, for messages.

    Names are not resolved, and key= stays as written.
    Raises InputErrors with every problem of the file, each with its line (1-based) and a hint.
    """
    reading = _Reading(source)
    count = 0
    for number, line in _lines(text, reading):
        try:
            entries = read_line(line, most=MAX_HOSTS)
        except LineError as error:
            reading.add_problem(number, error.message, error.hint)
            continue
        for entry in entries:
            entry.line = number
            reading.add(entry)
        if len(reading.entries) > MAX_HOSTS:
            reading.add_problem(number, f"the file has over {MAX_HOSTS} hosts", "split the VMs into several clusters")
            break
        count += len(entries)
        if count > _MOST_ENTRIES:
            reading.add_problem(
                number,
                f"the file names hosts over {_MOST_ENTRIES} times",
                "write each VM once, with its slots=",
            )
            break
    return reading.inventory()


def _lines(text: str, reading: _Reading) -> Iterator[tuple[int, str]]:
    """Yield (number, line) without a byte order mark, CRLF and C comments."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    if "/*" in text:
        text, still_open = _without_comments(text)
        if still_open:
            reading.add_problem(
                text.count("\n") + 1,
                "the comment that starts with /* has no end",
                "end it with */, or start it with #",
            )
    return enumerate(text.split("\n"), start=1)


def _without_comments(text: str) -> tuple[str, bool]:
    """Return the text without C comments, and whether its last comment has no end. Text after such a comment is cut.

    A comment keeps its newlines, so that line numbers stay correct. One regular expression for whole comments would
    take minutes for thousands of comments without an end.
    """
    parts: list[str] = []
    position = 0
    while True:
        # A comment may directly follow another one.
        begins = bool(parts) and text.startswith("/*", position)
        match = None if begins else _COMMENT.search(text, position)
        if not begins and match is None:
            return "".join([*parts, text[position:]]), False
        start = position if match is None else match.start()
        parts.append(text[position:start])
        end = text.find("*/", start + 2)
        if end < 0:
            return "".join(parts), True
        parts.append("\n" * text.count("\n", start, end) or " ")
        position = end + 2


class _Reading:
    """The hosts and the problems so far."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.entries: list[HostEntry] = []
        self.problems: list[InputError] = []
        self._by_address: dict[str, list[HostEntry]] = {}
        self._by_name: dict[str, HostEntry] = {}
        self._by_internal: dict[str, HostEntry] = {}

    def add_problem(self, line: int, message: str, hint: str) -> None:
        self.problems.append(InputError(message, hint=hint, file=self.source, line=line))

    def add(self, entry: HostEntry) -> None:
        """Add a new host, or one more line of a known host."""
        same = self._by_address.setdefault(entry.address.lower(), [])
        for known in same:
            if (entry.name is None or entry.name == (known.name or known.default_name)) and entry.port in (
                None,
                known.port,
            ):
                self._repeat(known, entry)
                return
        twin_port = next((known for known in same if known.port == entry.port), None)
        if twin_port is not None:
            self._clash(twin_port, entry)
            return
        if same and (entry.name is None or entry.port is None or any(other.port is None for other in same)):
            self._clash(same[0], entry)
            return
        name = (entry.name or entry.default_name).lower()
        other = self._by_name.get(name)
        if other is not None:
            self.add_problem(
                entry.line,
                f"the host on line {other.line} already has the name {shown(name)}",
                f"give one of the two another name: {plain(entry.address)} name={plain(name)[:50]}-b",
            )
            return
        if entry.internal is not None:
            twin = self._by_internal.setdefault(entry.internal, entry)
            if twin is not entry:
                self.add_problem(
                    entry.line,
                    f"the host on line {twin.line} already has internal={entry.internal}",
                    "write each VM's own address in the cluster's network",
                )
                return
        self._by_name[name] = entry
        same.append(entry)
        self.entries.append(entry)

    def _repeat(self, known: HostEntry, entry: HostEntry) -> None:
        """Add a repeated host. Like mpirun, count each line without slots= as one more slot."""
        if entry.slots is not None:
            self.add_problem(
                entry.line,
                f"{shown(entry.address)} is already on line {known.line}, and only its first line can have slots=",
                f"keep one line for it: {plain(entry.address)} slots={entry.slots}",
            )
            return
        for key in _MERGED:
            old, new = getattr(known, key), getattr(entry, key)
            if new is not None and new != old:
                before = f"{key}={plain(old)}" if old is not None else f"no {key}="
                self.add_problem(
                    entry.line,
                    f"{shown(entry.address)} has {key}={plain(new)} here but {before} on line {known.line}",
                    "keep one line for each VM, with all its settings",
                )
                return
        known.slots = (known.slots or 1) + 1
        if known.slots == MOST_SLOTS + 1:
            self.add_problem(
                entry.line,
                f"{shown(entry.address)} has more than {MOST_SLOTS} slots with this line",
                f"keep one line for it, for example: {plain(entry.address)} slots=8",
            )

    def _clash(self, known: HostEntry, entry: HostEntry) -> None:
        self.add_problem(
            entry.line,
            f"{shown(entry.address)} is already on line {known.line} with another name or port",
            "if they are one VM, keep one line; if they are two VMs behind one address, give each its port= and name=",
        )

    def inventory(self) -> Inventory:
        if self.problems:
            self._fail()
        if not self.entries:
            name = PurePath(self.source).name or self.source
            raise InputError(
                f"{plain(name) or 'hosts'} names no VM",
                hint="write one VM on each line, such as: 10.0.0.11",
                file=self.source,
                line=1,
            )
        names = {entry.name.lower(): entry for entry in self.entries if entry.name is not None}
        for entry in self.entries:
            other = names.get(entry.address.lower())
            if other is not None and other is not entry and other.address.lower() != entry.address.lower():
                self.add_problem(
                    other.line,
                    f"the name {shown(other.name or '')} is the address of the host on line {entry.line}",
                    "choose a name that is not the address of another host",
                )
        if self.problems:
            self._fail()
        return Inventory(hosts=tuple(_host(entry) for entry in self.entries), source=self.source)

    def _fail(self) -> NoReturn:
        raise InputErrors(limited(self.problems))


def _host(entry: HostEntry) -> Host:
    return Host(
        name=entry.name or entry.default_name,
        address=entry.address,
        slots=entry.slots,
        user=entry.user,
        port=entry.port,
        key=entry.key,
        internal=entry.internal,
        hca=entry.hca,
        line=entry.line,
    )


def render_hosts(inventory: Inventory) -> str:
    """Return a hosts file with these hosts, one on each line. Settings that are None are left out."""
    lines = []
    for host in inventory.hosts:
        words = [host.address]
        for key in ("name", "slots", "user", "port", "key", "internal", "hca"):
            value = getattr(host, key)
            if value is None or (key == "name" and value == HostEntry(host.address).default_name):
                continue
            text = str(value)
            quoted = text.startswith("'") or any(c in " #" for c in text)
            words.append(f'{key}="{text}"' if quoted else f"{key}={text}")
        lines.append(" ".join(words))
    return "".join(f"{line}\n" for line in lines)
