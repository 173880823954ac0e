"""How a node gets its host's GPUs from the engine. The engine's own conditions decide, not the name of a runtime.

The engine has the device driver `nvidia` if nvidia-container-runtime-hook was on dockerd's PATH when it started. It has
the driver `cdi` if it reads CDI files. Swarm knows neither: there the default runtime must be NVIDIA's.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Literal

from kit.errors import StepError
from kit.model.observed import Gpu, GpuEngine, HostFacts
from kit.model.plan import VerifyGpus
from kit.model.pretended import marked
from kit.model.spec import ClusterSpec
from kit.model.text import fold

# A driver of Compose's devices. `runtime`: the engine's default runtime adds the GPUs. "": the host has no GPU.
Driver = Literal["", "cdi", "nvidia"]
SwarmDriver = Literal["", "runtime"]
RESTART = "sudo systemctl restart docker"
_INSTALL = (
    "install it: kit setup --only toolkit (Debian and Ubuntu); elsewhere, install nvidia-container-toolkit "
    "(https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html), then: "
)
# A GPU or a MIG device in a CDI file, by the --device-name-strategy of nvidia-ctk: 0 and 0:1, gpu0 and mig0:1, UUIDs.
_CDI_FORM = re.compile(r"(?:gpu)?[0-9]+|(?:mig)?[0-9]+:[0-9]+|(?:GPU|MIG)-.+")
# How many ranges and single GPUs a note names.
_MOST_GPUS = 8
# How many processes kit ps names on a host.
_MOST_PROCESSES = 4
# The programs of NVIDIA's toolkit that can be a runtime of the engine.
_RUNTIMES = ("nvidia-container-runtime", "nvidia-container-runtime.cdi", "nvidia-container-runtime.legacy")


def compose_driver(facts: HostFacts) -> Driver | StepError:
    """Return the driver that gives a host's GPUs to a container of Compose, or what prevents it.

    CDI comes first: a `systemctl daemon-reload` takes the GPUs from containers that got them by the hook.
    """
    engine = facts.gpu_engine
    if not facts.gpus:
        return ""
    if _cdi_covers(facts):
        return "cdi"
    if engine.hook and (not engine.hook_newer or _has_node(facts)):
        return "nvidia"
    return _problem(facts)


def file_driver(facts: HostFacts) -> Driver:
    """Return the driver for a Compose file, as if the engine had no problem."""
    driver = compose_driver(facts)
    return "nvidia" if isinstance(driver, StepError) else driver


def swarm_driver(facts: HostFacts) -> SwarmDriver | StepError:
    """Return how a task of Swarm gets a host's GPUs, or what prevents it."""
    engine = facts.gpu_engine
    if not facts.gpus:
        return ""
    if engine.runtimes.get(engine.default_runtime, "").rpartition("/")[2] in _RUNTIMES:
        return "runtime"
    if engine.snap:
        return _snap(facts)
    if not (engine.hook or engine.runtime):
        return _missing(facts)
    return _error(
        facts,
        f"the engine's default runtime is {engine.default_runtime or 'runc'}: Swarm cannot request another, and ranks "
        "would see no GPU",
        'set "default-runtime": "nvidia" in /etc/docker/daemon.json: sudo nvidia-ctk runtime configure '
        f"--runtime=docker --set-as-default; then: {RESTART}; or set orchestrator: compose",
    )


def hook_problem(facts: HostFacts) -> str:
    """Return what takes the GPUs of a running node away, or "". Only Compose's nodes get them by the hook alone."""
    engine = facts.gpu_engine
    if engine.cgroup_driver != "systemd" or compose_driver(facts) != "nvidia":
        return ""
    return "its nodes get GPUs by NVIDIA's hook, and the engine's cgroup driver is systemd"


def lost(facts: HostFacts, env: Mapping[str, str]) -> str:
    """Return what a running node lacks of its host's GPUs, or "". `env` may choose other GPUs for all nodes."""
    if facts.node_gpus is None or not facts.gpus or "NVIDIA_VISIBLE_DEVICES" in env:
        return ""
    text = unseen(usable(facts), facts.node_gpus, facts.node_gpu_fault)
    return marked(text, models_of(facts))


