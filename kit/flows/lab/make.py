"""Make a lab: its image, network, files and hosts, until the sshd and the engine of each host answer."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import closing
from functools import partial
from pathlib import Path

from kit.errors import HostsFailed, KitError, NotReadyError, StepError, UnreachableError
from kit.events import HostDone, HostFailed, HostStep, Phase, Reporter
from kit.flows.image.base import Consent, bring_bases
from kit.flows.image.build import report_steps
from kit.flows.image.content import locked_bases
from kit.model.image import ImageContent
from kit.model.lab import HostContainer, LabObjects, LabSpec, network_name
from kit.plan import lab as plan
from kit.plan.bases import pin_bases
from kit.plan.image import needed_bases
from kit.remote.engine.client import Engine
from kit.remote.lab import access
from kit.remote.lab import image as lab_image
from kit.remote.lab.engine import LabEngine, reaches
from kit.remote.machine import docker_context
from kit.remote.machine.interrupts import Interrupts
from kit.remote.machine.trust import elsewhere, extra_certificates, proxy_arguments

READY_TIMEOUT_S = 120.0
_POLL_S = 0.15


def make(
    engine: LabEngine,
    spec: LabSpec,
    folder: Path,
    existing: LabObjects,
    reporter: Reporter,
    *,
    begun: threading.Event,
    consent: Consent | None = None,
) -> None:
    """Complete what exists of the lab. On a KitError, what was made until then stays.

    Sets `begun` once this call has created a network of the lab. Before that, it has made nothing of the lab.

    Ctrl-C raises KeyboardInterrupt once all threads have ended: then all that exists can be found and removed.
    """
    bare = lab_image.bare_content(spec.system, plan.SYSTEMS[spec.system]) if spec.bare else None
    reporter.report(Phase(name="Lab image"))
    content = _build(bare or lab_image.content(), reporter, consent)
    with Interrupts() as interrupts:
        subnets = _networks(engine, spec, folder, existing, begun)
        _check_reachable(subnets)
        public_key = access.make_key(folder, spec.name)
        hosts = plan.host_containers(
            spec,
            folder=str(folder),
            image=content.tag,
            subnets=subnets,
            public_key=public_key,
            proxies=elsewhere(proxy_arguments(os.environ)),
            certificates=extra_certificates(os.environ) if spec.bare else b"",
        )
        _write_files(folder, spec, subnets[0])

        if spec.link_rate:
            # Hosts that start have unlimited links at first. If this ends before the links are limited, the next
            # `lab up` must see that they are not.
            access.remove(access.known_hosts_path(folder))
        states = {c.host: c.state for c in existing.containers}
        reporter.report(Phase(name="Lab hosts", hosts=plan.names(spec)))
        on_each = partial(_on_each, hosts, reporter, interrupts)
        keys = on_each(lambda host, stop: _boot(engine, host, states.get(host.host), reporter, stop))
        if spec.link_rate:
            running = [engine.host(host.container, host.host) for host in hosts]
            devices = [f"@{host.link(nic)}" for host in running for nic in range(spec.nics)]
            # This machine's own link: what it sends to all hosts together.
            devices += [engine.bridge(network_name(spec.name, nic)) for nic in range(spec.nics)]
            engine.shape_links(content.tag, spec.link_rate, devices, plan.labels(spec, str(folder)))
        pinned = plan.known_hosts_text((host.address, key) for host, key in zip(hosts, keys, strict=True))
        access.write(access.known_hosts_path(folder), pinned)
        on_each(lambda host, stop: _ready(engine, host, stop, folder=folder, spec=spec, reporter=reporter))


def _build(unpinned: ImageContent, reporter: Reporter, consent: Consent | None) -> ImageContent:
    """Build the image of the lab's hosts, unless the engine has it. Return what it is made of."""
    task = "lab image"
    content = pin_bases(unpinned, locked_bases())
    with closing(Engine.connect()) as engine:
        if engine.image(content.tag) is not None:
            return content
        if bring_bases(engine, needed_bases(content), task=task, reporter=reporter, consent=consent):
            content = pin_bases(unpinned, locked_bases())
            if engine.image(content.tag) is not None:
                return content
        proxies = elsewhere(proxy_arguments(os.environ))
        engine.build(content, beside={}, arguments=proxies, on_step=report_steps(reporter, task))
    reporter.report(HostDone(host=task, text=f"built {content.tag}"))
    return content


def _networks(
    engine: LabEngine, spec: LabSpec, folder: Path, existing: LabObjects, begun: threading.Event
) -> list[plan.IPv4Network]:
    """Return the network of each NIC. Create those that are missing.

    The engine has one network of each name. So of several `lab up` of one lab, only one begins it.
    """
    known = [*([existing.network] if existing.network else []), *existing.more_nics]
    subnets = {network.name: network.subnet for network in known}
    names = [network_name(spec.name, nic) for nic in range(spec.nics)]
    for name in names:
        if name not in subnets:
            subnets[name] = _new_network(engine, spec, folder, name)
            begun.set()
    return [subnets[name] for name in names]


