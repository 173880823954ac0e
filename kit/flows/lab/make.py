"""The making of a lab: image, network, files and hosts, side by side, until each host's sshd and engine answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path

from kit.errors import HostsFailed, KitError, StepError, UnreachableError
from kit.events import HostDone, HostFailed, HostStep, Phase, Reporter
from kit.model.lab import HostContainer, LabFound, LabSpec
from kit.plan import lab as plan
from kit.remote.lab import access
from kit.remote.lab import image as lab_image
from kit.remote.lab.engine import LabEngine
from kit.remote.machine.interrupts import Interrupts

READY_TIMEOUT_S = 120.0
_POLL_S = 0.15


def make(engine: LabEngine, spec: LabSpec, folder: Path, found: LabFound, reporter: Reporter) -> None:
    """Completes what was found of the lab. Raises KitError where it cannot; what was made until then stays.

    Ctrl-C raises KeyboardInterrupt once nothing is being made any more: all that there is can be found, and taken away.
    """
    content = lab_image.content()
    reporter.report(Phase(name="Lab image"))
    lab_image.ensure(engine.client, content, reporter)
    public_key = access.make_key(folder, spec.name)
    with Interrupts() as interrupts:
        subnet = found.network.subnet if found.network else _new_network(engine, spec, folder)
        hosts = plan.host_containers(spec, folder=str(folder), image=content.tag, subnet=subnet, public_key=public_key)
        _write_files(folder, spec, subnet)

        states = {c.host: c.state for c in found.containers}
        reporter.report(Phase(name="Lab hosts", hosts=plan.names(spec)))
        each = partial(_each, hosts, reporter, interrupts)
        keys = each(lambda host, stop: _boot(engine, host, states.get(host.host), reporter, stop))
        pinned = plan.known_hosts_text((host.address, key) for host, key in zip(hosts, keys, strict=True))
        access.write(access.known_hosts_path(folder), pinned)
        if spec.link_rate:
            devices = [f"@{engine.link(host.container, host.host)}" for host in hosts]
            # This machine's own link: what it sends to all hosts together.
            devices.append(engine.bridge(plan.network_name(spec.name)))
            engine.shape_links(content.tag, spec.link_rate, devices, plan.labels(spec, str(folder)))
        each(lambda host, stop: _ready(engine, host, stop, folder=folder, user=spec.user, reporter=reporter))


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
    reporter: Reporter,
    interrupts: Interrupts,
    work: Callable[[HostContainer, threading.Event], str | None],
) -> list[str]:
    """Does the work on all hosts side by side. The first failure stops the others, and all failures are told.

    Ctrl-C stops them too, and is raised when they have ended.
    """
    stop = threading.Event()
    with ThreadPoolExecutor(max_workers=min(16, len(hosts))) as pool:
        futures = [pool.submit(work, host, stop) for host in hosts]
        while not interrupts.count and not _settled(futures):
            pass
        # Threads that wait must end before anything is taken away.
        stop.set()
    if interrupts.count:
        raise KeyboardInterrupt
    failures = [e for f in futures if isinstance(e := f.exception(), KitError)]
    for failure in failures:
        reporter.report(HostFailed(host=failure.host or "", text=failure.message, hint=failure.hint))
    real = [f for f in failures if f.message != "was stopped"] or failures
    if len(real) == 1:
        raise real[0]
    if real:
        raise HostsFailed(f"{len(real)} hosts of the lab did not come up", real)
    return [future.result() or "" for future in futures]


def _settled(futures: list[Future[str | None]]) -> bool:
    """Waits a moment; whether all are done, or one has failed."""
    done, waiting = wait(futures, timeout=_POLL_S, return_when=FIRST_EXCEPTION)
    return not waiting or any(future.exception() for future in done)
