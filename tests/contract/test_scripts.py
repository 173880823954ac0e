"""The contract of the scripts: the fake VM, and the real scripts with a stub of `docker` in a separate root.

The look at a VM asks the engine itself where it can, and Docker's client otherwise: a real VM of each kind is here.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.model.host import Host
from kit.remote.scripts import script
from kit.remote.ssh.transport import Completed
from tests.contract.script_contract import IMAGE, Machine, ScriptContract
from tests.fakes import stub_docker
from tests.fakes.fleet import Fleet
from tests.fakes.shell import bare_path
from tests.fakes.stub_engine import StubEngine
from tests.fakes.swarm import Member
from tests.fakes.vm import FakeContainer, FakeLock, FakeVM

LABELS = {"kit.service": "mpinode", "kit.spec": "1"}
# What the scripts may count on; docker is the stub.
TOOLS = (
    "awk", "basename", "cat", "chmod", "chown", "cut", "date", "df", "dirname", "find", "flock", "grep", "head", "id",
    "kill", "mkdir", "mktemp", "mv", "nproc", "readlink", "rm", "rmdir", "sed", "sh", "sha256sum", "sleep", "sort",
    "stat", "tail", "timeout", "tr", "uname", "wc", "xargs",
)  # fmt: skip
TASK = "com.docker.swarm.task.id"


class FakeMachine(Machine):
    """The VM in memory. Its fleet has another one, with a swarm to join."""

    root, cluster = "/opt/kit", "lab"

    def __init__(self) -> None:
        self.fleet = Fleet(2)
        self.vm = self.fleet["gpu1"]
        self.address = self.vm.internal
        self.vm.images[IMAGE] = "sha256:1f"

    def argv(self, argv: list[str], stdin: bytes) -> Completed:
        done = self.vm.answer(argv, stdin)
        assert done is not None, argv
        return done

    def read(self, path: str) -> bytes | None:
        content, _ = self.vm.files.get(path, (None, ""))
        return content

    def write(self, path: str, content: bytes) -> None:
        self.vm.files[path] = (content, "644")

    def container(self, name: str, *, cluster: str, running: bool = True, task: bool = False) -> None:
        labels = {**LABELS, "kit.cluster": cluster, **({TASK: "t"} if task else {})}
        self.vm.containers.append(
            FakeContainer(
                name=name,
                project="",
                service="mpinode",
                image=IMAGE,
                labels=labels,
                address="10.0.0.1",
                port=0,
                host_key="",
                running=running,
                task=task,
            )
        )

    def stop_engine(self) -> None:
        self.vm.faults.add("no engine")

    def break_compose(self) -> None:
        self.vm.faults.add("compose fails")

    @contextlib.contextmanager
    def held(self) -> Iterator[str]:
        lock = FakeLock(vm=self.vm, file=self.lock, what="kit deploy")
        self.vm.locks[self.lock] = lock
        yield str(lock.pid)

    @contextlib.contextmanager
    def rank(self, run: str, number: int) -> Iterator[str]:
        pid = 100 + len(self.vm.ranks)
        self.vm.ranks.append((run, number, pid))
        yield str(pid)

    @contextlib.contextmanager
    def listener(self) -> Iterator[tuple[str, int]]:
        self.vm.others_listen.add(("127.0.0.1", 4000))
        yield "127.0.0.1", 4000

    def swarm_to_join(self) -> str:
        manager = self.fleet["gpu2"]
        done = manager.answer(list(script("swarm_init", manager.internal, "2377", self.member_file, "20s")), b"")
        assert done is not None
        assert done.code == 0
        return manager.internal

    def break_join(self) -> None:
        self.vm.faults.add("firewall")

    def member(self, node: str, labels: dict[str, str] | None = None, *, up: bool = True) -> None:
        assert self.vm.swarm
        other = FakeVM(host=Host(name=node, address="10.0.0.9"), internal="10.0.0.9", fleet=self.fleet)
        self.vm.swarm.members[node] = Member(id=node, vm=other, labels=labels or {}, up=up)

    def service(self, name: str, cluster: str | None) -> None:
        assert self.vm.swarm
        placement = {"placement": {"constraints": ["node.labels.none == none"]}}
        labels = {"labels": {"kit.cluster": cluster}} if cluster else {}
        self.vm.swarm.services[name] = {"deploy": {**placement, **labels}, "labels": LABELS}

    def secret(self, name: str, cluster: str) -> None:
        assert self.vm.swarm
        self.vm.swarm.secrets[name] = ({"kit.cluster": cluster, "kit.role": "client", "kit.public": "AAAA"}, b"")


class RealMachine(Machine):
    """This machine: the real scripts, files below a temporary root, and an engine that is a file of JSON."""

    def __init__(self, folder: Path) -> None:
        # Ranks are found among all processes of the machine, by the name of their cluster.
        self.cluster = f"test-{uuid.uuid4().hex[:12]}"
        self.root = str(folder / "opt/kit")
        self._path = bare_path(folder / "bin", TOOLS)
        self._home = folder / "home"
        self._state = folder / "engine.json"
        (self._path / "docker").write_text(f'#!/bin/sh\nexec {sys.executable} -IS {stub_docker.__file__} "$@"\n')
        (self._path / "docker").chmod(0o755)
        self._state.write_text(
            json.dumps(
                {
                    "answers": True,
                    "join": True,
                    "compose": True,
                    "containers": [],
                    "images": {IMAGE: "sha256:1f"},
                    "swarm": None,
                    "root": str(folder / "docker"),
                }
            )
        )

    def argv(self, argv: list[str], stdin: bytes) -> Completed:
        # A script knows by its own words where kit's files are on a VM.
        words = [argv[0], argv[1], self.localized(argv[2]), *argv[3:]]
        environ = {"PATH": str(self._path), "HOME": str(self._home), "KIT_STUB_ENGINE": str(self._state)}
        done = subprocess.run(words, input=stdin, env=environ, capture_output=True, check=False, timeout=60)
        return Completed(code=done.returncode, stdout=done.stdout, stderr=done.stderr)

    def localized(self, text: str) -> str:
        """Return a script with the paths of this machine."""
        return text.replace("/opt/kit", self.root)

    @contextlib.contextmanager
    def engine(self) -> Iterator[dict[str, Any]]:
        state = json.loads(self._state.read_text())
        yield state
        self._state.write_text(json.dumps(state))

    def read(self, path: str) -> bytes | None:
        return Path(path).read_bytes() if Path(path).exists() else None

    def write(self, path: str, content: bytes) -> None:
        Path(path).write_bytes(content)

    def container(self, name: str, *, cluster: str, running: bool = True, task: bool = False) -> None:
        labels = {**LABELS, "kit.cluster": cluster, **({TASK: "t"} if task else {})}
        with self.engine() as state:
            state["containers"].append({"name": name, "labels": labels, "image": IMAGE, "running": running})

    def stop_engine(self) -> None:
        with self.engine() as state:
            state["answers"] = False

    def break_compose(self) -> None:
        with self.engine() as state:
            state["compose"] = False

    @contextlib.contextmanager
    def held(self) -> Iterator[str]:
        words = script("lock", self.lock, "30", "ann@laptop", "kit deploy")
        with subprocess.Popen(list(words), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
            assert holder.stdout
            assert holder.stdout.readline() == "kit-lock held\n"
            (pid,) = (line.split()[1] for line in Path(self.lock).read_text().splitlines() if line.startswith("pid "))
            try:
                yield pid
            finally:
                holder.kill()

    @contextlib.contextmanager
    def rank(self, run: str, number: int) -> Iterator[str]:
        environ = {"KIT_CLUSTER": self.cluster, "KIT_RUN": run, "OMPI_COMM_WORLD_RANK": str(number)}
        code = "print(flush=True); import sys; sys.stdin.read()"
        with subprocess.Popen(
            [sys.executable, "-IS", "-c", code], env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            assert process.stdout
            process.stdout.readline()
            try:
                yield str(process.pid)
            finally:
                process.send_signal(signal.SIGKILL)

    @contextlib.contextmanager
    def listener(self) -> Iterator[tuple[str, int]]:
        with socket.create_server(("127.0.0.1", 0)) as server:
            yield server.getsockname()

    def swarm_to_join(self) -> str:
        return "127.0.0.8"

    def break_join(self) -> None:
        with self.engine() as state:
            state["join"] = False

    def member(self, node: str, labels: dict[str, str] | None = None, *, up: bool = True) -> None:
        with self.engine() as state:
            state["swarm"]["members"][node] = {"labels": labels or {}, "up": up}

    def service(self, name: str, cluster: str | None) -> None:
        with self.engine() as state:
            state["swarm"]["services"][name] = {"labels": {"kit.cluster": cluster} if cluster else {}}

    def secret(self, name: str, cluster: str) -> None:
        labels = {"kit.cluster": cluster, "kit.role": "client", "kit.public": "AAAA"}
        with self.engine() as state:
            state["swarm"]["secrets"][name] = {"labels": labels}


class SocketMachine(RealMachine):
    """A VM with Python, whose engine answers on its socket. Its client does not describe the engine."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (self._path / "python3").symlink_to(sys.executable)
        self._socket = folder / "docker.sock"
        self.stub = StubEngine(self._socket, self._state)
        plugin = self._home / ".docker/cli-plugins/docker-compose"
        plugin.parent.mkdir(parents=True)
        plugin.write_text("""#!/bin/sh\necho '{"SchemaVersion":"0.1.0",
  "Version": "2.26.1"
}'\n""")
        plugin.chmod(0o755)
        with self.engine() as state:
            state["described"] = False

    def localized(self, text: str) -> str:
        return super().localized(text).replace("/var/run/docker.sock", str(self._socket))


class TestFakeScripts(ScriptContract):
    @pytest.fixture
    def vm(self) -> Machine:
        return FakeMachine()


@pytest.mark.skipif(os.geteuid() != 0, reason="files are given to root: run the tests as root")
@pytest.mark.skipif(shutil.which("flock") is None, reason="flock of util-linux is not here")
class TestRealScripts(ScriptContract):
    @pytest.fixture
    def vm(self, tmp_path: Path) -> Machine:
        return RealMachine(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="files are given to root: run the tests as root")
@pytest.mark.skipif(shutil.which("flock") is None, reason="flock of util-linux is not here")
class TestRealScriptsWithPython(ScriptContract):
    @pytest.fixture
    def vm(self, tmp_path: Path) -> Iterator[Machine]:
        machine = SocketMachine(tmp_path)
        yield machine
        machine.stub.close()
