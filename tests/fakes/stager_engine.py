"""A `docker` for the scripts of kit data: its containers are stagers, which run as processes of this machine.

KIT_STUB_ROOT is the root folder of the host. In its folder `engine`, `node` exists while a node of the cluster does,
`program` is the argv of kit-data, `containers` has a file for each stager, and `restarts` a line for each restart of
the node.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(os.environ.get("KIT_STUB_ROOT", "/nonexistent"))
ENGINE = ROOT / "engine"
NODE = "4711node"


def end(message: str, code: int = 1) -> NoReturn:
    sys.stderr.write(f"{message}\n")
    sys.exit(code)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def stagers(engine: Path = ENGINE) -> dict[str, dict[str, Any]]:
    """Return the containers that run, by name. The others are removed when they end."""
    found = {path.name: json.loads(path.read_text()) for path in (engine / "containers").glob("kit-*")}
    return {name: one for name, one in found.items() if is_alive(one["pid"])}


def values(words: list[str], option: str) -> list[str]:
    return [words[at + 1] for at, word in enumerate(words) if word == option]


def ps(words: list[str]) -> None:
    filters = values(words, "--filter")
    if any(rule.startswith("label=kit.cluster") for rule in filters):
        if (ENGINE / "node").exists():
            sys.stdout.write(f"{NODE}\n")
        return
    for name, one in stagers().items():
        if all(rule in ("label=kit.data", "status=running", f"label=kit.data={one['data']}") for rule in filters):
            if "--format" not in words:
                sys.stdout.write(f"{name}\n")
            elif "{{.ID}}" in values(words, "--format")[0]:
                sys.stdout.write(f"{name} {one['data']}\n")
            else:
                sys.stdout.write(f"{one['data']}\n")


def inspect(form: str, names: list[str]) -> None:
    name = names[-1]
    if "kit.data.options" in form:
        # Of the node, and of the stager if it runs.
        for _ in names[:-1]:
            sys.stdout.write("sha256:1f true  0 \n")
        one = stagers().get(name)
        if one is not None:
            # The stub's stagers have the root of this machine, where their socket is not.
            sys.stdout.write(f"sha256:1f true {one['data']} {one['pid']} {one['options']}\n")
    elif "State.Pid" in form:
        # Of a node that runs, a test writes the process.
        sys.stdout.write((ENGINE / "node_pid").read_text() if (ENGINE / "node_pid").exists() else "0")
    else:
        sys.stdout.write("/kit-lab-mpihead\n" if name == NODE else f"/{name}\n")


def environ(folder: str) -> dict[str, str]:
    socket = ENGINE / "socket"
    return {**os.environ, "KIT_DATA_FOLDER": folder, "KIT_DATA_SOCKET": f"{socket}-{Path(folder).name}"}


def run(words: list[str]) -> None:
    # Only here: these programs start a thousand times, and seldom to run one.
    import subprocess  # noqa: PLC0415

    name = values(words, "--name")[0]
    if name in stagers():
        end(f'Conflict. The container name "/{name}" is already in use')
    labels = dict(label.split("=", 1) for label in values(words, "--label"))
    folder = values(words, "--volume")[0].split(":")[0]
    argv = [*json.loads((ENGINE / "program").read_text()), "serve"]
    with (ENGINE / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            argv, env=environ(folder), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    (ENGINE / "containers").mkdir(exist_ok=True)
    (ENGINE / "runs").open("a").write(json.dumps(words) + "\n")
    new = ENGINE / "containers" / f".{name}"
    options = labels["kit.data.options"]
    new.write_text(json.dumps({"pid": process.pid, "data": labels["kit.data"], "options": options, "folder": folder}))
    new.rename(ENGINE / "containers" / name)


def remove(name: str) -> None:
    one = stagers().get(name)
    if one is None:
        end(f"Error: No such container: {name}")
    os.killpg(one["pid"], signal.SIGKILL)
    while is_alive(one["pid"]):
        time.sleep(0.005)


def execute(name: str, words: list[str]) -> None:
    one = stagers().get(name)
    if one is None:
        end(f"Error response from daemon: No such container: {name}")
    argv = [*json.loads((ENGINE / "program").read_text()), *words]
    os.execve(argv[0], argv, environ(one["folder"]))  # noqa: S606  (an argv, no shell)


def main() -> None:
    match sys.argv[1:]:
        case ["ps", *words]:
            ps(words)
        case ["inspect", "--format", form, "--type", "container", *names] | ["inspect", "--format", form, *names]:
            inspect(form, names)
        case ["restart", name]:
            (ENGINE / "restarts").open("a").write(f"{name}\n")
        case ["run", *words]:
            run(words)
        case ["rm", *_, name] if name != NODE:
            remove(name)
        case ["rm", *_]:
            (ENGINE / "node").unlink()
        case ["exec", "--interactive", name, "kit-data", "order", *words]:
            execute(name, ["order", *words])
        case ["network" | "image", "ls", *_] | ["info", *_]:
            pass
        case words:
            end(f"the stub has no docker {words}", 64)


if __name__ == "__main__":
    main()
