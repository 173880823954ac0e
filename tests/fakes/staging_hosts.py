"""Hosts of this machine on which kit stages data: real scripts, an engine of processes, real or scripted stagers."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kit.config.validate import spec_from
from kit.errors import UnreachableError
from kit.events import Reporter
from kit.flows.context import Context
from kit.model import names
from kit.model.host import Host, Inventory
from kit.model.launch import ClusterRecord, Node
from kit.plan.cluster.drift import deployed_settings
from kit.plan.cluster.record import to_text
from kit.remote.ssh.transport import Completed, Live
from tests.fakes import stager_engine
from tests.fakes.launcher import BIN, LIB, PYTHON
from tests.sockets import own_addresses

SCRIPTED = Path(__file__).with_name("scripted_stager.py")
# The real one, as the image has it.
REAL = (*PYTHON, str(BIN / "kit-data"))


@dataclass
class FreeLock:
    """A lock that nobody else wants."""

    def check(self) -> None:
        """Do nothing: it is held."""

    def release(self) -> None:
        """Do nothing."""


@dataclass
class StagingHosts:
    """gpu1, gpu2, … at addresses of the loopback device, each with its root folder below `folder`.

    `down`: hosts that cannot be reached. `answers` are what scripted stagers answer, by host and order.
    """

    folder: Path
    count: int
    program: Sequence[str] = (*PYTHON, str(SCRIPTED))
    down: set[str] = field(default_factory=set)
    open: list[LocalTransport] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.hosts = tuple(
            Host(name=f"gpu{n}", address=address, slots=1, internal=address)
            for n, address in enumerate(own_addresses(self.count), 1)
        )
        for host in self.hosts:
            root = self.root(host.name)
            for folder in ("opt/kit/lab", "shm", "nvme", "engine", "bin"):
                (root / folder).mkdir(parents=True)
            (root / "engine/node").touch()
            (root / "engine/program").write_text(json.dumps([*self.program]))
            docker = root / "bin/docker"
            docker.write_text(f'#!/bin/sh\nexec {sys.executable} -IS {stager_engine.__file__} "$@"\n')
            docker.chmod(0o755)

    def root(self, host: str) -> Path:
        return self.folder / host

    def data(self, host: str, name: str = "images") -> Path:
        """Return the folder of a data set on a host."""
        return self.root(host) / "opt/kit/.data/lab" / name

    def disk(self, host: str) -> Path:
        """Return the folder of a host that kit.yaml can name as dir: /mnt/nvme."""
        return self.root(host) / "nvme"

    def files(self, host: str, name: str = "images") -> dict[str, bytes]:
        """Return what the nodes of a host see of a data set."""
        top = self.data(host, name) / names.DATA_FILES
        return {str(path.relative_to(top)): path.read_bytes() for path in sorted(top.rglob("*")) if path.is_file()}

    def context(self, reporter: Reporter, **spec: Any) -> Context:
        """Return a context on all hosts."""
        return Context(
            inventory=Inventory(hosts=self.hosts, source="hosts"),
            spec=spec_from({"name": "lab", **spec}),
            folder=self.folder,
            reporter=reporter,
            connect=lambda host: LocalTransport(self, host),
            take=lambda _head, _file, _what: FreeLock(),
        )

    def deploy(self, context: Context) -> None:
        """Write the record that a deploy of this kit.yaml leaves."""
        record = ClusterRecord(
            name="lab",
            image="kit:1",
            network="127.0.0.0/8",
            ssh_port=33,
            nodes=tuple(Node(name=host.name, address=host.address, slots=1) for host in self.hosts),
            head_runs_ranks=True,
            settings=deployed_settings(context.spec),
        )
        (self.root("gpu1") / "opt/kit/lab/cluster.json").write_text(to_text(record))

    def says(self, answers: Mapping[str, Sequence[object]], host: str = "gpu1") -> None:
        """Set what the scripted stager of a host answers, by order. See tests/fakes/scripted_stager.py."""
        new = self.root(host) / "engine/answers.new"
        new.write_text(json.dumps(answers))
        # A stager may be reading the old ones.
        new.replace(new.with_name("answers.json"))

    def heard(self, host: str = "gpu1") -> list[dict[str, Any]]:
        """Return the orders that the scripted stager of a host got."""
        file = self.root(host) / "engine/heard"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def runs(self, host: str = "gpu1") -> list[list[str]]:
        """Return the options of each `docker run` of a host."""
        file = self.root(host) / "engine/runs"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def running(self, host: str = "gpu1") -> Mapping[str, Mapping[str, Any]]:
        return stager_engine.stagers(self.root(host) / "engine")

    def kill(self, host: str) -> None:
        """Kill all stagers of a host, as the end of its VM does."""
        for one in self.running(host).values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(one["pid"], signal.SIGKILL)

    def cut(self) -> None:
        """Break every connection of kit to the hosts."""
        for transport in list(self.open):
            transport.close()

    def close(self) -> None:
        self.cut()
        for host in self.hosts:
            self.kill(host.name)


class LocalTransport:
    """Commands on a host: here, with the paths of its root folder."""

    def __init__(self, machine: StagingHosts, host: Host) -> None:
        self._machine, self._host = machine, host
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def host(self) -> Host:
        return self._host

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
        self._check()
        done = subprocess.run(
            self._words(argv), input=stdin, env=self._environ(), capture_output=True, check=False, timeout=timeout_s
        )
        return Completed(code=done.returncode, stdout=self._told(done.stdout), stderr=self._told(done.stderr))

    def stream(self, argv: Sequence[str], live: Live) -> int:
        self._check()
        if live.begin is not None and not live.begin():
            return 255
        process = self._process = subprocess.Popen(
            self._words(argv),
            env=self._environ(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        self._machine.open.append(self)
        threads = [
            threading.Thread(target=work, args=(live, process), daemon=True) for work in (self._feed, self._complain)
        ]
        for thread in threads:
            thread.start()
        assert process.stdout
        with process:
            try:
                while data := process.stdout.read(1 << 16):
                    live.out(data)
            except BaseException:
                self._kill(process)
                raise
            code = process.wait()
            threads[1].join()
        self._machine.open.remove(self)
        if code < 0:
            raise UnreachableError("the connection broke", hint="is the VM up?", host=self._host.name)
        return code

    def close(self) -> None:
        process = self._process
        if process is not None and process.poll() is None:
            self._kill(process)

    def _check(self) -> None:
        if self._host.name in self._machine.down:
            raise UnreachableError("no SSH connection", hint="is the VM up?", host=self._host.name)

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    @property
    def _local(self) -> Mapping[str, str]:
        """The folders of a VM, and where this host has them."""
        root = self._machine.root(self._host.name)
        return {
            names.ROOT: str(root / "opt/kit"),
            names.DATA_MEMORY: str(root / "shm/kit-data"),
            "/mnt/nvme": str(self._machine.disk(self._host.name)),
        }

    def _words(self, argv: Sequence[str]) -> list[str]:
        words = list(argv)
        for path, here in self._local.items():
            words = [word.replace(path, here) for word in words]
        return [sys.executable if word == "python3" else word for word in words]

    def _told(self, output: bytes) -> bytes:
        for path, here in self._local.items():
            output = output.replace(here.encode(), path.encode())
        return output

    def _environ(self) -> dict[str, str]:
        root = self._machine.root(self._host.name)
        return {**os.environ, "PATH": f"{root / 'bin'}:{os.environ['PATH']}", "KIT_STUB_ROOT": str(root),
                "PYTHONPATH": str(LIB)}  # fmt: skip

    def _feed(self, live: Live, process: subprocess.Popen[bytes]) -> None:
        assert live.stdin
        assert process.stdin
        reader = live.stdin()
        try:
            while data := reader.read(1 << 16):
                process.stdin.write(data)
        except (OSError, ValueError):
            # It ended, or its pipe is closed already.
            return
        finally:
            with contextlib.suppress(OSError):
                process.stdin.close()

    def _complain(self, live: Live, process: subprocess.Popen[bytes]) -> None:
        assert process.stderr
        with contextlib.suppress(OSError, ValueError):
            while data := process.stderr.read(1 << 16):
                live.err(data)


@contextlib.contextmanager
def staging_hosts(folder: Path, count: int, *, real: bool = False) -> Iterator[StagingHosts]:
    """Yield hosts whose stagers are scripted ones, or real ones."""
    machine = StagingHosts(folder, count, REAL) if real else StagingHosts(folder, count)
    try:
        yield machine
    finally:
        machine.close()
