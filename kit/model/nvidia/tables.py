"""Parses the tables of nvidia-smi: --query-gpu and --query-compute-apps as CSV, and dmon."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kit.model.answer import OddAnswer
from kit.model.nvidia.values import amount, check_size, known, program_name, whole

# The most rows of a table. A GPU of a large machine may have a few hundred processes.
MOST_ROWS = 20_000
# The program is last: it may contain a comma.
APP_FIELDS = ("gpu_uuid", "pid", "used_memory", "process_name")

_UUID = re.compile(r"(?:GPU|MIG)-[0-9A-Za-z/-]{1,100}")


@dataclass(frozen=True)
class ComputeApp:
    """A process that computes on a GPU. `program` and `memory_mib` are None if nvidia-smi may not see them."""

    gpu: str
    pid: int
    program: str | None = None
    memory_mib: int | None = None


@dataclass(frozen=True)
class Sample:
    """One line of dmon. A value is None if the GPU does not report it, or this driver has no such column."""

    gpu: int
    watts: float | None = None
    celsius: float | None = None
    busy_percent: float | None = None
    memory_mhz: float | None = None
    sm_mhz: float | None = None


def rows(text: str, fields: Sequence[str]) -> Iterator[dict[str, str | None]]:
    """Yield a row of `--format=csv`, with or without a header, as {field: value}. Units stay in the values.

    A missing value is None. The last field may contain commas. Skips the header and what nvidia-smi complains about:
    lines with fewer cells. Raises OddAnswer.
    """
    check_size(text)
    number = 0
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",", len(fields) - 1)]
        if len(cells) != len(fields) or not line.strip():
            continue
        # A header is `name, memory.total [MiB], uuid`. It may spell a field in another way: clocks.current.sm.
        if cells[0].partition(" [")[0] == fields[0]:
            continue
        number += 1
        if number > MOST_ROWS:
            raise OddAnswer(f"it has more than {MOST_ROWS} rows", line)
        yield {field: known(cell) for field, cell in zip(fields, cells)}


def compute_apps(text: str) -> tuple[ComputeApp, ...]:
    """Return the processes of `--query-compute-apps` with APP_FIELDS. Ignores other lines. Raises OddAnswer."""
    apps = []
    for row in rows(text, APP_FIELDS):
        gpu, pid = row["gpu_uuid"], row["pid"]
        if gpu and pid and _UUID.fullmatch(gpu):
            number = whole(pid)
            if number is not None:
                memory, program = whole(row["used_memory"] or "", "MiB"), program_name(row["process_name"] or "")
                apps.append(ComputeApp(gpu=gpu, pid=number, program=program, memory_mib=memory))
    return tuple(apps)


def samples(text: str) -> tuple[Sample, ...]:
    """Return the lines of `nvidia-smi dmon`. Drivers differ in the columns, so its header names them.

    dmon repeats its header, and may print the date and time first (-o DT). Raises OddAnswer.
    """
    check_size(text)
    columns: list[str] = []
    lines: list[Sample] = []
    for line in text.splitlines():
        words = line.split()
        if line.startswith("#"):
            # The second line of the header has the units.
            if "gpu" in words:
                columns = [word for word in " ".join(words).lstrip("#").split() if word]
            continue
        if not columns or len(words) != len(columns) or not words[columns.index("gpu")].isdigit():
            continue
        if len(lines) == MOST_ROWS:
            raise OddAnswer(f"it has more than {MOST_ROWS} lines", line)
        values = dict(zip(columns, words))
        index = whole(values["gpu"])
        lines.append(
            Sample(
                gpu=index or 0,
                watts=amount(values.get("pwr", "")),
                celsius=amount(values.get("gtemp", values.get("temp", ""))),
                busy_percent=amount(values.get("sm", "")),
                memory_mhz=amount(values.get("mclk", "")),
                sm_mhz=amount(values.get("pclk", "")),
            )
        )
    return tuple(lines)
