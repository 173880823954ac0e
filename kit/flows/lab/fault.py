"""`kit lab fault`: give a lab host a fault that kit doctor names, or take it back."""

from __future__ import annotations

import re
from pathlib import Path

from kit.errors import InputError
from kit.flows.lab.existing import check_folder, open_engine, running_host
from kit.model.lab import LabFaults, LabObjects
from kit.plan import lab as plan
from kit.remote.lab import fault as faults
from kit.remote.lab.engine import LabEngine
from kit.remote.lab.host import RunningHost

ALL = "all"
_FAR_END = re.compile(r"far-end ([0-9]+(?:\.[0-9]+)?[KMG]?bit|none)", re.ASCII | re.IGNORECASE)


def lab_fault(
    host: str,
    fault: str | None = None,
    argument: str = "",
    name: str = "lab",
    *,
    folder: Path,
    mend: bool = False,
) -> LabFaults:
    """Return the faults of a lab host, after giving it one or taking one back. With `mend`, `all` is every fault.

    Raises InputError if there is no such fault or host, NotReadyError if the host does not run, and StepError if it
    cannot have this fault.
    """
    plan.check_name(name)
    plan.check_host_fault(fault, argument, mend=mend, known=faults.names())
    folder = folder.resolve()
    with open_engine() as engine:
        existing = engine.find(name)
        check_folder(name, folder, existing.network)
        container = running_host(name, host, existing, lacks="no faults")
        running = engine.host(container.id, container.host)
        present, _ = _look(running)
        if fault is not None:
            unknown = sorted({*present} - {*faults.names()})
            if fault == ALL and unknown:
                raise InputError(f"this kit cannot mend '{unknown[0]}'", hint="Use the kit that injected it.")
            for chosen in present if fault == ALL else (fault,):
                running.fault(faults.argv("mend" if mend else "inject", chosen, argument))
            present, rate = _look(running)
            if rate is not None:
                _limit_arrivals(engine, existing, running, rate)
        return LabFaults(host=host, faults=present)


def _look(host: RunningHost) -> tuple[tuple[str, ...], str | None]:
    """Return the faults of a host, and the rate to which kit must limit what arrives there, if that has changed."""
    lines = host.fault(faults.argv("list")).splitlines()
    rates = [match[1] for line in lines if (match := _FAR_END.fullmatch(line))]
    return tuple(line for line in lines if not line.startswith("far-end ")), next(iter(rates), None)


def _limit_arrivals(engine: LabEngine, existing: LabObjects, host: RunningHost, rate: str) -> None:
    """Limit what arrives at a host: at the other end of its link, on this machine."""
    engine.shape_links(host.image(), rate, [f"@{host.link()}"], plan.helper_labels(existing))
    host.fault(faults.argv("shaped"))
