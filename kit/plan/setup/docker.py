"""The engine and Compose: installed, configured, started. An engine that works is kept, whatever its age."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from kit.errors import KitError, NotReadyError, StepError
from kit.model.plan import Step
from kit.model.secret import Secret
from kit.model.setup.facts import SetupFacts
from kit.model.setup.paths import DAEMON_JSON, DOCKER_KEY, DOCKER_PROXY, DOCKER_SOURCES
from kit.model.setup.steps import (
    ConfigureEngine,
    InstallPackages,
    RestoreFile,
    StartEngine,
    VerifyEngine,
    WriteSystemFile,
)
from kit.model.spec import SetupSpec
from kit.model.text import plural
from kit.plan.cluster.checks import podman_problem, snap_problem
from kit.plan.setup import daemon, packages
from kit.plan.setup.packages import Repository
from kit.plan.setup.part import Part

# An engine of this age reads its proxies from daemon.json.
_PROXIES_IN_FILE = (23,)
_NO_PROXY = "localhost,127.0.0.0/8,10.0.0.0/8,172.16.0.0/12,192.168.0.0/16"
_LOGIN = re.compile(r"://[^/\s]+@")


def repository(facts: SetupFacts) -> Repository:
    """Return Docker's own repository for this distribution."""
    base = f"https://download.docker.com/linux/{facts.os}"
    text = (
        f"Types: deb\nURIs: {base}\nSuites: {facts.codename}\nComponents: stable\n"
        f"Architectures: {facts.arch}\nSigned-By: {DOCKER_KEY}\n"
    )
    return Repository(
        area="docker",
        whose="Docker's",
        key_url=f"{base}/gpg",
        key=DOCKER_KEY,
        fingerprint="9DC858229FC7DD38854AE2D88D81803C0EBFCD88",
        sources=DOCKER_SOURCES,
        uri=base,
        suite=facts.codename,
        text=text,
    )


def plan(facts: SetupFacts, spec: SetupSpec) -> Part:
    """Return what makes the engine and Compose of a host answer."""
    part = Part()
    problem = _foreign(facts)
    if problem is not None:
        part.problems.append(problem)
        return part
    works = bool(facts.engine and facts.compose)
    if not works:
        unknown = packages.unknown_distribution(facts, "Docker Engine and Compose v2")
        if unknown is not None:
            part.problems.append(unknown)
            return part
    part.steps += _installs(facts, spec)
    try:
        part.steps += _proxy(facts, spec) or daemon.unfinished(facts, "docker") or _unread(facts)
    except KitError as error:
        part.problems.append(error)
    if not facts.engine and not any(isinstance(step, StartEngine) for step in part.steps):
        part.steps.append(StartEngine(area="docker", why=facts.engine_fault or "it is not installed yet"))
    if part.steps:
        part.steps.append(VerifyEngine(why="a deploy needs both"))
    part.problems += needs_no_containers(facts, part.steps)
    return part


def settings_written(facts: SetupFacts, spec: SetupSpec) -> bytes | Secret | None:
    """Return the daemon.json that the steps of this area write, or None if they write none."""
    return next((step.content for step in plan(facts, spec).steps if isinstance(step, ConfigureEngine)), None)


def _unread(facts: SetupFacts) -> list[Step]:
    """Return the step that lets the engine read settings which a killed kit wrote; [] without them."""
    if not facts.engine or "engine" not in facts.unfinished:
        return []
    return [StartEngine(area="docker", why="kit was killed before it read its settings", restart=True)]


def _restarts(step: Step) -> bool:
    """Return whether the step ends running containers. dpkg restarts an engine that it replaces."""
    return (isinstance(step, ConfigureEngine | StartEngine) and step.restart) or (
        isinstance(step, InstallPackages) and bool({"docker.io", "docker-ce"} & set(step.packages))
    )


def needs_no_containers(facts: SetupFacts, steps: Sequence[Step], *, then: str = "kit setup") -> list[KitError]:
    """Return the error if containers run that these steps would harm, else []. `then` is the command to repeat."""
    if not facts.running or not any(_restarts(step) for step in steps):
        return []
    if not facts.live_restore:
        reason, other = "kit setup would restart the engine, which ends", ", or set live-restore"
        return [containers_run(facts, reason, other=other, then=then)]
    # Live-restore does not help against a reload. The script that restarts the engine reloads if the unit is stale.
    changes = any(isinstance(step, WriteSystemFile | RestoreFile) and step.path == DOCKER_PROXY for step in steps)
    if changes or facts.stale_engine:
        reason = "systemd must reload to read the engine's unit again, which can take the GPUs from"
        return [containers_run(facts, reason, then=then)]
    return []


