"""Gives altered answers to kit's readers, in a child process with limits, and counts what they do with them.

A reader may return or raise a KitError. Faults are any other exception (an exit of 70), more CPU time or waiting than
HANG_S for one answer, and more memory than MEMORY. A fuzz_*.py beside this file has `SAMPLES`, valid answers, and
`read(answer)`, the production path. scripts/fuzz and test_fuzz.py use this module.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import mmap
import os
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from kit.errors import KitError
from kit.model.values import replace
from tests.security.altered import answers

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
# In seconds of CPU time, or of a wait in which the process uses no CPU: a busy machine makes neither longer.
HANG_S = 5.0
MEMORY = 500 * 10**6
# Faults that a report keeps of one place.
_KEPT = 3
# Of the child: the answer that it reads (from 1), and counts.
_STATE = struct.Struct("<QQQQ")


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What one answer did. `kind` is exit 70, hang or memory; `place` is the line of kit, `answer` how it begins."""

    kind: str
    place: str
    answer: str
    number: int


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a protocol's reader did with its answers. `errors` are KitErrors, `peak` is in bytes above the start."""

    protocol: str
    answers: int = 0
    errors: int = 0
    peak: int = 0
    seconds: float = 0.0
    faults: tuple[Fault, ...] = field(default_factory=tuple)

    def count(self, kind: str) -> int:
        return sum(fault.kind == kind for fault in self.faults)


def protocols() -> dict[str, Path]:
    """Return the files of all protocols by name."""
    return {path.stem.removeprefix("fuzz_"): path for path in sorted(HERE.glob("fuzz_*.py"))}


def fuzz(path: Path, count: int) -> Report:
    """Give `count` altered answers to the reader in this file."""
    name = path.stem.removeprefix("fuzz_")
    report = Report(protocol=name)
    done = 0
    with tempfile.TemporaryDirectory() as folder:
        state, faults = Path(folder, "state"), Path(folder, "faults")
        faults.touch()
        while done < count:
            state.write_bytes(bytes(_STATE.size))
            died, seconds = _child(path, count, done, state, faults)
            at, read, errors, peak = _STATE.unpack(state.read_bytes())
            report = replace(
                report,
                answers=report.answers + read,
                errors=report.errors + errors,
                peak=max(report.peak, peak),
                seconds=report.seconds + seconds,
            )
            if not died:
                break
            if not at:
                raise RuntimeError(f"{path.name} did not begin: {died}")
            # Another child reads the rest.
            kind, why = died
            with faults.open("a") as file:
                file.write(json.dumps({"kind": kind, "place": why, "answer": "", "number": at}) + "\n")
            report = replace(report, answers=report.answers + 1)
            done = at
        found = tuple(Fault(**json.loads(line)) for line in faults.read_text().splitlines())
    return replace(report, faults=found)