def _new_network(engine: LabEngine, spec: LabSpec, folder: Path, name: str) -> plan.IPv4Network:
    for subnet in plan.candidates(engine.taken_subnets()):
        if engine.create_network(name, subnet, plan.labels(spec, str(folder))):
            return subnet
    raise StepError(
        "no network is free for the lab: every candidate overlaps a network of this machine",
        hint="Remove unused Docker networks: docker network prune; or end a VPN that has all of 10.0.0.0/8 and "
        "192.168.0.0/16: ip route",
    )


def _check_reachable(subnets: list[plan.IPv4Network]) -> None:
    """Raise NotReadyError if the engine's networks are not this machine's: ssh would never reach the hosts."""
    for subnet in subnets:
        if not reaches(subnet):
            chosen = docker_context.choice(os.environ)
            raise NotReadyError(
                f"this machine has no route to the lab's network {subnet}: the engine runs in a virtual machine "
                "(Docker Desktop, Colima), on another machine or without root",
                hint="Use an engine that root runs on this machine itself" + (f": {chosen.undo}" if chosen else "."),
            )


def _write_files(folder: Path, spec: LabSpec, subnet: plan.IPv4Network) -> None:
    for path, text in (
        (folder / "hosts", plan.hosts_text(spec, subnet)),
        (folder / "kit.yaml", plan.kit_yaml_text(spec, subnet)),
    ):
        current = access.read(path)
        if current is None or plan.whose(current) == "ours":
            access.write(path, text)


def _boot(engine: LabEngine, host: HostContainer, state: str | None, reporter: Reporter, stop: threading.Event) -> str:
    """Start the host, wait for its host key, and return the public half."""
    # A killed `up` may have created the container, and not what it needs before its first start.
    if state in (None, "created"):
        reporter.report(HostStep(host=host.host, text="making", fraction=0.0))
        engine.create(host)
    if state != "running":
        reporter.report(HostStep(host=host.host, text="starting", fraction=0.2))
        engine.start(host)

    running = engine.host(host.container, host.host)

    def key() -> str | None:
        running.alive()
        return running.public_host_key()

    return _until(key, "no host key appeared", host.host, stop)


def _ready(
    engine: LabEngine, host: HostContainer, stop: threading.Event, *, folder: Path, spec: LabSpec, reporter: Reporter
) -> None:
    waits_for, ask, otherwise, says = (
        ("sshd and the end of its boot", access.booted, "it has not booted", "no engine, {}")
        if spec.bare
        else ("sshd and the engine", access.engine_version, "its engine does not answer", "engine {}")
    )
    reporter.report(HostStep(host=host.host, text=f"waiting for {waits_for}", fraction=0.5))
    running = engine.host(host.container, host.host)
    refused = ""

    def answer() -> str | None:
        nonlocal refused
        running.alive()
        try:
            answer = ask(folder, host.address, spec.user)
        except UnreachableError as error:
            refused = error.message
            return None
        refused = "" if answer else otherwise
        return answer

    try:
        text = _until(answer, "it did not answer", host.host, stop)
    except StepError as error:
        if refused and error.hint is None:
            hint = f"See: docker logs {host.container}"
            raise StepError(f"{error.message}: {refused}", host=host.host, hint=hint) from error
        raise
    reporter.report(HostDone(host=host.host, text=f"{host.address}, {says.format(text)}"))


def _until(probe: Callable[[], str | None], otherwise: str, host: str, stop: threading.Event) -> str:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline:
        if (answer := probe()) is not None:
            return answer
        if stop.wait(_POLL_S):
            raise StepError("was stopped", host=host)
    raise StepError(f"{otherwise} within {READY_TIMEOUT_S:.0f} s", host=host)


def _on_each(
    hosts: tuple[HostContainer, ...],
    reporter: Reporter,
    interrupts: Interrupts,
    work: Callable[[HostContainer, threading.Event], str | None],
) -> list[str]:
    """Call `work` for all hosts side by side. The first failure stops the others. All failures are reported.

    Ctrl-C stops them too, and is raised when they have ended.
    """
    stop = threading.Event()
    with ThreadPoolExecutor(max_workers=min(16, len(hosts))) as pool:
        futures = [pool.submit(work, host, stop) for host in hosts]
        while not interrupts.count and not _settled(futures):
            pass
        # Threads that wait must end before anything is removed.
        stop.set()
    if interrupts.count:
        raise KeyboardInterrupt
    failures = [e for f in futures if isinstance(e := f.exception(), KitError)]
    for failure in failures:
        if failure.host is None:
            # It is about this machine, so all hosts have it.
            raise failure
        reporter.report(HostFailed(host=failure.host, text=failure.message, hint=failure.hint))
    causes = [f for f in failures if f.message != "was stopped"] or failures
    if len(causes) == 1:
        raise causes[0]
    if causes:
        raise HostsFailed(f"{len(causes)} hosts of the lab did not come up", causes)
    return [future.result() or "" for future in futures]


def _settled(futures: list[Future[str | None]]) -> bool:
    """Wait a moment, then return whether all are done, or one has failed."""
    done, waiting = wait(futures, timeout=_POLL_S, return_when=FIRST_EXCEPTION)
    return not waiting or any(future.exception() for future in done)
