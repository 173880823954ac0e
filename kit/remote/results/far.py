"""Starts the reader on a VM or in a container, and reads what it prints."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from kit.errors import NotReadyError, StepError
from kit.model import names
from kit.model.answer import MOST, OddAnswer, answer_of, decode, whole
from kit.model.results import LOG, MADE, Clock, Entry, Listing, RunFolder, RunStart, SharedListing
from kit.model.values import fields, replace
from kit.remote.scripts import in_node
from kit.remote.ssh.program import package
from kit.remote.ssh.transport import Completed, Transport

# A run may have millions of files.
LIST_S = 600.0
# The longest line, text, path and name. A path here has the folder of the pull before it.
_LINE = 1 << 16
_MOST_TEXT = 500
_MOST_PATH, _MOST_NAME = 3000, 255
# Times in ns that the system accepts for a file.
TIMES = (-(2**63), 2**63 - 1)
_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,63}")
_STAMP = re.compile(r"[0-9]{8}-[0-9]{6}")
_NO_PYTHON = 127


class NoPythonError(StepError):
    """The host has no python3."""


# Makes the command that does an operation of the reader, such as `argv`.
Command = Callable[..., Sequence[str]]


# The modules of the reader, in the order in which they import each other.
MODULES = ("paths", "mounts", "living", "frames", "lists", "send", "write", "runs", "main")
_FOLDER = Path(__file__).parent / "reader"


@cache
def program() -> str:
    """Return the reader as one program, which does the operation of its command line."""
    return f"{package('reader', _FOLDER, MODULES)}sys.modules['reader.main'].main(sys.argv[1:])\n"


def argv(operation: str, *arguments: str) -> tuple[str, ...]:
    """Return the command that does this operation of the reader."""
    return ("python3", "-ISc", program(), operation, *arguments)


def in_container(container: str) -> Command:
    """Return what makes the command that does an operation of the reader in a node."""

    def command(operation: str, *arguments: str) -> Sequence[str]:
        return in_node(container, argv(operation, *arguments), interactive=True)

    return command


class _Run(Struct, frozen=True, kw_only=True):
    """A line about a run. Only a survey has `began` and the sizes, and only a list of ids has `started`."""

    id: str
    live: bool
    started: int = 0
    began: str = ""
    files: int = 0
    output: int = 0
    checkpoints: int = 0
    work: int = 0
    log: int = 0


class _Head(Struct, frozen=True, kw_only=True):
    """The first line of a survey."""

    stack: bool


def survey(transport: Transport, cluster: str) -> tuple[RunFolder, ...]:
    """Return the runs that this host has."""
    runs, _ = survey_with_stack(transport, cluster)
    return runs


def survey_with_stack(transport: Transport, cluster: str) -> tuple[tuple[RunFolder, ...], bool]:
    """Return the runs that this host has, and whether it has the file of the cluster's stack in a swarm."""
    done = transport.run(argv("survey", names.folder(cluster), names.RUNS, names.STACK_FILE), timeout_s=LIST_S)
    with answer_of(transport.host.name, "its list of runs"):
        first, *lines = *_lines(done, transport, "its runs could not be read"), b""
        head: _Head = decode(first, _Head, most=_LINE)
    runs = _runs(lines[:-1], transport)
    return tuple(RunFolder(**{name: getattr(run, name) for name in fields(RunFolder)}) for run in runs), head.stack


def runs(transport: Transport, cluster: str) -> Mapping[str, RunStart]:
    """Return the runs that this host has, by id."""
    done = transport.run(argv("ids", names.folder(cluster), names.RUNS))
    lines = _lines(done, transport, "its runs could not be read")
    return {run.id: RunStart(live=run.live, started=run.started) for run in _runs(lines, transport)}