def _child(path: Path, count: int, done: int, state: Path, faults: Path) -> tuple[tuple[str, str] | None, float]:
    """Run a child. Return how it died, or None, and its CPU time in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    words = [sys.executable, "-m", "tests.security.runner", str(path), str(count), str(done), str(state), str(faults)]
    # One arena: each thread's own would count as 64 MB of address space.
    environ = os.environ | {"MALLOC_ARENA_MAX": "1", "PYTHONHASHSEED": "0"}
    process = subprocess.Popen(words, cwd=ROOT, env=environ, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    died: tuple[str, str] | None = None
    with process:
        watch = _Watch(process.pid, state)
        while True:
            try:
                _, errors = process.communicate(timeout=0.25)
                break
            except subprocess.TimeoutExpired:
                if why := watch.hangs():
                    died = ("hang", why)
                    process.kill()
    if died is None and process.returncode:
        last = errors.decode(errors="replace").strip().splitlines()[-1:]
        why = signal.Signals(-process.returncode).name if process.returncode < 0 else f"exit {process.returncode}"
        died = ("exit 70", f"the process ended: {why} {' '.join(last)}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return died, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


class _Watch:
    """Sees when a child is in one answer for too long, and cannot interrupt itself."""

    def __init__(self, pid: int, state: Path) -> None:
        self._stat, self._state = Path(f"/proc/{pid}/stat"), state
        self._answer, self._at_begin, self._ticks, self._since = 0, 0, 0, time.monotonic()

    def hangs(self) -> str:
        """Return why the child hangs, or ''."""
        now = time.monotonic()
        with contextlib.suppress(OSError):
            words = self._stat.read_text().rpartition(")")[2].split()
            answer, ticks = _STATE.unpack(self._state.read_bytes())[0], int(words[11]) + int(words[12])
            if answer != self._answer:
                self._answer, self._at_begin = answer, ticks
            # A process that only waits for the machine's cores is not asleep.
            if answer == 0 or ticks != self._ticks or words[0] != "S":
                self._ticks, self._since = ticks, now
            if answer and (ticks - self._at_begin) / os.sysconf("SC_CLK_TCK") > 3 * HANG_S:
                return f"no end after {3 * HANG_S:.0f} s of CPU time"
            if now - self._since > HANG_S:
                return f"waits for more than {HANG_S:.0f} s"
        return ""


class _Hangs(BaseException):
    """The reader took too much CPU time. No `except Exception` of a reader catches it."""


def _read_all(path: Path, count: int, done: int, state: Path, faults: Path) -> None:
    """Read the answers after the first `done`, as the child."""
    module = _load(path)
    read: Callable[[bytes], None] = module.read
    altered = enumerate(answers(path.stem, module.SAMPLES, count), start=1)
    # Readers import late. What they import is not the memory of an answer.
    for sample in module.SAMPLES:
        with contextlib.suppress(Exception):
            read(sample)
    start = _peak()
    size = int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    signal.signal(signal.SIGPROF, _hangs)
    kept: dict[str, int] = {}
    number_read = errors = 0
    with state.open("r+b") as file, mmap.mmap(file.fileno(), _STATE.size) as shared, faults.open("a") as log:
        for number, answer in altered:
            if number <= done:
                continue
            _STATE.pack_into(shared, 0, number, number_read, errors, _peak() - start)
            fault = _judged(read, answer)
            number_read += 1
            errors += fault == "error"
            if isinstance(fault, tuple):
                kind, place = fault
                kept[kind + place] = kept.get(kind + place, 0) + 1
                shown = ascii(answer[:90]) + ("…" if len(answer) > 90 else "") if kept[kind + place] <= _KEPT else ""
                log.write(json.dumps({"kind": kind, "place": place, "answer": shown, "number": number}) + "\n")
                log.flush()
        _STATE.pack_into(shared, 0, count, number_read, errors, _peak() - start)


def _judged(read: Callable[[bytes], None], answer: bytes) -> tuple[str, str] | str:
    """Return the fault of an answer (kind, place), `error` for a KitError, or ''."""
    signal.setitimer(signal.ITIMER_PROF, HANG_S)
    try:
        read(answer)
    except KitError:
        return "error"
    except _Hangs as hang:
        return "hang", _place(hang)
    except MemoryError as error:
        return "memory", _place(error)
    except Exception as error:
        return "exit 70", f"{_place(error)}: {type(error).__name__}: {str(error)[:100]}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return ""


def _hangs(_number: int, _frame: FrameType | None) -> None:
    raise _Hangs


def _place(error: BaseException) -> str:
    """Return the last line of kit that an exception came through."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
    of_kit = [frame for frame in frames if frame.filename.startswith(f"{ROOT}/kit/")] or frames[-1:]
    if not of_kit:
        return "no line of kit"
    return f"{Path(of_kit[-1].filename).resolve()}:{of_kit[-1].lineno}".removeprefix(f"{ROOT}/")


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise RuntimeError(f"{path} is not a module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


HEADER = ("protocol", "answers", "read", "errors", "exit 70", "hangs", "memory", "CPU s", "peak MB")


def table(reports: Sequence[Report]) -> Iterator[str]:
    """Yield the lines of a table, a row for each protocol and one for all."""
    rows = [
        (
            report.protocol,
            report.answers,
            report.answers - report.errors - len(report.faults),
            report.errors,
            *(report.count(kind) for kind in ("exit 70", "hang", "memory")),
            round(report.seconds, 1),
            round(report.peak / 1e6),
        )
        for report in reports
    ]
    sums = [round(sum(column), 1) for column in zip(*(row[1:-1] for row in rows), strict=True)]
    total = ("all", *sums, max((round(report.peak / 1e6) for report in reports), default=0))
    for name, *cells in (HEADER, *rows, total):
        yield f"{name:<16}" + "".join(f"{cell!s:>9}" for cell in cells)


def faults_by_place(report: Report) -> Iterator[str]:
    """Yield a line for each place with faults, and the beginnings of some answers."""
    grouped: dict[tuple[str, str], list[Fault]] = {}
    for fault in report.faults:
        grouped.setdefault((fault.kind, fault.place), []).append(fault)
    for (kind, place), faults in sorted(grouped.items(), key=lambda item: -len(item[1])):
        yield f"{report.protocol}: {kind}, {len(faults)} answers: {place}"
        yield from (f"    answer {fault.number}: {fault.answer}" for fault in faults[:_KEPT])


if __name__ == "__main__":
    _read_all(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]), Path(sys.argv[5]))
