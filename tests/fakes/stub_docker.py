"""A `docker` on PATH for the real scripts: an engine whose state is one file of JSON. It does what the scripts need.

docker WORD...   KIT_STUB_ENGINE names the file. An unknown command ends with exit code 64.
"""

from __future__ import annotations

import json
import os
import sys

# A script calls it many times: it imports as little as it can.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

# What a manager keeps of each kind.
HELD = {"node": "members", "service": "services", "secret": "secrets"}
TOKEN = "SWMTKN-1-s3cret"
NO_ENGINE = "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"


def end(message: str, code: int = 1) -> NoReturn:
    sys.stderr.write(f"{message}\n")
    sys.exit(code)


def option(words: list[str], name: str) -> list[str]:
    """Return the values of an option."""
    return [value for word, value in zip(words, words[1:], strict=False) if word == name]  # noqa: RUF007


def matches(labels: dict[str, str], words: list[str]) -> bool:
    for rule in option(words, "--filter"):
        key, equals, value = rule.removeprefix("label=").partition("=")
        if key not in labels or (equals and labels[key] != value):
            return False
    return True


def show(lines: list[str]) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def containers(state: dict[str, Any], words: list[str]) -> None:
    matching = [c for c in state["containers"] if matches(c["labels"], words) and (c["running"] or "--all" in words)]
    if "--quiet" in words:
        show([c["name"] for c in matching])
        return
    show(
        [
            json.dumps(
                {
                    "Names": c["name"],
                    "Labels": ",".join(f"{name}={value}" for name, value in c["labels"].items()),
                    "State": "running" if c["running"] else "exited",
                    "Status": "Up 2 hours" if c["running"] else "Exited (137) 2 hours ago",
                    "Image": c["image"],
                }
            )
            for c in matching
        ]
    )


def inspect(state: dict[str, Any], name: str, form: str) -> None:
    container = next((c for c in state["containers"] if c["name"] == name), None)
    if container is None:
        end(f"Error: No such object: {name}")
    status = "running:0" if container["running"] else "exited:3"
    show([f"/{name}" if "Name" in form else status])


def swarm(state: dict[str, Any], words: list[str]) -> None:
    if words[0] == "init":
        state["swarm"] = {"node": "n1", "manager": True, "members": {"n1": {}}, "services": {}, "secrets": {}}
        show([f"docker swarm join --token {TOKEN}"])
    elif words[0] == "leave":
        state["swarm"] = None


def join(state: dict[str, Any], request: dict[str, str]) -> None:
    """What the image's Python does for a VM without one: it hands the request to the engine."""
    if not state["join"] or request["JoinToken"] != TOKEN:
        end('{"message":"rpc error: code = Unavailable desc = connection error"}')
    state["swarm"] = {"node": "n5", "manager": False, "members": {}, "services": {}, "secrets": {}}


def member_command(state: dict[str, Any], kind: str, words: list[str]) -> None:
    if state["swarm"] is None or not state["swarm"]["manager"]:
        end("Error response from daemon: This node is not a swarm manager.")
    held: dict[str, dict[str, Any]] = state["swarm"][
        {"node": "members", "service": "services", "secret": "secrets"}[kind]
    ]
    match words:
        case ["ls", "--format", form] if "keeps secret" in form:
            show([f"keeps secret {name}" if "kit.cluster" not in body["labels"] else "" for name, body in held.items()])
        case ["ls", *rest] if "--format" in rest:
            show([f"{name} {'Ready' if body.get('up', True) else 'Down'}" for name, body in held.items()])
        case ["ls", *rest]:
            show([name for name, body in held.items() if matches(body.get("labels", {}), rest)])
        case ["inspect", "--format", form, *names]:
            for name in (state["swarm"]["node"] if name == "self" else name for name in names):
                if name not in held:
                    end(f"Error: no such {kind}: {name}")
                show([shown(kind, name, held[name].get("labels", {}), form)])
        case ["rm", name]:
            del held[name]
        case ["update", *rest]:
            labels = held[rest[-1]].setdefault("labels", {})
            for pair in option(rest, "--label-add"):
                key, _, value = pair.partition("=")
                labels[key] = value
            for key in option(rest, "--label-rm"):
                del labels[key]
        case _:
            end(f"the stub has no docker {kind} {words}", 64)