def containers_run(facts: SetupFacts, reason: str, *, other: str = "", then: str = "kit setup") -> NotReadyError:
    """Return the error for containers that prevent a step. `reason` ends with a verb, whose object they are.

    `other` is what helps besides stopping them, and `then` the command to repeat.
    """
    name = facts.host.name
    runs, them = ("runs", "it") if facts.running == 1 else ("run", "them")
    hint = f"stop {them} (kit down, or kit ssh {name} -- sudo docker ps){other}"
    if not facts.engine:
        # It can neither list containers nor stop them, nor say whether it has live-restore.
        look = f"kit ssh {name} -- pgrep -a containerd-shim"
        hint = f"the engine does not answer, so look at {them}: {look}; stop {them}, or restart the engine yourself"
    return NotReadyError(
        f"{plural(facts.running, 'container')} {runs}, and {reason} {them}", hint=f"{hint}; then: {then}", host=name
    )


def _foreign(facts: SetupFacts) -> StepError | None:
    """Return the error for a docker that kit must not touch."""
    name = facts.host.name
    if "/snap/" in f"{facts.docker}/" or facts.docker.endswith("/snap"):
        return snap_problem(name)
    if facts.podman or "podman-docker" in facts.packages:
        return podman_problem(name)
    return None


def _installs(facts: SetupFacts, spec: SetupSpec) -> list[Step]:
    """Return the steps that install what is missing, from where the rest came, or from where kit.yaml says."""
    return [*_ip(facts), *_engine(facts, spec)]


def _ip(facts: SetupFacts) -> list[Step]:
    """Return the step that installs `ip`. It lists the loopback at least, so no address means no `ip`."""
    why = "its addresses cannot be read without ip"
    return [] if facts.interfaces else [InstallPackages(area="docker", packages=("iproute2",), why=why)]


def _engine(facts: SetupFacts, spec: SetupSpec) -> list[Step]:
    has = facts.packages
    engine = bool({"docker.io", "docker-ce", "moby-engine"} & has.keys()) or bool(facts.engine)
    if engine and facts.compose:
        return []
    if not engine:
        own = spec.docker == "docker.com" or (spec.docker == "auto" and not packages.has_compose(facts))
        if own:
            names = ("docker-ce", "docker-ce-cli", "containerd.io", "docker-compose-plugin")
            why = "it has no engine" + ("" if spec.docker == "docker.com" else f", and {facts.name} has no Compose v2")
            return [*repository(facts).steps(facts), InstallPackages(area="docker", packages=names, why=why)]
        distributed = (*packages.engine_packages(facts), packages.compose_package(facts), "ca-certificates", "iptables")
        return [InstallPackages(area="docker", packages=distributed, why="it has no engine")]
    why = "it has no Compose v2"
    if "moby-engine" in has:
        # Microsoft's packages, on images of Azure. Those of others conflict with them.
        return [InstallPackages(area="docker", packages=("moby-compose",), why=why)]
    if "docker-ce" in has or not packages.has_compose(facts):
        steps = [] if "docker-ce" in has else repository(facts).steps(facts)
        return [*steps, InstallPackages(area="docker", packages=("docker-compose-plugin",), why=why)]
    missing = [name for name in packages.engine_packages(facts)[1:] if name not in has]
    return [InstallPackages(area="docker", packages=(packages.compose_package(facts), *missing), why=why)]


def proxies(spec: SetupSpec) -> dict[str, Any]:
    """Return the engine's settings for the proxy of kit.yaml, {} without one."""
    if spec.proxy is None:
        return {}
    return {"proxies": {"http-proxy": spec.proxy, "https-proxy": spec.proxy, "no-proxy": spec.no_proxy or _NO_PROXY}}


def _proxy(facts: SetupFacts, spec: SetupSpec) -> list[Step]:
    """Return the steps that tell the engine its proxy. Raises StepError for a daemon.json that kit cannot read."""
    wanted = proxies(spec)
    file = facts.files.get(DAEMON_JSON)
    # A link is somebody's way to manage the file. Without something to change, kit leaves it alone.
    settings = daemon.settings_of(facts) if wanted or (file is not None and file.content is not None) else {}
    if not wanted:
        return []
    why = "kit.yaml has setup.proxy"
    if (
        facts.engine
        and packages.major(facts.engine.split("+")[0].split("-")[0])[:1] < _PROXIES_IN_FILE
        and facts.systemd
    ):
        # systemd replaces what follows a single %.
        lines = "".join(
            f'Environment="{key.upper().replace("-", "_")}={value.replace("%", "%%")}"\n'
            for key, value in wanted["proxies"].items()
        )
        text = f"[Service]\n{lines}".encode()
        if facts.has(DOCKER_PROXY, text, "600"):
            return []
        content = Secret(text) if _LOGIN.search(text.decode()) else text
        return [
            WriteSystemFile(area="docker", path=DOCKER_PROXY, content=content, mode="600", why=why),
            StartEngine(area="docker", why="it reads its proxy when it starts", restart=True),
        ]
    keys = daemon.missing(settings, wanted)
    if not keys:
        return []
    content = daemon.text_of(facts, daemon.merged(settings, wanted))
    return [
        ConfigureEngine(
            area="docker", content=content, keys=("proxies",), restart=True, why=why, seen=daemon.seen(facts)
        )
    ]
