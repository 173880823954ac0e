"""Sends the reader to a VM with what the checks want to read, and returns what was there."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct

from kit.errors import KitError, StepError
from kit.model.answer import MOST, OddAnswer, answer_of, convert, decode, within
from kit.model.doctor import Command, Disk, File, Files, Links, Lookup, Mount, Mounts, Ran, Read, Room, Seen
from kit.model.host import Host
from kit.remote.cluster.look import Answer
from kit.remote.engine.down import is_down
from kit.remote.ssh.program import package
from kit.remote.ssh.transport import Completed, Transport

# The reader ends by itself after this time. A command that is late has its own limit before that.
LIMIT_S = 40.0
TIMEOUT_S = 60.0
# The reader's own limits make an answer of at most 4 MiB, and that of a look of 16 MiB. JSON escapes some characters.
MOST_BYTES = 40 * 2**20
_LOOK_S = 38.0
_NO_PYTHON = 69
_NOT_FOUND = 127
_START = f"command -v python3 >/dev/null 2>&1 || exit {_NO_PYTHON}; exec python3 -I -S -"
# Docker's exit codes if a container has no such program, and for its own failures. A shell's, if there is no docker.
_NOT_RUN = (125, 126, 127)
# A line of an error that a message shows, in characters.
_SHOWN = 300
# How the reader calls each kind of read.
_KINDS: Mapping[type[Read], str] = {
    File: "file",
    Files: "files",
    Links: "links",
    Disk: "disk",
    Command: "run",
    Lookup: "lookup",
    Mounts: "mounts",
}
# The longest path that a kernel knows, and text of a command.
_PATH, _TEXT = 4096, 2**21
_DEVICE = re.compile(r"[0-9]{1,10}:[0-9]{1,10}", re.ASCII)
_FAULT = re.compile(r"(?:E[A-Z0-9]{1,30})?", re.ASCII)


class NoPython(StepError):
    """The VM has no python3 that could run the reader."""


class Look(NamedTuple):
    """The command of kit.remote.cluster.look that the reader runs beside its reads, and its mark."""

    argv: Sequence[str]
    mark: str


class Answered(NamedTuple):
    """What a host answered. `look` is what the command of a look printed, or None if it did not end in time."""

    seen: Seen
    look: Answer | None


class _Answer(Struct, frozen=True, kw_only=True):
    """The line that the reader prints."""

    reads: list[Any]
    missing: list[int]
    look: tuple[int | None, str, str] | None


# The modules of the reader, in the order in which they import each other.
MODULES = ("places", "main")
_FOLDER = Path(__file__).parent / "reader"


@cache
def program() -> str:
    """Return the reader as one program. The line after it calls `main`."""
    return f"{package('reader', _FOLDER, MODULES)}main = sys.modules['reader.main'].main\n"


def read_host(
    transport: Transport,
    reads: Sequence[Read],
    *,
    node: Sequence[str] = (),
    folder: str = "",
    look: Look | None = None,
) -> Answered:
    """Return what is there on a host.

    `node` is the command before the argv of a read in the node. Without it, reads in the node are left out. A VM
    without `folder`, the cluster's, has no node.

    Raises NoPython, UnreachableError, StepError if the login cannot become root, and AnswerError for odd output.
    """
    selection = tuple(read for read in dict.fromkeys(reads) if node or not (isinstance(read, Command) and read.node))
    mark = os.urandom(16).hex()
    request = {
        "mark": mark,
        "limit": LIMIT_S,
        "reads": [_word(read, node, folder) for read in selection],
        "look": [list(look.argv), f"{look.mark}\n", _LOOK_S] if look else None,
    }
    # The text of the request is a literal of Python, too.
    text = f"{program()}\n\nmain({json.dumps(json.dumps(request))})\n"
    done = transport.run(["sh", "-c", _START, "kit-doctor"], stdin=text.encode(), timeout_s=TIMEOUT_S)
    return answered(transport.host, selection, done, mark=mark, look=look)


def _word(read: Read, node: Sequence[str], folder: str) -> list[Any]:
    """Return a read as the reader knows it."""
    kind = _KINDS[type(read)]
    match read:
        case File() | Disk():
            return [kind, read.path]
        case Files() | Links():
            return [kind, read.pattern]
        case Command():
            before, only_with = (node, read.only_with or folder) if read.node else ((), read.only_with)
            return [kind, [*before, *read.argv], read.timeout_s, only_with, read.tail]
        case Lookup():
            return [kind, read.name]
        case Mounts():
            return [kind, read.kind, read.timeout_s]


def answered(host: Host, reads: Sequence[Read], done: Completed, *, mark: str, look: Look | None = None) -> Answered:
    """Return what the reader printed about these reads. Raises the errors of `read_host`."""
    start = f"@@ {mark} ".encode()
    # Nobody else knows the mark.
    line = next((line for line in reversed(done.stdout.split(b"\n")) if line.startswith(start)), None)
    if line is None:
        raise _failed(host, done)
    with answer_of(host.name, "what kit doctor read there"):
        answer: _Answer = decode(line[len(start) :], _Answer, most=MOST_BYTES)
        seen = _seen(host, reads, answer)
        return Answered(seen, _look(answer, look))


def _failed(host: Host, done: Completed) -> KitError:
    """Return the error of a reader that did not print its answer."""
    last = (done.error_text.splitlines() or [f"exit {done.code}"])[-1][:_SHOWN]
    if done.code in (_NO_PYTHON, _NOT_FOUND):
        return NoPython("has no python3", host=host.name)
    if "sudo" in done.error_text:
        return StepError(
            f"the login is not root and cannot become it: {last}",
            hint="give the user sudo without a password, or set user=root in the hosts file",
            host=host.name,
        )
    if "SyntaxError" in done.error_text:
        return NoPython("its python3 is older than 3.6", host=host.name)
    return StepError(
        f"the host could not be read: {last}",
        hint=f"does python3 start there? try: kit ssh {host.name}",
        host=host.name,
    )


def _look(answer: _Answer, look: Look | None) -> Answer | None:
    code, out, errors = answer.look or (None, "", "")
    if look is None or code is None:
        return None
    return Answer(done=Completed(code=code, stdout=out.encode(), stderr=errors.encode()), mark=look.mark)


def _seen(host: Host, reads: Sequence[Read], answer: _Answer) -> Seen:
    """Return the reads that the host answered. Raises OddAnswer."""
    if len(answer.reads) != len(reads):
        raise OddAnswer(f"it has {len(answer.reads)} reads in place of {len(reads)}")
    missing = set(answer.missing)
    values = {
        read: value for at, (read, value) in enumerate(zip(reads, answer.reads, strict=True)) if at not in missing
    }
    return Seen(
        host=host,
        files={read.path: convert(value, str | None) for read, value in values.items() if isinstance(read, File)},
        globs={read.pattern: _texts(value) for read, value in values.items() if isinstance(read, Files)},
        links={read.pattern: _texts(value) for read, value in values.items() if isinstance(read, Links)},
        commands={read: _ran(read, value) for read, value in values.items() if isinstance(read, Command)},
        rooms={read.path: _room(value) for read, value in values.items() if isinstance(read, Disk)},
        addresses={read.name: _addresses(value) for read, value in values.items() if isinstance(read, Lookup)},
        mounts={read.kind: _mounts(value) for read, value in values.items() if isinstance(read, Mounts)},
    )


def _texts(value: Any) -> dict[str, str]:
    texts: dict[str, str] = convert(value, dict[str, str])
    if any(len(path) > _PATH for path in texts):
        raise OddAnswer("it has a path that is too long")
    return texts


def _ran(read: Command, value: Any) -> Ran | None:
    row: tuple[int | None, str, str] | None = convert(value, tuple[int | None, str, str] | None)
    # If a node has no such program, or if no node runs, it is docker that fails.
    if row is None or (read.node and row[0] in _NOT_RUN) or (read.node and row[0] == 1 and _no_node(row[2])):
        return None
    if row[0] is not None:
        within(row[0], 0, 255, "an exit code")
    if len(row[1]) + len(row[2]) > _TEXT:
        raise OddAnswer("a command printed too much")
    return Ran(code=row[0], out=row[1], err=row[2])


def _no_node(errors: str) -> bool:
    return "o such container" in errors or "is not running" in errors or is_down(errors)


def _room(value: Any) -> Room | None:
    row: tuple[int, int, int, int] | None = convert(value, tuple[int, int, int, int] | None)
    if row is None:
        return None
    for count in row:
        within(count, 0, MOST * 1024, "a size of a disk")
    return Room(total=row[0], free=row[1], inodes=row[2], inodes_free=row[3])


def _mounts(value: Any) -> dict[str, Mount] | None:
    rows: dict[str, tuple[str, str | None]] | None = convert(value, dict[str, tuple[str, str | None]] | None)
    if rows is None:
        return None
    for place, (device, fault) in rows.items():
        if len(place) > _PATH:
            raise OddAnswer("it has a path that is too long")
        if not _DEVICE.fullmatch(device):
            raise OddAnswer("this is not the number of a device", device)
        if not _FAULT.fullmatch(fault or ""):
            raise OddAnswer("this is not the name of an error", fault or "")
    return {place: Mount(device=device, fault=fault) for place, (device, fault) in rows.items()}


def _addresses(value: Any) -> tuple[str, ...]:
    words: tuple[str, ...] = convert(value, tuple[str, ...])
    for word in words:
        try:
            ip_address(word)
        except ValueError:
            raise OddAnswer("this is not an address", word) from None
    return words
