"""What a lab host has of NVIDIA's container toolkit, which decides how its engine can give a container GPUs."""

import json
import os
import shutil
import signal
import subprocess
import time
from typing import Any, Dict

from pretended.container import CONTROL, PROGRAM, nodes
from pretended.state import FOLDER, State

HOOK = "/usr/bin/nvidia-container-runtime-hook"
RUNTIME = "/usr/bin/nvidia-container-runtime"
DAEMON = "/etc/docker/daemon.json"
CDI = "/etc/cdi/nvidia.yaml"
# Where Docker's snap keeps its images. It is empty, so the engine has no image and no container.
SNAP = "/var/snap/docker/common/var-lib-docker"
# NVIDIA's files name their driver by its libraries. The host's is empty, and no program opens a library by this name.
_LIBRARY = "/usr/lib/x86_64-linux-gnu/libcuda.so.%s"
_PID = "/run/docker.pid"
_PATIENCE_S = 60

# What the engine calls its GPUs where it advertises them to a swarm: NVIDIA's documentation has this name.
RESOURCE = "NVIDIA-GPU"

# hook: the package, and no configuration. runtime: also Docker's default runtime, for Swarm. swarm: the engine also
# advertises its GPUs. cdi: the hook and a CDI file. base: the package nvidia-container-toolkit-base with a configured
# runtime, but no hook. snap: Docker looks as if it were a snap, which sees no program of the host. none: nothing.
KINDS = ("hook", "runtime", "swarm", "cdi", "base", "snap", "none")


def daemon_json(state: State, kind: str) -> Dict[str, Any]:
    """Return the engine's configuration."""
    runtimes = {"nvidia": {"path": "nvidia-container-runtime", "runtimeArgs": []}}
    if kind == "runtime":
        return {"default-runtime": "nvidia", "runtimes": runtimes}
    if kind == "swarm":
        advertised = ["%s=%s" % (RESOURCE, state.uuid(number)) for number in range(state.total)]
        return {**daemon_json(state, "runtime"), "node-generic-resources": advertised}
    if kind == "base":
        return {"runtimes": runtimes}
    if kind == "snap":
        return {"data-root": SNAP}
    return {"features": {"cdi": True}} if kind == "cdi" else {}


def cdi(state: State) -> Dict[str, Any]:
    """Return the CDI file: each GPU by number and by UUID, and all."""

    def device(name: str, numbers: "list[int]") -> Dict[str, Any]:
        added = [path for path, _, _ in nodes(numbers)[len(CONTROL) :]]
        return {"name": name, "containerEdits": {"deviceNodes": [{"path": path} for path in added]}}

    options = ["ro", "nosuid", "nodev", "rbind", "rprivate"]
    program = os.path.join(FOLDER, "bin", "nvidia-smi")
    library = _LIBRARY % state.driver
    return {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "devices": [
            *(device(str(number), [number]) for number in range(state.total)),
            *(device(state.uuid(number), [number]) for number in range(state.total)),
            device("all", list(range(state.total))),
        ],
        "containerEdits": {
            "env": ["NVIDIA_VISIBLE_DEVICES=void"],
            "deviceNodes": [{"path": path} for path, _, _ in CONTROL],
            "mounts": [
                {"hostPath": FOLDER, "containerPath": FOLDER, "options": options},
                {"hostPath": program, "containerPath": PROGRAM, "options": options},
                {"hostPath": library, "containerPath": library, "options": options},
            ],
        },
    }


def install(state: State, kind: str) -> None:
    """Give the host this much of the toolkit. An engine that runs has read its configuration already."""
    _program(HOOK, kind in ("hook", "runtime", "swarm", "cdi"))
    _program(RUNTIME, kind not in ("snap", "none"))
    _write(DAEMON, daemon_json(state, kind))
    with open(_LIBRARY % state.driver, "a"):
        pass
    _write(CDI, cdi(state) if kind == "cdi" else {})


def restart() -> None:
    """Restart the engine, which images/lab/init keeps running. Its containers end."""
    with open(_PID) as file:
        old = int(file.read())
    os.kill(old, signal.SIGTERM)
    deadline = time.monotonic() + _PATIENCE_S
    while os.path.exists("/proc/%d" % old) or not _answers():
        if time.monotonic() > deadline:
            raise SystemExit("the engine did not come back within %d s" % _PATIENCE_S)
        time.sleep(0.2)


def _answers() -> bool:
    return not subprocess.call(["docker", "version"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _program(path: str, wanted: bool) -> None:
    """Install the program, or remove it. It is a copy, so that its time shows when it was installed."""
    if os.path.lexists(path):
        os.remove(path)
    if wanted:
        shutil.copy(os.path.join(FOLDER, "bin", os.path.basename(path)), path)


def _write(path: str, content: Dict[str, Any]) -> None:
    """Write the file as JSON, which is also YAML. Remove it if it has no content."""
    if content:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            json.dump(content, file, indent=2)
            file.write("\n")
    elif os.path.exists(path):
        os.remove(path)
