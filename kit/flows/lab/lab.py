"""`kit lab up`, `status`, `link-rate`, `gpu` and `down`: a cluster of VM-like hosts on this machine.

`up` completes what exists of the same lab, so the next one finishes what a killed one began. An `up` that fails, or
that Ctrl-C stops, removes the lab if it had begun it.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from kit.errors import InputError, Interrupted, KitError, NotReadyError, UnreachableError
from kit.events import Note, Reporter, Warned
from kit.flows.image.base import Consent
from kit.flows.lab.existing import check_folder, open_engine, running_host, start_command, up_command
from kit.flows.lab.make import make
from kit.model.lab import (
    LabGpus,
    LabHost,
    LabObjects,
    LabRemoved,
    LabSpec,
    LabStatus,
    network_name,
)
from kit.plan import lab as plan
from kit.plan import labshape
from kit.remote.lab import access
from kit.remote.lab.engine import LabEngine
from kit.remote.machine import docker_context, prepare
from kit.remote.machine.interrupts import Interrupts

# The pretended GPUs have the numbers of NVIDIA's devices, which a real driver would answer.
_DRIVER = Path("/proc/driver/nvidia/version")


def _ensure_engine(reporter: Reporter, consent: Consent | None) -> None:
    """Install and start an engine on this machine if none answers and the person agrees."""
    try:
        LabEngine().close()
    except UnreachableError as error:
        command = prepare.command_line("engine")
        question = (
            f"{error.message}\nkit can start one as root, and install the distribution's (docker.io, about 250 MB) if "
            f"it is missing: {command}\nDo that now?"
        )
        # DOCKER_HOST and docker's contexts name an engine that is not ours to install.
        if docker_context.choice(os.environ) or consent is None or not consent(question):
            raise
        failure = prepare.run("engine", on_line=lambda line: reporter.report(Note(text=line)))
        if failure is not None:
            raise UnreachableError(
                f"no Docker Engine could be started: {failure}", hint=f"by hand: {command}"
            ) from error


def lab_status(name: str = "lab", *, folder: Path) -> LabStatus:
    """Return the lab as the engine has it; `hosts` is empty if there is no lab."""
    plan.check_name(name)
    with open_engine() as engine:
        return _status(name, folder, engine.find(name))


def lab_up(spec: LabSpec, *, folder: Path, reporter: Reporter, consent: Consent | None = None) -> LabStatus:
    """Make, complete or start the lab, and wait until the sshd and the engine of each host answer.

    `consent` is asked before kit installs an engine or makes a base image; None means no. Raises InputError if there
    is a lab of another shape or folder, or if hosts or kit.yaml are not the lab's.
    """
    plan.check(spec)
    if spec.gpus and _DRIVER.exists():
        raise InputError(
            "this machine has a real NVIDIA driver, and the lab cannot pretend GPUs beside it",
            hint="Make the lab on a machine without a driver, or without --gpus.",
        )
    folder = folder.resolve()
    # First, because an engine and its images take minutes.
    access.require_client()
    _ensure_engine(reporter, consent)
    with open_engine() as engine:
        existing = engine.find(spec.name)
        _check_same(spec, folder, existing)
        missing = set(plan.names(spec)) - {c.host for c in existing.containers if c.state == "running"}
        if not missing and access.read(access.known_hosts_path(folder)):
            reporter.report(Note(text=f"The lab '{spec.name}' is up already: {spec.shape}. Nothing to do."))
            return _status(spec.name, folder, existing)
        _check_files(spec.name, folder, begun=not existing.empty)
        begun = threading.Event()
        try:
            make(engine, spec, folder, existing, reporter, begun=begun, consent=consent)
        except (KitError, KeyboardInterrupt) as error:
            # The image takes minutes. Meanwhile another `lab up` may have made this lab, which is not ours to remove.
            if existing.empty and begun.is_set():
                # A second Ctrl-C, or a terminal that is gone, must not leave half of the lab.
                with Interrupts():
                    reporter.report(Warned(text="Removing the unfinished lab."))
                    try:
                        _remove(engine, spec.name, folder)
                    except KitError as left:
                        # The first failure is the one to report.
                        reporter.report(_left_over(left, _down(spec.name)))
            if isinstance(error, KeyboardInterrupt):
                raise Interrupted(
                    "the lab was not finished", hint=f"Run it again: {up_command(spec.name, spec.shape)}"
                ) from error
            raise
        return _status(spec.name, folder, engine.find(spec.name), changed=True)


def lab_link_rate(rate: str, name: str = "lab", *, folder: Path) -> LabStatus:
    """Change the rate of each link of an existing lab, in both directions; `none` removes the limit.

    A host that is stopped and started has the lab's first rate again. Raises InputError if this is not a rate, and
    NotReadyError if a host of the lab does not run.
    """
    plan.check_name(name)
    if rate != "none":
        try:
            plan.check_rate(rate)
        except InputError as error:
            raise InputError(error.message, hint=f"{plan.RATE_WORDS}, or none for no limit.") from error
    folder = folder.resolve()
    with open_engine() as engine:
        existing = engine.find(name)
        check_folder(name, folder, existing.network)
        stopped = [container.host for container in existing.containers if container.state != "running"]
        if not existing.containers or stopped:
            what = f"{stopped[0]} does not run" if stopped else "there is no such lab"
            raise NotReadyError(
                f"the links of the lab '{name}' cannot be limited: {what}",
                hint=f"Start it: {start_command(name, existing)}",
            )
        labels = plan.helper_labels(existing)
        nics = 1 + len(existing.more_nics)
        running = [engine.host(container.id, container.host) for container in existing.containers]
        devices = [f"@{host.link(nic)}" for host in running for nic in range(nics)]
        devices += [engine.bridge(network_name(name, nic)) for nic in range(nics)]
        engine.shape_links(running[0].image(), rate, devices, labels)
        for host in running:
            host.shape_own_links(rate, nics)
        return _status(name, folder, existing, changed=True)


def lab_gpu(
    host: str, name: str = "lab", *, folder: Path, number: int = 0, fault: str | None = None, mend: bool = False
) -> LabGpus:
    """Return the pretended GPUs of a lab host, after giving GPU `number` a fault or repairing all of the host's faults.

    Raises InputError if there is no such fault or host, NotReadyError if the host does not run or has no pretended
    GPUs, and StepError if the GPU cannot have this fault.
    """
    plan.check_name(name)
    if fault is not None:
        plan.check_fault(fault)
        if mend:
            raise InputError("--fault and --mend contradict each other", hint="Mend first, then give the fault.")
    folder = folder.resolve()
    with open_engine() as engine:
        existing = engine.find(name)
        check_folder(name, folder, existing.network)
        container = running_host(name, host, existing, lacks="no GPUs", options=" --gpus 2")
        if existing.network and "PRETENDED" not in existing.network.shape:
            raise NotReadyError(
                f"the lab '{name}' has no GPUs", hint=f"Recreate it: {_down(name)}, then {up_command(name)} --gpus 2"
            )
        argv = ["mend", "all"] if mend else ["fault", str(number), fault] if fault else ["show"]
        return engine.host(container.id, host).pretended_gpus(argv)


def lab_down(name: str = "lab", *, folder: Path) -> LabRemoved:
    """Remove all of the lab, and its files in `folder`. A file that a person changed stays.

    Raises InputError if the lab belongs to another folder that still exists.
    """
    plan.check_name(name)
    folder = folder.resolve()
    with open_engine() as engine:
        existing = engine.find(name)
        check_folder(name, folder, existing.network)
        return _remove(engine, name, folder)


def _status(name: str, folder: Path, existing: LabObjects, *, changed: bool = False) -> LabStatus:
    network = existing.network
    return LabStatus(
        name=name,
        folder=Path(network.folder) if network and network.folder else folder,
        network=str(network.subnet) if network else "",
        shape=network.shape if network else "",
        hosts=tuple(LabHost(name=c.host, address=c.address, state=c.state) for c in existing.containers),
        changed=changed,
    )


def _check_same(spec: LabSpec, folder: Path, existing: LabObjects) -> None:
    check_folder(spec.name, folder, existing.network)
    network = existing.network
    if network and network.shape != spec.shape:
        raise InputError(
            f"a lab '{spec.name}' of another shape exists: {network.shape}",
            hint=f"{_same(spec.name, network.shape)}Take it down first ({_down(spec.name)}), or make another one: "
            f"{_elsewhere(spec.name + '2')}.",
        )
    # A killed `up` may have made the network alone. Then no host has the old key.
    if existing.containers and not access.key_path(folder).exists():
        raise InputError(
            f"the login key of the lab '{spec.name}' is gone: {access.key_path(folder)}",
            hint=f"Recreate the lab: {_down(spec.name)}, then kit lab up.",
        )


def _same(name: str, shape: str) -> str:
    """Return how to complete or start the existing lab, which the hint begins with."""
    return "" if labshape.options(shape) is None else f"Start or complete it: {up_command(name, shape)}. "


def _down(name: str) -> str:
    return "kit lab down" if name == LabSpec().name else f"kit lab down --name {name}"


def _left_over(error: KitError, down: str) -> Warned:
    """Return the warning about an unfinished lab that could not be removed. `down` is the command that does."""
    hint = error.hint if error.hint and down in error.hint else f"Remove it: {down}"
    return Warned(text=f"The unfinished lab is still there: {error.message}", hint=hint)


def _elsewhere(name: str) -> str:
    return f"mkdir {name} && cd {name} && {up_command(name)}"


def _files(folder: Path) -> tuple[Path, Path]:
    return folder / "hosts", folder / "kit.yaml"


def _check_files(name: str, folder: Path, *, begun: bool) -> None:
    """Refuse to overwrite a person's files, those of another lab, or the lab's own once a person has changed them."""
    for path in _files(folder):
        text = access.read(path)
        owner = "ours" if text is None else plan.whose(text)
        if text is not None and (other := plan.lab_of(text)) not in (None, name):
            raise InputError(
                f"this folder has the files of the lab '{other}', and two labs need two folders",
                file=str(path),
                hint=f"Use another folder: {_elsewhere(name)}. Or, without the other lab: {_down(str(other))}",
            )
        if owner == "foreign":
            raise InputError(
                "this file is not the lab's, and the lab would overwrite it",
                file=str(path),
                hint="Use a separate folder for the lab: mkdir lab && kit -C lab lab up",
            )
        if owner == "edited" and not begun:
            raise InputError(
                "this file was changed after an earlier lab wrote it",
                file=str(path),
                hint="Move it out of the way, or remove it.",
            )


def _remove(engine: LabEngine, name: str, folder: Path) -> LabRemoved:
    existing = engine.find(name)
    engine.remove(existing, again=_down(name))
    files, kept = [], []
    another = False
    for path in _files(folder):
        text = access.read(path)
        owner = "foreign" if text is None else plan.whose(text)
        if text is not None and plan.lab_of(text) not in (None, name):
            another = True
        elif owner == "edited":
            kept.append(path)
        elif owner == "ours" and access.remove(path):
            files.append(path)
    if not another:
        files += [p for p in (access.key_path(folder), access.known_hosts_path(folder)) if access.remove(p)]
        access.remove_empty(folder)
    return LabRemoved(
        name=name,
        containers=len(existing.containers) + len(existing.helpers),
        volumes=len(existing.volumes),
        networks=len(existing.networks),
        files=tuple(files),
        kept=tuple(kept),
    )