def unseen(host: Sequence[str], node: Container[str], fault: str) -> str:
    """Return which of the host's GPUs its node does not see, or "". `fault` is what nvidia-smi prints in the node."""
    missing = [uuid for uuid in host if uuid not in node]
    if not missing:
        return ""
    cause = fault or f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
    return f"the node sees {len(host) - len(missing)} of the host's {len(host)} GPUs: {cause}"


def models_of(facts: HostFacts) -> tuple[str, ...]:
    """Return the names of the host's GPUs, each once."""
    return tuple(dict.fromkeys(gpu.name for gpu in facts.gpus))


def usable(facts: HostFacts) -> tuple[str, ...]:
    """Return the UUIDs of what the host's ranks can use: its GPUs, and with MIG the MIG devices of a GPU.

    A GPU that has MIG on and no MIG device counts as itself.
    """
    return tuple(uuid for gpu in facts.gpus for uuid in gpu.mig or (gpu.uuid,))


def gpus_of(facts: HostFacts, among: Container[str] | None = None) -> int:
    """Return how many GPUs the host's ranks can use, of those with these UUIDs or of all.

    With MIG, a GPU counts as its MIG devices.
    """
    return sum(1 if gpu.mig is None else len(gpu.mig) for gpu in facts.gpus if among is None or gpu.uuid in among)


def too_few(facts: HostFacts) -> str:
    """Return the note about a host with fewer GPUs than its hosts file says slots, or ""."""
    count, slots = gpus_of(facts), facts.host.slots
    if not count or slots is None or count >= slots:
        return ""
    text = f"{count} GPU{'s' if count > 1 else ''} and slots={slots} in the hosts file: ranks share GPUs"
    return marked(text, models_of(facts))


def unsplit(facts: HostFacts) -> str:
    """Return the note about GPUs that have MIG on and no MIG device, or "". A restart of the host removes them."""
    bare = [f"GPU {gpu.index}" for gpu in facts.gpus if gpu.mig == ()]
    if not bare:
        return ""
    text = f"MIG is on without a MIG device, so no rank can use {fold(bare, most=_MOST_GPUS)}"
    return marked(text, models_of(facts))


def notes(facts: HostFacts, spec: ClusterSpec) -> tuple[str, ...]:
    """Return what is wrong with a host's GPUs, for kit ps."""
    lacks = lost(facts, spec.env)
    others = [
        f"a program that kit did not start uses {process.gpu}: {process.command or 'a program'} (PID {process.pid} of "
        f"{process.user})"
        for process in facts.gpu_processes or ()
        if process.cluster != spec.name
    ]
    fault = f"nvidia-smi prints: {facts.gpu_fault}" if facts.gpu_fault else ""
    bare = unsplit(facts)
    texts = [f"{lacks}; run: kit deploy" if lacks else "", fault, bare, too_few(facts), *others[:_MOST_PROCESSES]]
    return tuple(marked(text, models_of(facts)) for text in texts if text)


def verify_gpus(spec: ClusterSpec, facts: HostFacts) -> VerifyGpus | None:
    """Return the step that compares the GPUs of a node that starts with those of its host, if it has any."""
    if not facts.gpus or "NVIDIA_VISIBLE_DEVICES" in spec.env:
        return None
    return VerifyGpus(
        cluster=spec.name,
        gpus=usable(facts),
        models=models_of(facts),
        why="ranks need all of them",
    )


def _cdi_covers(facts: HostFacts) -> bool:
    """Return whether the engine's CDI devices are all GPUs of the host, with the files of its present driver."""
    engine = facts.gpu_engine
    if not engine.cdi_enabled or "all" not in engine.cdi:
        return False
    if engine.cdi_driver and facts.driver and engine.cdi_driver != facts.driver:
        return False
    # A file that somebody wrote by hand may have only the device `all`.
    devices = set(engine.cdi) - {"all"}
    forms = [form for gpu in facts.gpus for form in _cdi_forms(gpu, devices)]
    return not devices or (all(devices.intersection(form) for form in forms) and not _gone(facts))


