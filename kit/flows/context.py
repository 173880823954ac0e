"""Context: what every flow on a cluster is given. The command line makes one; tests make one with fakes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kit.events import Reporter
from kit.model.host import Host, Inventory, Login
from kit.model.spec import ClusterSpec
from kit.plan.cluster.ssh import login
from kit.remote.cluster.lock import Take, take
from kit.remote.engine.client import Engine
from kit.remote.ssh.transport import Connect


@dataclass(frozen=True, kw_only=True)
class Context:
    """`folder` is where hosts and kit.yaml stand; relative paths in them are relative to it."""

    inventory: Inventory
    spec: ClusterSpec
    folder: Path
    reporter: Reporter
    connect: Connect
    take: Take = take
    engine_of: Callable[[Login], Engine] = Engine.over_ssh

    def login(self, host: Host) -> Login:
        return login(host, self.spec.ssh)

    @property
    def logins(self) -> Mapping[str, Login]:
        return logins_of(self.inventory, self.spec)

    def host(self, name: str) -> Host:
        return next(host for host in self.inventory.hosts if host.name == name)


def logins_of(inventory: Inventory, spec: ClusterSpec) -> Mapping[str, Login]:
    return {host.name: login(host, spec.ssh) for host in inventory.hosts}


def open_context(inventory: Inventory, spec: ClusterSpec, folder: Path, reporter: Reporter) -> Context:
    """A context with the real connections."""
    from kit.remote.ssh.connect import connector  # noqa: PLC0415

    connect = connector(logins_of(inventory, spec))
    return Context(inventory=inventory, spec=spec, folder=folder, reporter=reporter, connect=connect)
