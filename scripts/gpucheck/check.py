"""Runs the parts of gpu-check, one after the other, and collects what each one found."""

from __future__ import annotations

import getpass
import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scripts.gpucheck.anonymous import Names
from scripts.gpucheck.choices import choices
from scripts.gpucheck.commands import Clock
from scripts.gpucheck.compared import driver, facts, formats
from scripts.gpucheck.measured import all_reduces, torch_steps
from scripts.gpucheck.outcome import Failed, Skipped
from scripts.gpucheck.smi import NoGpuError, Smi, read_all

__all__ = ["NO_GPU", "Found", "NoGpuError", "Part", "check"]

# gpu-check's exit code on a machine without a GPU.
NO_GPU = 3
RAN, FAILED, MISSING = "ran", "failed", "not here"


@dataclass(frozen=True)
class Part:
    """One part: its outcome (ran, failed, not here), a sentence, and lines of Markdown with what it measured."""

    name: str
    outcome: str
    summary: str
    lines: tuple[str, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True)
class Found:
    """All that the report has. `captures` are answers by file, without names."""

    smi: Smi
    parts: tuple[Part, ...]
    captures: dict[str, str] = field(default_factory=dict)


def check(root: Path, *, limit_s: float, say: Callable[[str], None]) -> Found:
    """Run all parts. Raises NoGpuError."""
    clock = Clock(limit_s)
    smi = read_all(clock)
    names = Names(_own_names())
    captures: dict[str, str] = {}
    parts = []
    steps: Sequence[tuple[str, Callable[[], tuple[str, Sequence[str]]]]] = (
        ("nvidia-smi", lambda: formats(smi, names, captures)),
        ("driver", lambda: driver(root, smi)),
        ("kit-rank", lambda: choices(root, clock, smi)),
        ("nccl", lambda: all_reduces(root, clock, smi, names, captures)),
        ("pytorch", lambda: torch_steps(clock)),
        ("kit tune", lambda: facts(root, clock, smi)),
    )
    for name, step in steps:
        say("gpu-check: %s …" % name)
        began = time.monotonic()
        try:
            outcome, (summary, lines) = RAN, step()
        except Skipped as why:
            outcome, summary, lines = MISSING, str(why), ()
        except Failed as why:
            outcome, summary, lines = FAILED, str(why), why.lines
        # A message may quote what a program printed.
        clean = names.replace(summary, programs=smi.programs)
        shown = tuple(names.replace(line, programs=smi.programs) for line in lines)
        parts.append(Part(name, outcome, clean, shown, time.monotonic() - began))
    return Found(smi, tuple(parts), captures)


def _own_names() -> dict[str, str]:
    """Return the host's name and its users' names, each with what replaces it."""
    host = socket.gethostname()
    names = {host: "host", host.split(".")[0]: "host", socket.getfqdn(): "host"}
    users = [os.environ.get(name, "") for name in ("USER", "LOGNAME", "SUDO_USER")]
    try:
        users += [getpass.getuser()]
        users += [row.split(":")[0] for row in Path("/etc/passwd").read_text().splitlines() if _is_person(row)]
    except (OSError, KeyError):
        pass
    names.update({user: "user" for user in users if user not in ("", "root", "user", "nobody")})
    names.pop("localhost", None)
    return names


def _is_person(row: str) -> bool:
    words = row.split(":")
    return len(words) > 2 and words[2].isdigit() and 1000 <= int(words[2]) < 60000
