"""Swarm in memory: members, services, secrets, and the tasks that follow from them at once. FakeVM answers with it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

from kit.model.names import MEMBER
from kit.remote.ssh.transport import Completed

if TYPE_CHECKING:
    from tests.fakes.vm import FakeVM

TOKEN = "SWMTKN-1-s3cret"


@dataclass
class Member:
    id: str
    vm: FakeVM
    labels: dict[str, str] = field(default_factory=dict)
    up: bool = True
    availability: str = "active"


@dataclass
class FakeSwarm:
    """`services` maps a name to its definition in the stack file; `secrets` to (labels, content).

    `promoted` are managers beside the first.
    """

    manager: FakeVM
    members: dict[str, Member] = field(default_factory=dict)
    services: dict[str, dict[str, Any]] = field(default_factory=dict)
    secrets: dict[str, tuple[dict[str, str], bytes]] = field(default_factory=dict)
    promoted: list[FakeVM] = field(default_factory=list)

    def manages(self, vm: FakeVM) -> bool:
        return vm is self.manager or any(vm is one for one in self.promoted)

    def add(self, vm: FakeVM) -> str:
        number = vm.fleet.next_id()
        self.members[number] = Member(id=number, vm=vm)
        vm.swarm, vm.node_id = self, number
        return number

    def wanted(self, member: Member) -> dict[str, dict[str, Any]]:
        services = {}
        for name, body in self.services.items():
            (rule,) = body["deploy"]["placement"]["constraints"]
            key, _, value = rule.removeprefix("node.labels.").partition(" == ")
            if member.up and member.labels.get(key) == value:
                services[name] = body
        return services

    def reconcile(self) -> None:
        for member in self.members.values():
            wanted = self.wanted(member)
            specs = {body["labels"]["kit.spec"] for body in wanted.values()}
            vm = member.vm
            if vm.swarm is self and member.up:
                vm.containers = [c for c in vm.containers if not c.task or c.labels.get("kit.spec") in specs]
                for name, body in wanted.items():
                    if not any(c.task and c.labels["kit.spec"] == body["labels"]["kit.spec"] for c in vm.containers):
                        self._start(vm, name, body)

    def _start(self, vm: FakeVM, name: str, body: dict[str, Any]) -> None:
        from tests.fakes.vm import FakeContainer  # noqa: PLC0415  (it takes its scripts from here)

        missing = [v["source"] for v in body["volumes"] if v["type"] == "bind" and not vm.exists(v["source"])]
        known = {*vm.images, *vm.images.values()}
        if missing or body["image"] not in known or {"stack fails", "mount fails", "low limits"} & vm.faults:
            return
        folder = body["volumes"][0]["source"]
        own = dict(line.split("=", 1) for line in vm.files[f"{folder}/node.env"][0].decode().splitlines())
        source = next(s["source"] for s in body["secrets"] if s["target"] == "host_ed25519")
        vm.containers.append(
            FakeContainer(
                name=f"{name}.{vm.node_id}.{vm.fleet.next_id()}",
                project="",
                service=body["labels"]["kit.service"],
                image=body["image"],
                labels={**body["labels"], "com.docker.swarm.task.id": "t"},
                address=own["KIT_ADDRESS"],
                port=int(body["environment"]["SSH_PORT"]),
                host_key=self.secrets[source][0]["kit.public"],
                task=True,
            )
        )
        vm.changed.append(f"task {name}")


class SwarmScripts:
    """The scripts and commands of kit that concern Swarm, as a VM answers them."""

    swarm: FakeSwarm | None

    def _swarm_sections(self: FakeVM, cluster: str) -> dict[str, list[str]]:  # type: ignore[misc]
        sections = {"member": [self.files[MEMBER][0].decode()] if MEMBER in self.files else []}
        if self.swarm is None or not self.swarm.manages(self):
            return sections
        sections["nodes"] = [
            json.dumps([m.id, {"Labels": m.labels, "Availability": m.availability}, m.vm.host.name,
                        {"State": "ready" if m.up else "down", "Addr": m.vm.internal}])
            for m in self.swarm.members.values()
        ]  # fmt: skip
        services = self.swarm.services.items()
        sections["services"] = [json.dumps([name, body["deploy"].get("labels", {})]) for name, body in services]
        sections["secrets"] = [
            json.dumps([name, labels])
            for name, (labels, _) in self.swarm.secrets.items()
            if labels["kit.cluster"] == cluster
        ]
        return sections

    def _swarm_info(self: FakeVM) -> dict[str, Any]:  # type: ignore[misc]
        if self.swarm is None:
            return {"LocalNodeState": "inactive", "NodeID": "", "ControlAvailable": False, "RemoteManagers": None}
        managers = [{"Addr": f"{vm.internal}:2377"} for vm in (self.swarm.manager, *self.swarm.promoted)]
        manages = self.swarm.manages(self)
        return {
            "LocalNodeState": "active", "NodeID": self.node_id, "ControlAvailable": manages, "RemoteManagers": managers,
        }  # fmt: skip

    def _make_folder(self: FakeVM, _stdin: bytes, path: str, _mode: str) -> Completed:  # type: ignore[misc]
        self.folders.add(path)
        self.changed.append(f"make {path}")
        return completed()

    def _remove_node(self: FakeVM, _stdin: bytes, cluster: str) -> Completed:  # type: ignore[misc]
        self.containers = [c for c in self.containers if c.labels["kit.cluster"] != cluster]
        self.changed.append("remove node")
        if self.swarm:
            self.swarm.reconcile()
        return completed()

    def _swarm_init(self: FakeVM, _stdin: bytes, *words: str) -> Completed:  # type: ignore[misc]
        _address, _port, file, _beat = words
        node = FakeSwarm(manager=self).add(self)
        self.files[file] = (node.encode(), "644")
        self.changed.append("swarm init")
        return completed(f"{node}\n")

    def _swarm_join(self: FakeVM, stdin: bytes, file: str, _image: str) -> Completed:  # type: ignore[misc]
        request = json.loads(stdin)
        manager = self.fleet.at(request["RemoteAddrs"][0].partition(":")[0])
        if "firewall" in self.faults or manager is None or manager.swarm is None:
            return failed('{"message":"rpc error: code = Unavailable desc = connection error"}')
        assert request["JoinToken"] == TOKEN
        assert request["AdvertiseAddr"] == request["DataPathAddr"] == self.internal
        node = manager.swarm.add(self)
        self.files[file] = (node.encode(), "644")
        self.changed.append("swarm join")
        return completed(f"{node}\n")

    def _swarm_nodes(self: FakeVM, _stdin: bytes, key: str, *pairs: str) -> Completed:  # type: ignore[misc]
        swarm = self._managed()
        for pair in pairs:
            node, _, value = pair.partition("=")
            swarm.members[node].labels[key] = value
        self.changed.append("label nodes")
        swarm.reconcile()
        return completed()

    def _swarm_tasks(self: FakeVM, _stdin: bytes, *services: str) -> Completed:  # type: ignore[misc]
        from tests.fakes.vm import NO_LIMIT, mount_failure  # noqa: PLC0415  (it takes its scripts from here)

        swarm, lines = self._managed(), []
        swarm.reconcile()
        for member in swarm.members.values():
            for name, body in swarm.wanted(member).items():
                spec = body["labels"]["kit.spec"]
                there = any(c.task and c.labels["kit.spec"] == spec for c in member.vm.containers)
                state = "running running" if there else "running rejected"
                error = "" if there else "invalid mount config"
                if not there and "mount fails" in member.vm.faults:
                    volume = next(v["source"] for v in body["volumes"] if v["type"] == "volume")
                    error = f"starting container failed: {mount_failure(volume)}"
                if not there and "low limits" in member.vm.faults:
                    error = f"starting container failed: {NO_LIMIT}"
                lines += [
                    f"{name} {self.fleet.next_id()} {member.id} {state} {spec} {error}"
                    for _ in range(1 if there else 3)
                ]
        return completed("".join(f"{line}\n" for line in lines if line.split()[0] in services))

    def _swarm_down(self: FakeVM, _stdin: bytes, key: str) -> Completed:  # type: ignore[misc]
        members = self._managed().members.values()
        down = [m.vm for m in members if not m.up and m.labels.get(key) in ("head", "node")]
        return completed("".join(f"{vm.host.name} ({vm.internal})\n" for vm in down))

    def _swarm_remove(  # type: ignore[misc]
        self: FakeVM, _stdin: bytes, cluster: str, folder: str, members: str
    ) -> Completed:
        assert folder == f"/opt/kit/{cluster}"
        if self.swarm is None:
            return completed()
        if not self.swarm.manages(self):
            runs = any(c.task and c.running and c.labels["kit.cluster"] == cluster for c in self.containers)
            return completed(f"worker {self.swarm.manager.internal}:2377\n") if runs else completed()
        swarm, lines, key = self.swarm, ["manager"], f"kit.{cluster}"
        role = swarm.members[self.node_id].labels.get(key, "-")
        keeps = ("head", "node") if role == "left" else ("head",)
        apart = [
            f"apart {role} {member.vm.host.name}\n"
            for member in swarm.members.values()
            if member.id not in (self.node_id, *members.split())
            and member.labels.get(key) in keeps
            and (member.up or role == "left")
        ]
        if role != "head" and members != "all" and apart:
            return completed("".join(apart))
        for name, body in list(swarm.services.items()):
            if body["deploy"].get("labels", {}).get("kit.cluster") == cluster:
                del swarm.services[name]
                lines.append(f"removed service {name}")
        for name, (labels, _) in list(swarm.secrets.items()):
            if labels["kit.cluster"] == cluster:
                del swarm.secrets[name]
                lines.append(f"removed secret {name}")
        swarm.reconcile()
        for member in swarm.members.values():
            member.labels.pop(f"kit.{cluster}", None)
            lines += [f"stay {member.id}"] * any(label.startswith("kit.") for label in member.labels)
        lines += ["stay all"] * any("labels" not in body["deploy"] for body in swarm.services.values())
        self.changed += [line for line in lines if line.startswith("removed")]
        return completed("".join(f"{line}\n" for line in lines))

    def _keeps_stack(self: FakeVM, cluster: str) -> bool:  # type: ignore[misc]
        if self.swarm is None or not self.swarm.manages(self):
            return False
        owners = [body["deploy"].get("labels", {}).get("kit.cluster") for body in self.swarm.services.values()]
        return cluster in owners and self.swarm.members[self.node_id].labels.get(f"kit.{cluster}") == "head"

    def _swarm_leave(  # type: ignore[misc]
        self: FakeVM, _stdin: bytes, file: str, stay: str, gone: str, cluster: str
    ) -> Completed:
        if file not in self.files:
            return completed()
        swarm, node = self.swarm, self.node_id
        if swarm is None or self.files[file][0].decode() != node:
            del self.files[file]
            return completed()
        if self._keeps_stack(cluster):
            return failed(f"Swarm still runs the stack of {cluster}, which this host manages")
        if {"all", node} & set(stay.split()) or any(c.task for c in self.containers):
            return completed()
        if swarm.manages(self):
            others = [m for m in swarm.members.values() if m.up and m.id not in (node, *gone.split())]
            if swarm.services or others:
                return completed() if swarm.services else completed(f"stays for {others[0].vm.host.name}\n")
        swarm.members[node].up = False
        self.swarm, self.node_id = None, ""
        del self.files[file]
        self.changed.append("swarm leave")
        return completed(f"left {node}\n")

    def _swarm_docker(self: FakeVM, argv: list[str], stdin: bytes) -> Completed | None:  # type: ignore[misc]
        """docker swarm, secret, node, stack; None for another command."""
        match argv:
            case ["info", "--format", "{{.Swarm.NodeID}}"]:
                return completed(f"{self.node_id}\n")
            case ["swarm", "join-token", "--quiet", "worker"]:
                self._managed()
                return completed(f"{TOKEN}\n")
            case ["secret", "create", *words, name, "-"]:
                labels = dict(word.split("=", 1) for word in words if word != "--label")
                self._managed().secrets[name] = (labels, stdin)
                self.changed.append(f"secret {name}")
            case ["secret", "rm", *names]:
                for name in names:
                    del self._managed().secrets[name]
                    self.changed.append(f"remove secret {name}")
            case ["node", "rm", "--force", *nodes]:
                for node in nodes:
                    assert not self._managed().members.pop(node).up
                self.changed.append(f"forget {len(nodes)} nodes")
            case ["stack", "deploy", *_, file, name]:
                self._stack_deploy(file, name)
            case _:
                return None
        return completed()

    def _stack_deploy(self: FakeVM, file: str, name: str) -> None:  # type: ignore[misc]
        swarm = self._managed()
        document = yaml.safe_load(self.files[file][0])
        assert set(document["secrets"]) <= set(swarm.secrets)
        kept = {key: body for key, body in swarm.services.items() if not key.startswith(f"{name}_")}
        swarm.services = {**kept, **{f"{name}_{key}": body for key, body in document["services"].items()}}
        self.changed.append(f"stack {name}")
        swarm.reconcile()

    def _managed(self: FakeVM) -> FakeSwarm:  # type: ignore[misc]
        assert self.swarm is not None, "asked of a host that is in no swarm"
        assert self.swarm.manages(self), "asked of a worker"
        return self.swarm


def completed(text: str | bytes = "") -> Completed:
    return Completed(code=0, stdout=text.encode() if isinstance(text, str) else text, stderr=b"")


def failed(text: str) -> Completed:
    return Completed(code=1, stdout=b"", stderr=f"{text}\n".encode())