def _cdi_forms(gpu: Gpu, devices: Iterable[str]) -> list[set[str]]:
    """Return the CDI names of a GPU, or of each of its MIG devices, of which the file must have one.

    After MIG devices were made again, their numbers may be the same, and their UUIDs are not.
    """
    if gpu.mig is None:
        return [{*cdi_names(str(gpu.index)), gpu.uuid}]
    if any(name.startswith("MIG-") for name in devices):
        return [{uuid} for uuid in gpu.mig]
    return [{*cdi_names(f"{gpu.index}:{number}"), uuid} for number, uuid in enumerate(gpu.mig)]


def cdi_names(number: str) -> tuple[str, str]:
    """Return the CDI names of a GPU (0) or a MIG device (0:1) by this number; nvidia-ctk can write the type before."""
    return number, f"mig{number}" if ":" in number else f"gpu{number}"


def _gone(facts: HostFacts) -> tuple[str, ...]:
    """Return the CDI devices that the host no longer has: a container that gets `all` does not start then.

    While nvidia-smi complains, a GPU that it does not list may still have its device node.
    """
    if facts.gpu_fault or any(gpu.index < 0 for gpu in facts.gpus):
        return ()
    whole = {name for gpu in facts.gpus for name in (*cdi_names(str(gpu.index)), gpu.uuid)}
    parts = {name for gpu in facts.gpus for form in _cdi_forms(gpu, ()) for name in form}
    return tuple(name for name in facts.gpu_engine.cdi if _CDI_FORM.fullmatch(name) and name not in whole | parts)


def _has_node(facts: HostFacts) -> bool:
    """Return whether a node of kit runs: it has the GPUs, so the engine knew the hook before an upgrade changed it."""
    return any(container.running for container in facts.containers)


def _problem(facts: HostFacts) -> StepError:
    """Return why the engine cannot give its GPUs to a container."""
    engine = facts.gpu_engine
    if engine.snap:
        return _snap(facts)
    if engine.hook:
        return _error(
            facts,
            f"{engine.hook} is newer than the running engine, which looks for it only at its start",
            f"restart the engine: {RESTART}",
        )
    if engine.cdi_enabled and engine.cdi:
        return _error(facts, _stale(engine, facts), f"write the CDI file again: {generate(engine)}")
    if engine.toolkit_base_only:
        return _error(
            facts,
            "only the package nvidia-container-toolkit-base is installed: it has no nvidia-container-runtime-hook, "
            "which the engine needs",
            f"sudo apt-get install nvidia-container-toolkit (or: dnf install …), then: {RESTART}",
        )
    return _missing(facts)


def _snap(facts: HostFacts) -> StepError:
    return _error(
        facts,
        "the engine is a snap, which cannot give GPUs to containers",
        "replace it by Docker's packages (https://docs.docker.com/engine/install/); "
        "removing the snap deletes its images and volumes",
    )


def _missing(facts: HostFacts) -> StepError:
    return _error(facts, "the engine cannot give them to containers without NVIDIA's toolkit", _INSTALL + RESTART)


def generate(engine: GpuEngine) -> str:
    """Return the command that writes the CDI file again, in the folder from which the engine takes it."""
    return f"sudo nvidia-ctk cdi generate --output={engine.cdi_folder or '/etc/cdi'}/nvidia.yaml"


def _stale(engine: GpuEngine, facts: HostFacts) -> str:
    if engine.cdi_driver and facts.driver and engine.cdi_driver != facts.driver:
        return f"the engine's CDI file is for the driver {engine.cdi_driver}, and the host has {facts.driver}"
    if gone := _gone(facts):
        return f"the engine's CDI file has devices that the host no longer has: {', '.join(gone)}"
    return f"the engine's CDI devices are {', '.join(engine.cdi)}, and not all of them"


def _error(facts: HostFacts, text: str, hint: str) -> StepError:
    return StepError(f"{len(facts.gpus)} × {facts.gpus[0].name}, but {text}", hint=hint, host=facts.host.name)
