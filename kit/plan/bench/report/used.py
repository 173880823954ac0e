"""What the runs of a benchmark used of their hosts: what a sample keeps of it, its summary, and the rows of a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from msgspec import Struct

from kit.model.bench import Sample
from kit.model.benchsummary import CaseSummary, Used
from kit.model.run import HostUse, RunUse
from kit.model.text import plural, size
from kit.plan.bench.report import words
from kit.plan.bench.report.figures import number

TOO_SHORT = "too short for readings"


def kept(use: RunUse | None) -> dict[str, Any]:
    """Return what a sample keeps: the fields of Used, but for `count`, over the hosts. {} without readings."""
    if use is None or not use.hosts:
        return {}
    hosts = list(use.hosts.values())
    # Bytes are counted between two readings of a host.
    counted = use.readings >= 2 * len(hosts)
    values = {
        "memory": max(host.memory_peak for host in hosts),
        "cores": _sum(host.cpu_mean for host in hosts),
        "of_cores": sum(host.cores for host in hosts),
        "gpus": None if use.gpu_mean is None else use.gpu_mean / 100,
        "gpu_memory": max((host.gpu_memory_peak or 0 for host in hosts if _has_gpus(host)), default=None),
        "received": sum(host.received for host in hosts) if counted else None,
        "sent": sum(host.sent for host in hosts) if counted else None,
        "left_out": use.left_out or None,
    }
    return {name: round(value, 4) for name, value in values.items() if value is not None}


def _has_gpus(host: HostUse) -> bool:
    return host.gpu_memory_peak is not None


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def used_by(samples: Sequence[Sample]) -> Used | None:
    """Return the summary of what these repeats used, or None if nobody looked at any of them."""
    looked = [sample.used for sample in samples if sample.used is not None]
    if not looked:
        return None
    read = [used for used in looked if used]

    def values(name: str) -> list[float]:
        return [value for used in read if (value := _amount(used, name)) is not None]

    def middle(name: str) -> float | None:
        return median(values(name)) if values(name) else None

    return Used(
        count=len(read),
        memory=max(values("memory"), default=None),
        cores=middle("cores"),
        of_cores=middle("of_cores"),
        gpus=middle("gpus"),
        gpu_memory=max(values("gpu_memory"), default=None),
        received=middle("received"),
        sent=middle("sent"),
        left_out=int(max(values("left_out"), default=0)),
    )


def _amount(used: Mapping[str, Any], name: str) -> float | None:
    """Return a field if it is an amount. A person may have changed the file."""
    value = number(used.get(name))
    return value if value is not None and value >= 0 else None


class UseRow(Struct, frozen=True, kw_only=True):
    """What a case used, as text; '' is an empty cell. `short` says why the row is empty."""

    title: str
    memory: str = ""
    cores: str = ""
    gpus: str = ""
    network: str = ""
    short: str = ""


def use_rows(cases: Sequence[CaseSummary]) -> list[UseRow]:
    """Return a row for each case that somebody looked at."""
    return [_row(case.title, case.used) for case in cases if case.used is not None]


def _row(title: str, used: Used) -> UseRow:
    if not used.count:
        return UseRow(title=title, short=TOO_SHORT)
    title += f" (without {plural(used.left_out, 'other host')})" if used.left_out else ""
    of = f" of {used.of_cores:g}" if used.of_cores else ""
    gpus = [words.percent(used.gpus)] if used.gpus is not None else []
    gpus += [_size(used.gpu_memory)] if used.gpu_memory is not None else []
    network = [f"{_size(used.received)} in"] if used.received is not None else []
    network += [f"{_size(used.sent)} out"] if used.sent is not None else []
    return UseRow(
        title=title,
        memory=_size(used.memory) if used.memory is not None else "",
        cores=f"{used.cores:.1f}{of}" if used.cores is not None else "",
        gpus=", ".join(gpus),
        network=", ".join(network),
    )


def _size(count: float | None) -> str:
    return size(round(count or 0))
