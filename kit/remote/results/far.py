"""Starts reader.py on a VM or in a container, and reads what it prints."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from kit.errors import NotReadyError, StepError
from kit.model import names
from kit.model.results import LOG, MADE, Entry, Listing, RunFolder
from kit.remote.ssh.transport import Completed, Transport

# A run may have millions of files.
LIST_S = 600.0
_KINDS = frozenset("fdlse")
_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,63}")
_NO_PYTHON = 127


# Makes the command that does an operation of reader.py, such as `argv`.
Command = Callable[..., Sequence[str]]


@cache
def _program() -> str:
    return Path(__file__).with_name("reader.py").read_text(encoding="utf-8")


def argv(operation: str, *arguments: str) -> tuple[str, ...]:
    """Return the command that does this operation of reader.py."""
    return ("python3", "-ISc", _program(), operation, *arguments)


def survey(transport: Transport, cluster: str) -> tuple[RunFolder, ...]:
    """Return the runs that this host has."""
    done = transport.run(argv("survey", names.folder(cluster), names.RUNS), timeout_s=LIST_S)
    return tuple(
        RunFolder(
            id=line["id"],
            live=bool(line["live"]),
            files=int(line["files"]),
            log=int(line["log"]),
            output=int(line["output"]),
            checkpoints=int(line["checkpoints"]),
            work=int(line["work"]),
        )
        for line in _lines(done, transport, "its runs could not be read")
        if _ID.fullmatch(str(line.get("id")))
    )


def living(transport: Transport, cluster: str) -> Mapping[str, bool]:
    """Return the ids of the runs that this host has, and whether each lives."""
    done = transport.run(argv("ids", names.folder(cluster), names.RUNS))
    lines = _lines(done, transport, "its runs could not be read")
    return {line["id"]: bool(line["live"]) for line in lines if _ID.fullmatch(str(line.get("id")))}


def run_files(transport: Transport, cluster: str, run: str) -> Listing:
    """List what a run made on this host, and its log."""
    top, below = f"{names.folder(cluster)}/{names.STATE}", f"{names.RUNS.removeprefix(f'{names.STATE}/')}/{run}"
    done = transport.run(argv("list", top, below, *MADE, LOG), timeout_s=LIST_S)
    return _listing(done, transport, below)


def named_files(transport: Transport, path: str, command: Command) -> Listing:
    """List the file or folder that a person named."""
    return _listing(transport.run(command("find", encoded(path)), timeout_s=LIST_S), transport, "")


def _listing(done: Completed, transport: Transport, below: str) -> Listing:
    lines = _lines(done, transport, "its files could not be listed")
    header: Mapping[str, Any] = next(lines, {})
    entries = tuple(_entry(line) for line in lines if isinstance(line, list))
    return Listing(
        top=str(header.get("top", "")),
        below=below,
        live=bool(header.get("live")),
        unsettled=bool(header.get("unsettled")),
        entries=entries,
    )


def remove(transport: Transport, cluster: str, ids: Sequence[str]) -> Mapping[str, int]:
    """Remove the folders of these runs. Return their bytes, by id, of those that were there. Raises StepError."""
    text = json.dumps(list(ids)).encode()
    done = transport.run(argv("remove", names.folder(cluster), names.RUNS), stdin=text, timeout_s=LIST_S)
    sizes: dict[str, int] = {}
    for line in _lines(done, transport, "runs could not be removed"):
        if line.get("live"):
            raise StepError(f"run {line['id']} has begun to live", hint="stop it: kit stop", host=transport.host.name)
        if line.get("error"):
            raise StepError(f"run {line['id']} could not be removed: {line['error']}", host=transport.host.name)
        if "id" in line:
            sizes[str(line["id"])] = int(line["removed"])
    return sizes


def _entry(line: Sequence[Any]) -> Entry:
    kind, path, *rest = line
    name = decoded(path)
    if kind == "f":
        size, time, executable = rest
        return Entry(path=name, size=int(size), time=int(time), executable=bool(executable))
    text = decoded(rest[0]) if rest and kind == "l" else str(rest[0]) if rest else ""
    return Entry(path=name, kind=kind if kind in _KINDS else "s", text=text)


def decoded(text: str) -> str:
    """Return a path from the text that reader.py prints for it: its letters are the bytes of the name."""
    return text.encode("latin-1").decode("utf-8", "surrogateescape")


def encoded(path: str) -> str:
    """Return a path as reader.py reads it."""
    return path.encode("utf-8", "surrogateescape").decode("latin-1")


def _lines(done: Completed, transport: Transport, what: str) -> Iterator[Any]:
    """Yield the lines of JSON. Raises StepError if the last one is missing."""
    lines = done.stdout.splitlines()
    if done.code != 0 or not lines or json.loads(lines[-1]) != {"end": True}:
        raise failed(done, transport, what)
    for line in lines[:-1]:
        yield json.loads(line)


def failed(done: Completed, transport: Transport, what: str) -> StepError:
    """Return the error for an operation that did not succeed."""
    name = transport.host.name
    last = (done.error_text.splitlines() or [f"exit {done.code}"])[-1]
    if "o such container" in last or "is not running" in last:
        raise NotReadyError("no node of the cluster runs here", hint="run: kit deploy", host=name)
    hint = f"install it there: kit ssh {name}; then apt-get install python3" if done.code == _NO_PYTHON else None
    return StepError(f"{what}: {last}", hint=hint, host=name)
