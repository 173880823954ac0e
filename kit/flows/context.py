"""Context: what every flow on a cluster works with. The command line makes a real one; tests make one with fakes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from kit.events import Reporter
from kit.model.host import Host, Inventory, Login
from kit.model.spec import ClusterSpec
from kit.plan.cluster.ssh import login
from kit.remote.ssh.kept import kept, socket_folder

if TYPE_CHECKING:
    from kit.remote.cluster.lock import Lock, Take
    from kit.remote.engine.client import Engine
    from kit.remote.ssh.transport import LiveTransport


def _take(head: Login, file: str, what: str) -> Lock:
    from kit.remote.cluster.lock import take  # noqa: PLC0415  (only for verbs that lock)

    return take(head, file, what)


def _engine_of(login: Login) -> Engine:
    from kit.remote.engine.client import Engine  # noqa: PLC0415  (the Docker SDK: only for verbs that need it)

    return Engine.over_ssh(login)


class Context(Struct, frozen=True, kw_only=True):
    """`folder` is the folder of hosts and kit.yaml; relative paths in them are relative to it.

    `sockets` is the folder of kept connections, or None to keep none.
    """

    inventory: Inventory
    spec: ClusterSpec
    folder: Path
    reporter: Reporter
    connect: Callable[[Host], LiveTransport]
    sockets: Path | None = None
    take: Take = _take
    engine_of: Callable[[Login], Engine] = _engine_of

    def login(self, host: Host) -> Login:
        return kept(login(host, self.spec.ssh), self.sockets)

    @property
    def logins(self) -> Mapping[str, Login]:
        return {host.name: self.login(host) for host in self.inventory.hosts}

    def host(self, name: str) -> Host:
        return next(host for host in self.inventory.hosts if host.name == name)


def open_context(inventory: Inventory, spec: ClusterSpec, folder: Path, reporter: Reporter) -> Context:
    """Return a context with real connections. It imports what connects only when a flow connects."""
    sockets = socket_folder() if spec.ssh.keep else None

    def connect(host: Host) -> LiveTransport:
        from kit.remote.ssh.connect import connected  # noqa: PLC0415

        return connected(host, kept(login(host, spec.ssh), sockets), alone=len(inventory.hosts) == 1)

    return Context(inventory=inventory, spec=spec, folder=folder, reporter=reporter, connect=connect, sockets=sockets)
