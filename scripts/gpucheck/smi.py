"""Runs nvidia-smi in every format that kit reads, and reads the answers with kit's parsers."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from kit.model.answer import OddAnswer
from kit.model.nvidia.listing import listed
from kit.model.nvidia.state import GpuState, State, state
from kit.model.nvidia.tables import APP_FIELDS, compute_apps, rows, samples
from kit.model.nvidia.topology import Topology, topology
from kit.model.nvidia.values import failure
from scripts.gpucheck.commands import Clock, Done, run

# Fields that drivers from 410 on know. nvidia-smi prints nothing at all if it does not know one.
FIELDS = (
    "index", "name", "uuid", "driver_version", "memory.total", "memory.used", "pstate", "utilization.gpu",
    "clocks.sm", "clocks.max.sm", "clocks.mem", "clocks.max.mem", "temperature.gpu", "power.draw", "power.limit",
    "pcie.link.gen.current", "pcie.link.gen.max", "pcie.link.width.current", "pcie.link.width.max",
    "persistence_mode", "compute_mode", "ecc.mode.current",
)  # fmt: skip
# By the name of the file that keeps the answer.
COMMANDS = {
    "list.txt": ("-L",),
    "query.csv": ("--query-gpu=" + ",".join(FIELDS), "--format=csv"),
    "state.xml": ("-q", "-x"),
    "topology.txt": ("topo", "-m"),
    "samples.txt": ("dmon", "-c", "1"),
    "apps.csv": ("--query-compute-apps=" + ",".join(APP_FIELDS), "--format=csv"),
}
# nvidia-smi without persistence mode starts the driver first.
PATIENCE_S = 40.0


class NoGpuError(Exception):
    """This machine has no GPU that nvidia-smi can read. The text says why."""


@dataclass(frozen=True)
class Smi:
    """The answers of nvidia-smi by file, and what kit read in them. `problems` name a format and what is odd in it."""

    answers: dict[str, str] = field(default_factory=dict)
    state: State = field(default_factory=State)
    topology: Topology = field(default_factory=Topology)
    programs: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def gpus(self) -> tuple[GpuState, ...]:
        return self.state.gpus

    @property
    def pretended(self) -> bool:
        """Return whether these are GPUs that a lab of kit pretends."""
        return any("PRETENDED" in answer for answer in self.answers.values())


def ask(clock: Clock, *words: str) -> Done:
    """Run nvidia-smi."""
    return run(("nvidia-smi", *words), clock.left(PATIENCE_S))


def read_all(clock: Clock) -> Smi:
    """Return all answers. Raises NoGpuError."""
    first = ask(clock, *COMMANDS["list.txt"])
    if first.code == 127:
        raise NoGpuError("nvidia-smi is missing, so no NVIDIA driver is installed")
    if not first.text.startswith("GPU "):
        raise NoGpuError(failure(first.text) or failure(first.errors) or "nvidia-smi -L: %s" % first.last)
    answers = {"list.txt": first.text}
    problems = []
    for file, words in COMMANDS.items():
        if file not in answers:
            done = ask(clock, *words)
            answers[file] = done.text
            # dmon refuses a GPU that is split into MIG devices.
            if done.code and not (file == "samples.txt" and "Enabled" in _modes(answers["state.xml"])):
                problems.append("%s: nvidia-smi %s: %s" % (file, words[0], done.last))
    return interpreted(answers, problems)


def interpreted(answers: dict[str, str], problems: list[str]) -> Smi:
    """Read these answers with kit's parsers, and compare what they say about the same GPUs."""

    def of(file: str, read: Callable[[str], object]) -> object:
        try:
            return read(answers[file])
        except OddAnswer as odd:
            problems.append("%s: %s" % (file, odd))
            return None

    reading = of("state.xml", state)
    matrix = of("topology.txt", topology)
    full = reading if isinstance(reading, State) else State()
    known = [(gpu.index, gpu.name, gpu.uuid) for gpu in full.gpus]
    others = {
        "list.txt": of("list.txt", lambda text: [(gpu.index, gpu.name, gpu.uuid) for gpu in listed(text)]),
        "query.csv": of("query.csv", lambda text: [_row(row) for row in rows(text, FIELDS)]),
    }
    for file, gpus in others.items():
        if gpus is not None and gpus != known:
            problems.append("%s: its GPUs are %s, those of state.xml are %s" % (file, gpus, known))
    lines = of("samples.txt", lambda text: [sample.gpu for sample in samples(text)])
    if lines is not None and lines != [gpu.index for gpu in full.gpus] and not any(gpu.mig for gpu in full.gpus):
        problems.append("samples.txt: its GPUs are %s" % lines)
    devices = matrix.gpus if isinstance(matrix, Topology) else ()
    if matrix is not None and len(devices) != len(full.gpus):
        problems.append("topology.txt: it has %d GPUs, state.xml has %d" % (len(devices), len(full.gpus)))
    apps = of("apps.csv", lambda text: [app.program for app in compute_apps(text)])
    programs = [process.program for gpu in full.gpus for process in gpu.processes]
    programs += apps if isinstance(apps, list) else []
    return Smi(
        answers=answers,
        state=full,
        topology=matrix if isinstance(matrix, Topology) else Topology(),
        programs=tuple(sorted({program for program in programs if program})),
        problems=tuple(problems),
    )


def _modes(document: str) -> list[str]:
    """Return the MIG mode of each GPU."""
    return re.findall(r"<current_mig>\s*([A-Za-z/]+)\s*</current_mig>", document)


def _row(row: dict[str, str | None]) -> tuple[int, str, str]:
    index = row["index"] or ""
    return int(index) if index.isdigit() else -1, row["name"] or "", row["uuid"] or ""
