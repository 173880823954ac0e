"""`kit lab up`, `status` and `down`: a cluster of VM-like hosts on this machine.

Up completes whatever it finds of the same lab, so one that was killed is finished by the next. One that fails, or that
Ctrl-C stops, takes away the lab again if it had begun it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path

from kit.errors import HostsFailed, InputError, Interrupted, KitError, StepError, UnreachableError
from kit.events import HostDone, HostFailed, HostStep, Note, Phase, Reporter, Warned
from kit.model.lab import HostContainer, LabFound, LabHost, LabNetwork, LabRemoved, LabSpec, LabStatus
from kit.plan import lab as plan
from kit.remote import lab_access as access
from kit.remote import lab_image
from kit.remote.lab import LabEngine

READY_TIMEOUT_S = 120.0
_POLL_S = 0.15


@contextlib.contextmanager
def _engine() -> Iterator[LabEngine]:
    engine = LabEngine()
    try:
        yield engine
    finally:
        engine.close()


def lab_status(name: str = "lab", *, folder: Path) -> LabStatus:
    """The lab as the engine has it; `hosts` is empty when there is none."""
    with _engine() as engine:
        return _status(name, folder, engine.find(name))


def lab_up(spec: LabSpec, *, folder: Path, reporter: Reporter) -> LabStatus:
    """Makes, completes or starts the lab, and waits until each host's sshd and engine answer.

    Raises InputError when there is a lab of another shape or folder, or when hosts or kit.yaml are not the lab's.
    """
    plan.check(spec)
    folder = folder.resolve()
    with _engine() as engine:
        found = engine.find(spec.name)
        _check_same(spec, folder, found)
        missing = set(plan.names(spec)) - {c.host for c in found.containers if c.state == "running"}
        if not missing and access.read(access.known_hosts_path(folder)):
            reporter.report(Note(text=f"The lab '{spec.name}' is up already: {spec.shape}. Nothing to do."))
            return _status(spec.name, folder, found)
        _check_files(folder, begun=not found.empty)
        try:
            _make(engine, spec, folder, found, reporter)
        except (KitError, KeyboardInterrupt) as error:
            if found.empty:
                reporter.report(Warned(text="Taking away what was begun of the lab."))
                _remove(engine, spec.name, folder)
            if isinstance(error, KeyboardInterrupt):
                raise Interrupted("the lab was not finished", hint="Run `kit lab up` again.") from error
            raise
        return _status(spec.name, folder, engine.find(spec.name), changed=True)


def lab_down(name: str = "lab", *, folder: Path, reporter: Reporter) -> LabRemoved:
    """Takes away all of the lab, and its files in `folder`; a file that was changed since is kept.

    Raises InputError when the lab belongs to another folder that still stands.
    """
    folder = folder.resolve()
    with _engine() as engine:
        found = engine.find(name)
        _check_folder(name, folder, found.network)
        removed = _remove(engine, name, folder)
    if removed.empty:
        reporter.report(Note(text=f"There is no lab '{name}'. Nothing to do."))
    for path in removed.kept:
        reporter.report(Warned(text=f"{path} was changed since the lab wrote it, and is kept."))
    return removed


def _status(name: str, folder: Path, found: LabFound, *, changed: bool = False) -> LabStatus:
    network = found.network
    return LabStatus(
        name=name,
        folder=Path(network.folder) if network and network.folder else folder,
        network=str(network.subnet) if network else "",
        shape=network.shape if network else "",
        hosts=tuple(LabHost(name=c.host, address=c.address, state=c.state) for c in found.containers),
        changed=changed,
    )


def _check_folder(name: str, folder: Path, network: LabNetwork | None) -> None:
    if network and Path(network.folder) != folder and Path(network.folder).is_dir():
        raise InputError(
            f"the lab '{name}' belongs to the folder {network.folder}",
            hint=f"Go there, or write: kit -C {network.folder} lab …",
        )


def _check_same(spec: LabSpec, folder: Path, found: LabFound) -> None:
    _check_folder(spec.name, folder, found.network)
    network = found.network
    if network and network.shape != spec.shape:
        raise InputError(
            f"there is a lab '{spec.name}' of another shape: {network.shape}",
            hint=f"Take it down first ({_down(spec.name)}), or give this one a name of its own: --name {spec.name}2.",
        )
    if network and not access.key_path(folder).exists():
        raise InputError(
            f"the login key of the lab '{spec.name}' is gone: {access.key_path(folder)}",
            hint=f"Make the lab anew: {_down(spec.name)}, then kit lab up.",
        )


def _down(name: str) -> str:
    return "kit lab down" if name == LabSpec().name else f"kit lab down --name {name}"


def _check_files(folder: Path, *, begun: bool) -> None:
    """A person's own hosts or kit.yaml is never written over; nor is the lab's, once a person has changed it."""
    for path in (folder / "hosts", folder / "kit.yaml"):
        text = access.read(path)
        owner = "ours" if text is None else plan.whose(text)
        if owner == "foreign":
            raise InputError(
                "this file is not the lab's, and the lab would write over it",
                file=str(path),
                hint="Give the lab a folder of its own: mkdir lab && kit -C lab lab up",
            )
        if owner == "edited" and not begun:
            raise InputError(
                "this file was changed since an earlier lab wrote it",
                file=str(path),
                hint="Move it out of the way, or remove it.",
            )


def _make(engine: LabEngine, spec: LabSpec, folder: Path, found: LabFound, reporter: Reporter) -> None:
    content = lab_image.content()
    reporter.report(Phase(name="Lab image"))
    lab_image.ensure(engine.client, content, reporter)
    public_key = access.make_key(folder, spec.name)
    subnet = found.network.subnet if found.network else _new_network(engine, spec, folder)
    hosts = plan.host_containers(spec, folder=str(folder), image=content.tag, subnet=subnet, public_key=public_key)
    _write_files(folder, spec, subnet)

    states = {c.host: c.state for c in found.containers}
    reporter.report(Phase(name="Lab hosts", hosts=plan.names(spec)))
    keys = _each(hosts, lambda host, stop: _boot(engine, host, states.get(host.host), reporter, stop), reporter)
    pinned = plan.known_hosts_text((host.address, key) for host, key in zip(hosts, keys, strict=True))
    access.write(access.known_hosts_path(folder), pinned)
    if spec.link_rate:
        links = [engine.link(host.container, host.host) for host in hosts]
        engine.shape_links(content.tag, spec.link_rate, links, plan.labels(spec, str(folder)))
    _each(
        hosts, lambda host, stop: _ready(engine, host, stop, folder=folder, user=spec.user, reporter=reporter), reporter
    )


def _new_network(engine: LabEngine, spec: LabSpec, folder: Path) -> plan.IPv4Network:
    for subnet in plan.candidates(engine.taken_subnets()):
        if engine.create_network(plan.network_name(spec.name), subnet, plan.labels(spec, str(folder))):
            return subnet
    raise StepError(
        "no network is free for the lab: all that it would take overlap this machine's own",
        hint="Remove Docker networks that are not used: docker network prune",
    )


def _write_files(folder: Path, spec: LabSpec, subnet: plan.IPv4Network) -> None:
    for path, text in (
        (folder / "hosts", plan.hosts_text(spec, subnet)),
        (folder / "kit.yaml", plan.kit_yaml_text(spec, subnet)),
    ):
        standing = access.read(path)
        if standing is None or plan.whose(standing) == "ours":
            access.write(path, text)


def _boot(engine: LabEngine, host: HostContainer, state: str | None, reporter: Reporter, stop: threading.Event) -> str:
    """Brings the host to the point where it has a host key, and returns the public half."""
    if state is None:
        reporter.report(HostStep(host=host.host, text="making", fraction=0.0))
        engine.create(host)
    if state != "running":
        reporter.report(HostStep(host=host.host, text="starting", fraction=0.2))
        engine.start(host.container, host.host)

    def key() -> str | None:
        engine.alive(host.container, host.host)
        return engine.public_host_key(host.container, host.host)

    return _until(key, "its host key was not made", host.host, stop)


def _ready(
    engine: LabEngine, host: HostContainer, stop: threading.Event, *, folder: Path, user: str, reporter: Reporter
) -> None:
    reporter.report(HostStep(host=host.host, text="waiting for sshd and the engine", fraction=0.5))
    refused = ""

    def answer() -> str | None:
        nonlocal refused
        engine.alive(host.container, host.host)
        try:
            version = access.engine_version(folder, host.address, user)
        except UnreachableError as error:
            refused = error.message
            return None
        refused = "" if version else "its engine does not answer"
        return version

    try:
        version = _until(answer, "it did not answer", host.host, stop)
    except StepError as error:
        if refused and error.hint is None:
            hint = f"See: docker logs {host.container}"
            raise StepError(f"{error.message}: {refused}", host=host.host, hint=hint) from error
        raise
    reporter.report(HostDone(host=host.host, text=f"{host.address}, engine {version}"))


def _until(probe: Callable[[], str | None], otherwise: str, host: str, stop: threading.Event) -> str:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline:
        if (got := probe()) is not None:
            return got
        if stop.wait(_POLL_S):
            raise StepError("was stopped", host=host)
    raise StepError(f"{otherwise} within {READY_TIMEOUT_S:.0f} s", host=host)


def _each(
    hosts: tuple[HostContainer, ...],
    work: Callable[[HostContainer, threading.Event], str | None],
    reporter: Reporter,
) -> list[str]:
    """Does the work on all hosts side by side. The first failure stops the others; all are told."""
    stop = threading.Event()
    with ThreadPoolExecutor(max_workers=min(16, len(hosts))) as pool:
        futures = [pool.submit(work, host, stop) for host in hosts]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
        finally:
            # Reached by Ctrl-C, too: threads that wait must end before anything is taken away.
            stop.set()
    failures = [e for f in futures if isinstance(e := f.exception(), KitError)]
    for failure in failures:
        reporter.report(HostFailed(host=failure.host or "", text=failure.message, hint=failure.hint))
    real = [f for f in failures if f.message != "was stopped"] or failures
    if len(real) == 1:
        raise real[0]
    if real:
        raise HostsFailed(f"{len(real)} hosts of the lab did not come up", real)
    return [future.result() or "" for future in futures]


def _remove(engine: LabEngine, name: str, folder: Path) -> LabRemoved:
    found = engine.find(name)
    engine.remove(found)
    files, kept = [], []
    for path in (folder / "hosts", folder / "kit.yaml"):
        text = access.read(path)
        owner = "foreign" if text is None else plan.whose(text)
        if owner == "edited":
            kept.append(path)
        elif owner == "ours" and access.remove(path):
            files.append(path)
    files += [p for p in (access.key_path(folder), access.known_hosts_path(folder)) if access.remove(p)]
    access.remove_empty(folder)
    return LabRemoved(
        name=name,
        containers=len(found.containers) + len(found.helpers),
        volumes=len(found.volumes),
        networks=int(found.network is not None) + len(found.other_networks),
        files=tuple(files),
        kept=tuple(kept),
    )