def _runs(lines: Iterable[bytes], transport: Transport) -> Iterator[_Run]:
    with answer_of(transport.host.name, "its list of runs"):
        for line in lines:
            run: _Run = decode(line, _Run, most=_LINE)
            for count in (run.files, run.output, run.checkpoints, run.work, run.log):
                _check(count, 0, MOST, line)
            _check(run.started, 0, TIMES[1], line)
            if run.began and not _STAMP.fullmatch(run.began):
                raise OddAnswer("this is not the time of a start", line)
            # Other folders are no runs.
            if _ID.fullmatch(run.id):
                yield run


def run_files(transport: Transport, cluster: str, run: str) -> Listing:
    """List what a run made on this host, and its log."""
    top, below = f"{names.folder(cluster)}/{names.STATE}", f"{names.RUNS.removeprefix(f'{names.STATE}/')}/{run}"
    done = transport.run(argv("list", top, below, *MADE, LOG), timeout_s=LIST_S)
    return _listing(done, transport, below)


def named_files(transport: Transport, path: str, command: Command) -> Listing:
    """List the file or folder that a person named."""
    return _listing(transport.run(command("find", encoded(path)), timeout_s=LIST_S), transport, "")


class _Now(Struct, frozen=True, kw_only=True):
    """The answer to `now`, in ns since 1970."""

    now: int


def clock(transport: Transport) -> Clock:
    """Return the time of this host."""
    done = transport.run(argv("now"))
    here = time.monotonic()
    with answer_of(transport.host.name, "its time"):
        line = next(_lines(done, transport, "its clock could not be read"), b"")
        now: _Now = decode(line, _Now, most=_LINE)
        return Clock(there=_check(now.now, *TIMES, line), here=here)


class _Shared(Struct, frozen=True, kw_only=True):
    """The first line of the list of a shared folder."""

    top: str
    there: bool
    store: str


class _Others(Struct, frozen=True, kw_only=True):
    """The last line of that list."""

    others: int
    size: int


def shared_files(
    transport: Transport, path: str, changed: tuple[int, int], command: Command, *, prefix: str
) -> SharedListing:
    """List the files of a folder that changed between two times in ns. Their paths begin with `prefix`."""
    words = (encoded(path), *map(str, changed))
    done = transport.run(command("shared", *words), timeout_s=LIST_S)
    with answer_of(transport.host.name, f"its list of {path[:_MOST_TEXT]}"):
        lines = tuple(_lines(done, transport, f"{path[:_MOST_TEXT]} could not be listed"))
        first, last = (lines[0], lines[-1]) if lines else (b"", b"")
        header: _Shared = decode(first, _Shared, most=_LINE)
        others: _Others = decode(last, _Others, most=_LINE)
        entries = tuple(_entry(line) for line in lines[1:-1])
        return SharedListing(
            listing=Listing(
                top=header.top,
                below="",
                live=False,
                entries=tuple(replace(entry, path=prefix + entry.path) for entry in entries),
                prefix=prefix,
            ),
            exists=header.there,
            store=header.store,
            others=_check(others.others, 0, MOST, last),
            others_size=_check(others.size, 0, MOST, last),
        )


class _Header(Struct, frozen=True, kw_only=True):
    """The first line of a list."""

    top: str
    live: bool
    unsettled: bool


def _listing(done: Completed, transport: Transport, below: str) -> Listing:
    with answer_of(transport.host.name, "its list of files"):
        lines = _lines(done, transport, "its files could not be listed")
        header: _Header = decode(next(lines, b""), _Header, most=_LINE)
        entries = tuple(_entry(line) for line in lines)
    return Listing(top=header.top, below=below, live=header.live, unsettled=header.unsettled, entries=entries)


class _Removed(Struct, frozen=True, kw_only=True):
    """A line about a run that was to be removed."""

    id: str
    live: bool = False
    error: str = ""
    removed: int = 0


