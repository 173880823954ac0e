"""NVIDIA's container toolkit, and the engine's runtime, on hosts that have a GPU on the PCI bus."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kit.errors import KitError, StepError
from kit.model.setup.areas import Area
from kit.model.setup.facts import SetupFacts
from kit.model.setup.paths import NVIDIA_KEY, NVIDIA_SOURCES
from kit.model.setup.steps import ConfigureEngine, InstallPackages, VerifyEngine
from kit.model.spec import ClusterSpec
from kit.plan.setup import daemon, docker, packages
from kit.plan.setup.packages import Repository
from kit.plan.setup.part import Part


def toolkit_repository(facts: SetupFacts) -> Repository:
    """Return NVIDIA's repository of the container toolkit. It is the same for all distributions."""
    base = "https://nvidia.github.io/libnvidia-container"
    return Repository(
        area="toolkit",
        whose="NVIDIA's",
        key_url=f"{base}/gpgkey",
        key=NVIDIA_KEY,
        fingerprint="C95B321B61E88C1809C4F759DDCAE044F796ECB0",
        sources=NVIDIA_SOURCES,
        uri=f"{base}/stable/deb/{facts.arch}",
        suite="/",
        text=f"Types: deb\nURIs: {base}/stable/deb/{facts.arch}\nSuites: /\nSigned-By: {NVIDIA_KEY}\n",
    )


def toolkit(facts: SetupFacts, spec: ClusterSpec, areas: tuple[Area, ...]) -> Part:
    """Return what lets the engine give GPUs to containers. Swarm requests no runtime, so its engines need a default."""
    part = Part()
    if not facts.gpus_on_bus:
        return part
    if not facts.engine and "docker" not in areas:
        part.problems.append(
            StepError(
                "NVIDIA's toolkit needs an engine, and none answers",
                hint="set up both: kit setup --only docker,toolkit",
                host=facts.host.name,
            )
        )
        return part
    if "nvidia-container-toolkit" not in facts.packages and not facts.toolkit:
        problem = packages.unknown_distribution(facts, "NVIDIA's container toolkit")
        if problem is not None:
            part.problems.append(problem)
            return part
        install = InstallPackages(
            area="toolkit", packages=("nvidia-container-toolkit",), why="the engine cannot give GPUs to containers"
        )
        part.steps += [*toolkit_repository(facts).steps(facts), install]
    try:
        settings = daemon.settings_of(facts)
    except KitError as error:
        part.problems.append(error)
        return part
    # The round before may have written the proxy. An engine before 23 gets it by its unit, and refuses it in the file.
    written = docker.settings_written(facts, spec.setup) if "docker" in areas else None
    settings = daemon.merged(settings, docker.proxies(spec.setup) if written is not None else {})
    wanted = _runtime(settings, swarm=spec.orchestrator == "swarm")
    if wanted:
        content = daemon.text_of(facts, daemon.merged(settings, wanted))
        keys = tuple("runtimes.nvidia" if key == "runtimes" else key for key in wanted)
        why = "the engine does not know the runtime nvidia"
        if "runtimes" not in wanted:
            why = "Swarm gives GPUs only by the engine's default runtime"
        seen = daemon.seen(facts, written)
        part.steps += [
            ConfigureEngine(area="toolkit", content=content, keys=keys, restart=True, why=why, seen=seen),
            VerifyEngine(why="the engine was restarted"),
        ]
    elif "docker" not in areas:
        part.steps += daemon.unfinished(facts, "toolkit")
    part.problems += docker.needs_no_containers(facts, part.steps)
    return part


def _runtime(settings: Mapping[str, Any], *, swarm: bool) -> dict[str, Any]:
    """Return what daemon.json lacks for GPUs. A default runtime that somebody chose stays: the deploy names it."""
    runtimes = settings.get("runtimes")
    known = isinstance(runtimes, dict) and "nvidia" in runtimes
    default = swarm and settings.get("default-runtime", "runc") == "runc"
    return {**({} if known else daemon.NVIDIA_RUNTIME), **({"default-runtime": "nvidia"} if default else {})}