def shown(kind: str, name: str, labels: dict[str, str], form: str) -> str:
    if "range" in form:
        return " ".join([name, *labels])
    if "index" in form:
        return labels.get(form.split('"')[1], "")
    if "json" not in form:
        return name
    if kind == "node":
        return json.dumps([name, {"Labels": labels, "Availability": "active"}, name, {"State": "ready", "Addr": ""}])
    return json.dumps([name, labels])


def info(state: dict[str, Any], form: str) -> None:
    held = state["swarm"]
    fields = {
        "LocalNodeState": "active" if held else "inactive",
        "NodeID": held["node"] if held else "",
        "ControlAvailable": bool(held and held["manager"]),
        "RemoteManagers": None,
    }
    for name, value in fields.items():
        if form == f"{{{{.Swarm.{name}}}}}":
            show([json.dumps(value).strip('"')])
            return
    if "RemoteManagers" in form:
        manager = json.dumps(fields["ControlAvailable"])
        show([f"{manager} {fields['LocalNodeState']} {fields['NodeID']}"])
        return
    if "DockerRootDir" in form:
        show([state["root"]])
        return
    if not state.get("described", True):
        end("the client is not to describe the engine", 64)
    plugins = {"Plugins": [{"Name": "compose", "Version": "2.26.1"}]}
    whole = {"ServerVersion": "26.1.5", "Runtimes": {"runc": {}}, "ClientInfo": plugins, "Swarm": fields}
    show([json.dumps(whole, separators=(",", ":"))])


def image(state: dict[str, Any], words: list[str]) -> None:
    match words:
        case ["inspect", *_, name] if name in state["images"]:
            show([state["images"][name]])
        case ["inspect", *_, name]:
            end(f"Error: No such image: {name}")
        case ["rm", *_, name]:
            del state["images"][name]


def container(state: dict[str, Any], words: list[str]) -> None:
    """Do what concerns containers. It is the last to be asked: any other command is an error."""
    match words:
        case ["ps", *rest]:
            containers(state, rest)
        case ["inspect", "--format", form, name]:
            inspect(state, name, form)
        case ["inspect", name]:
            inspect(state, name, "")
        case ["rm", *_, name]:
            state["containers"] = [c for c in state["containers"] if c["name"] != name]
        case ["logs", *_]:
            show(["sshd: no hostkeys available"])
        case ["compose", *_] if not state["compose"]:
            end("Error response from daemon: failed to create shim task: OCI runtime create failed")
        case ["exec", name, *_] if not any(c["name"] == name and c["running"] for c in state["containers"]):
            end(f"Error response from daemon: No such container: {name}")
        case ["compose" | "exec", *_] | ["network" | "config", "ls", *_]:
            pass
        case _:
            end(f"the stub has no docker {words}", 64)


def main() -> None:
    path = os.environ["KIT_STUB_ENGINE"]
    with open(path) as file:  # noqa: PTH123
        state = json.load(file)
    before = json.dumps(state)
    if not state["answers"]:
        end(NO_ENGINE)
    match sys.argv[1:]:
        case ["info", "--format", form]:
            info(state, form)
        case ["image", *rest]:
            image(state, rest)
        case ["swarm", *rest]:
            swarm(state, rest)
        case ["node" | "service" | "secret" as kind, *rest]:
            member_command(state, kind, rest)
        case ["run", *_]:
            join(state, json.loads(sys.stdin.read()))
        case words:
            container(state, words)
    after = json.dumps(state)
    if after != before:
        with open(path, "w") as file:  # noqa: PTH123
            file.write(after)


if __name__ == "__main__":
    main()
