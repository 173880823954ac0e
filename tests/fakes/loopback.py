"""Hosts that are addresses of this machine's loopback device: commands run here, as real processes."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kit.config.validate import spec_from
from kit.errors import StepError, UnreachableError
from kit.events import Reporter
from kit.flows.context import Context
from kit.model.host import Host, Inventory
from kit.remote.ssh.transport import Completed, Live
from tests.sockets import own_addresses


@dataclass
class Loopback:
    """gpu1, gpu2, … at addresses of the loopback device. `processes` has what runs there, by host.

    `altered` replaces what a host runs, and a host in `down` cannot be reached.
    """

    count: int
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    altered: dict[str, Sequence[str]] = field(default_factory=dict)
    down: set[str] = field(default_factory=set)
    heard: Callable[[str, bytes], None] = lambda _host, _data: None

    @property
    def hosts(self) -> tuple[Host, ...]:
        return tuple(
            Host(name=f"gpu{n}", address=address, slots=1, internal=address)
            for n, address in enumerate(own_addresses(self.count), 1)
        )

    def connect(self, host: Host) -> LoopbackTransport:
        return LoopbackTransport(self, host)

    def context(self, reporter: Reporter, **spec: object) -> Context:
        return Context(
            inventory=Inventory(hosts=self.hosts, source="hosts"),
            spec=spec_from({"name": "lab", **spec}),
            folder=Path(),
            reporter=reporter,
            connect=self.connect,
        )


class LoopbackTransport:
    def __init__(self, machine: Loopback, host: Host) -> None:
        self._machine, self._host = machine, host

    @property
    def host(self) -> Host:
        return self._host

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
        raise StepError("this host runs live commands only", host=self._host.name)

    def stream(self, argv: Sequence[str], live: Live) -> int:
        name = self._host.name
        if name in self._machine.down:
            raise UnreachableError("no SSH connection", hint="is the VM up?", host=name)
        if live.begin is not None:
            live.begin()
        words = self._machine.altered.get(name) or [sys.executable, *argv[1:]]
        with subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
        ) as process:
            self._machine.processes[name] = process
            assert process.stdout
            threads = [
                threading.Thread(target=work, args=(live, process), daemon=True)
                for work in (self._feed, self._complain)
            ]
            for thread in threads:
                thread.start()
            try:
                while data := process.stdout.read(1 << 16):
                    live.out(data)
            except BaseException:
                process.kill()
                raise
            code = process.wait()
            threads[1].join()
            return code

    def _feed(self, live: Live, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin
        if live.stdin is None:
            process.stdin.close()
            return
        reader = live.stdin()
        try:
            while data := reader.read(1 << 16):
                process.stdin.write(data)
        except (OSError, ValueError):
            # It ended, or its pipe is closed already.
            return
        finally:
            process.stdin.close()

    def _complain(self, live: Live, process: subprocess.Popen[bytes]) -> None:
        assert process.stderr
        with contextlib.suppress(OSError, ValueError):
            while data := process.stderr.read(1 << 16):
                live.err(data)

    def close(self) -> None:
        process = self._machine.processes.get(self._host.name)
        if process is not None and process.poll() is None:
            process.kill()
