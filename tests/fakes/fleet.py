"""All VMs of a test, the transports to them, and a fake of shipping an image."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from kit.config.validate import spec_from
from kit.errors import Interrupted, KitError, StepError, UnreachableError
from kit.events import Reporter
from kit.flows.context import Context
from kit.model.host import Host, Inventory, Login
from kit.remote.cluster import lock
from kit.remote.ship.lanes import Target
from kit.remote.ship.result import Shipped
from kit.remote.ssh.program import BOOTSTRAP
from kit.remote.ssh.transport import AS_ROOT, Completed, Live
from tests.fakes.engine import FakeRegistry, engine_of
from tests.fakes.probes import FakeProbe
from tests.fakes.vm import FakeLock, FakeVM

# Commands that are not kit's scripts run on this machine, as root.
PLAIN = AS_ROOT.replace("exec sudo -n --", "exec")


class FakeTransport:
    def __init__(self, vm: FakeVM) -> None:
        self._vm = vm
        self.closed = False

    @property
    def host(self) -> Host:
        return self._vm.host

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
        self.closed = False
        if "unreachable" in self._vm.faults:
            raise UnreachableError("no SSH connection", hint="is the VM up?", host=self.host.name)
        if "sudo" in self._vm.faults:
            return Completed(code=1, stdout=b"", stderr=b"sudo: a password is required\n")
        return self._vm.answer(list(argv), stdin) or self._locally(argv, stdin, timeout_s)

    def stream(self, argv: Sequence[str], live: Live) -> int:
        """Run it whole, and pass its output on at once. A command that waits for its end (`endless`) waits."""
        if "unreachable" in self._vm.faults:
            raise UnreachableError("no SSH connection", hint="is the VM up?", host=self.host.name)
        if live.begin is not None and not live.begin():
            raise Interrupted("interrupted before the command began", host=self.host.name)
        if BOOTSTRAP in argv:
            return FakeProbe(self._vm).serve(live)
        stdin = b""
        if live.stdin is not None:
            reader = live.stdin()
            stdin = b"".join(iter(lambda: reader.read(1 << 16), b""))
            reader.close()
        self._vm.inputs.append(stdin)
        done = self.run(argv, stdin=stdin)
        live.out(done.stdout)
        live.err(done.stderr)
        if self._vm.endless is not None:
            self._vm.endless.wait(5)
            return 143
        return done.code

    def _locally(self, argv: Sequence[str], stdin: bytes, timeout_s: float) -> Completed:
        try:
            done = subprocess.run(
                ["sh", "-c", PLAIN, "kit", *argv], input=stdin, capture_output=True, timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired as error:
            message = f"a command did not end within {timeout_s:.0f} s"
            raise StepError(message, hint="look at the host's load", host=self.host.name) from error
        # A shell and ssh report a death by signal as 128 + the signal.
        code = done.returncode if done.returncode >= 0 else -1
        return Completed(code=code, stdout=done.stdout, stderr=done.stderr)

    def close(self) -> None:
        self.closed = True


class Fleet:
    """gpu1, gpu2, … at 10.0.0.1, 10.0.0.2, …"""

    def __init__(self, count: int) -> None:
        self.vms: dict[str, FakeVM] = {}
        self.shipped: list[str] = []
        self.shipped_from: str | None = None
        # The name that the image of the last ship has at its source, if that is another one.
        self.origin = ""
        self.taken: list[str] = []
        self._ids = 0
        # Held while a host answers.
        self.answering = threading.RLock()
        self.registry = FakeRegistry()
        for n in range(1, count + 1):
            address = f"10.0.{n // 250}.{n % 250}"
            host = Host(name=f"gpu{n}", address=address, slots=2)
            self.vms[host.name] = FakeVM(host=host, internal=address, fleet=self)

    def __getitem__(self, name: str) -> FakeVM:
        return self.vms[name]

    def next_id(self) -> str:
        """Return a new id for a member of a swarm or a task."""
        self._ids += 1
        return f"id{self._ids}"

    def at(self, address: str) -> FakeVM | None:
        return next((vm for vm in self.vms.values() if vm.internal == address), None)

    def connect(self, host: Host) -> FakeTransport:
        return FakeTransport(self.vms[host.name])

    def take(self, head: Login, file: str, what: str) -> FakeLock:
        """Take a lock that behaves like the real one: it is kept on the VM, and a refusal names its holder."""
        vm = self.vms[head.host]
        if "unreachable" in vm.faults:
            raise UnreachableError("no SSH connection", hint="is the VM up?", host=head.host)
        if "no flock" in vm.faults:
            raise lock.no_flock(head.host)
        if file in vm.locks and vm.locks[file].held:
            raise lock.refused(lock.look(self.connect(vm.host), "lab", file).holder, head.host)
        vm.locks[file] = FakeLock(vm=vm, file=file, what=what)
        self.taken.append(what)
        return vm.locks[file]

    def ship(
        self,
        image: str,
        *,
        owner: str,
        targets: Sequence[Target],
        reporter: Reporter,
        source: Target | None = None,
        origin: str = "",
    ) -> Shipped:
        failures: dict[str, KitError] = {}
        self.origin = origin
        self.shipped_from = source.login.host if source else None
        for target in targets:
            host = target.login.host
            if "disk full" in self.vms[host].faults:
                failures[host] = StepError("no space left on device", hint="make room", host=host)
            else:
                self.vms[host].images[image] = "sha256:1f"
                self.vms[host].changed.append(f"ship {image}")
                self.shipped.append(host)
        return Shipped(failures=failures)

    @property
    def changes(self) -> Mapping[str, list[str]]:
        return {name: vm.changed for name, vm in self.vms.items() if vm.changed}

    def forget_changes(self) -> None:
        for vm in self.vms.values():
            vm.changed.clear()
        self.shipped.clear()

    def context(self, reporter: Reporter, *, names: Sequence[str] = (), **spec: object) -> Context:
        """Return a context on these hosts, the head first; on all of them in order if none is named."""
        hosts = tuple(self.vms[name].host for name in names) if names else tuple(vm.host for vm in self.vms.values())
        return Context(
            inventory=Inventory(hosts=hosts, source="hosts"),
            spec=spec_from({"name": "lab", **spec}),
            folder=Path(),
            reporter=reporter,
            connect=self.connect,
            take=self.take,
            engine_of=lambda login: engine_of(self, login),
        )