def remove(transport: Transport, cluster: str, ids: Sequence[str]) -> Mapping[str, int]:
    """Remove the folders of these runs. Return their bytes, by id, of those that were there. Raises StepError."""
    text = json.dumps(list(ids)).encode()
    done = transport.run(argv("remove", names.folder(cluster), names.RUNS), stdin=text, timeout_s=LIST_S)
    sizes: dict[str, int] = {}
    wanted = set(ids)
    with answer_of(transport.host.name, "which runs it removed"):
        for line in _lines(done, transport, "runs could not be removed"):
            run: _Removed = decode(line, _Removed, most=_LINE)
            if run.id not in wanted:
                raise OddAnswer("it names a run that was not to be removed", line)
            if run.live:
                raise StepError(
                    f"run {run.id} has begun to live", hint=f"stop it: kit stop {run.id}", host=transport.host.name
                )
            if run.error:
                text_ = run.error[:_MOST_TEXT]
                raise StepError(f"run {run.id} could not be removed: {text_}", host=transport.host.name)
            sizes[run.id] = _check(run.removed, 0, MOST, line)
    return sizes


def _entry(line: bytes) -> Entry:
    """Return the entry of one line: [kind, path] and what the kind has besides. Raises OddAnswer."""
    # A program that lists files writes bytes that are no text in its own way.
    if whole(line) != line:
        raise OddAnswer("half of a surrogate pair is no name", line)
    value: list[Any] = decode(line, list[Any], most=_LINE)
    match value:
        case ["f", str(path), int(size), int(time), bool(executable)]:
            entry = Entry(
                path=decoded(path),
                size=_check(size, 0, MOST, line),
                time=_check(time, *TIMES, line),
                executable=executable,
            )
        case ["f", str(path), int(size), int(time), bool(executable), int(inode)]:
            entry = Entry(
                path=decoded(path),
                size=_check(size, 0, MOST, line),
                time=_check(time, *TIMES, line),
                executable=executable,
                inode=_check(inode, 0, 2**64, line),
            )
        case ["l", str(path), str(target)]:
            entry = Entry(path=decoded(path), kind="l", text=decoded(target))
        case ["e", str(path), str(why)]:
            entry = Entry(path=decoded(path), kind="e", text=why[:_MOST_TEXT])
        case ["d", str(path), int(mode)]:
            entry = Entry(path=decoded(path), kind="d", mode=_check(mode, 0, 0o777, line))
        case ["s", str(path)]:
            entry = Entry(path=decoded(path), kind="s")
        case _:
            raise OddAnswer("it is no entry of a folder", line)
    if len(path) > _MOST_PATH or max(map(len, path.split("/"))) > _MOST_NAME:
        return replace(entry, kind="e", text="its name is too long for this machine")
    return entry


def _check(value: int, least: int, most: int, line: bytes) -> int:
    if not least <= value <= most:
        raise OddAnswer(f"a number is not between {least} and {most}", line)
    return value


def decoded(text: str) -> str:
    """Return a path from the text that the reader prints for it: its letters are the bytes of the name.

    Raises OddAnswer.
    """
    try:
        return text.encode("latin-1").decode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise OddAnswer("it is no name of a file", text) from None


def encoded(path: str) -> str:
    """Return a path as the reader reads it."""
    return path.encode("utf-8", "surrogateescape").decode("latin-1")


def _lines(done: Completed, transport: Transport, what: str) -> Iterator[bytes]:
    """Yield the lines but the last, which says that all are here. Raises StepError if it is missing."""
    lines = done.stdout.splitlines()
    if done.code != 0 or not lines or lines[-1] != b'{"end": true}':
        raise failed(done, transport, what)
    yield from lines[:-1]


def failed(done: Completed, transport: Transport, what: str) -> StepError:
    """Return the error for an operation that did not succeed."""
    name = transport.host.name
    last = (done.error_text.splitlines() or [f"exit {done.code}"])[-1][:_MOST_TEXT]
    if "o such container" in last or "is not running" in last:
        raise NotReadyError("no node of the cluster runs here", hint="run: kit deploy", host=name)
    if done.code == _NO_PYTHON:
        hint = f"install it there: kit ssh {name} -- sudo apt-get install python3"
        return NoPythonError(f"{what}: {last}", hint=hint, host=name)
    return StepError(f"{what}: {last}", host=name)
