"""What the steps of one execution share: hosts, connections, progress, and the swarm that they are forming."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, field

from kit.errors import StepError
from kit.events import HostStep, Reporter
from kit.model import names
from kit.model.host import Host, Login
from kit.model.plan import Step
from kit.model.registry import RegistryLogin
from kit.model.secret import Secret
from kit.remote.ssh.transport import Completed, Connect

if TYPE_CHECKING:
    from kit.remote.engine.client import Engine

# How much of a failed command's output an error quotes.
QUOTED_LINES = 15


class SwarmProgress:
    """What steps of a swarm pass on: the node ids of hosts that joined or left, and the token with which they join.

    The token goes from the head to the standard input of a host, and is stored nowhere. `stay` has the ids of nodes
    that must stay because somebody else uses the swarm, or `all`.
    """

    def __init__(self) -> None:
        self.ids: dict[str, str] = {}
        self.left: list[str] = []
        self.stay: list[str] = []
        self._token: Secret | None = None
        self._lock = threading.Lock()

    def token(self, ask: Callable[[], Secret]) -> Secret:
        """Return the token. Only the first of the hosts that join side by side calls `ask`."""
        with self._lock:
            if self._token is None:
                self._token = ask()
            return self._token


class Registries:
    """The operator's logins to registries. Each is looked up once, for a credential helper may be slow."""

    def __init__(self) -> None:
        self._logins: dict[str, RegistryLogin | None] = {}
        self._lock = threading.Lock()

    def login(self, registry: str) -> RegistryLogin | None:
        from kit.remote.machine.credentials import find_login  # noqa: PLC0415  (only for plans that pull)

        with self._lock:
            if registry not in self._logins:
                self._logins[registry] = find_login(registry, os.environ)
            return self._logins[registry]


def nothing() -> None:
    """Replace a check, and never refuse."""


class Execution(Struct, frozen=True, kw_only=True):
    """One execution of a plan of `cluster`, used by several threads, one a host. The head is the first host.

    `check` is called before each step, and raises a KitError if no further step may begin. `removed` collects a line
    for each thing that steps remove from a host. It is None if the verb does not report that. `kept` collects the names
    of data sets that stay on a host, and `homes` the hosts on which home folders of ranks stay. `slow` has the hosts on
    which a step of an earlier round did not end in time. `skipped` collects the names of rounds that did not begin.
    """

    cluster: str
    hosts: Mapping[str, Host]
    logins: Mapping[str, Login]
    connect: Connect
    engine_of: Callable[[Login], Engine]
    reporter: Reporter
    check: Callable[[], None] = nothing
    swarm: SwarmProgress = field(default_factory=SwarmProgress)
    registries: Registries = field(default_factory=Registries)
    removed: dict[str, list[str]] | None = None
    kept: dict[str, list[str]] = field(default_factory=dict)
    homes: list[str] = field(default_factory=list)
    slow: set[str] = field(default_factory=set)
    skipped: list[str] = field(default_factory=list)
    # How many of a host's lines `summary` has counted.
    counted: dict[str, int] = field(default_factory=dict)

    @property
    def folder(self) -> str:
        """The cluster's folder on every VM."""
        return names.folder(self.cluster)

    @property
    def head(self) -> Host:
        return next(iter(self.hosts.values()))

    def progress(self, host: str, text: str, fraction: float | None = None) -> None:
        self.reporter.report(HostStep(host=host, text=text, fraction=fraction))

    def record_removed(self, host: str, lines: Iterable[str]) -> None:
        if self.removed is not None:
            self.removed.setdefault(host, []).extend(lines)

    def record_kept(self, host: str, names: Iterable[str]) -> None:
        self.kept.setdefault(host, []).extend(names)

    def summary(self, host: str) -> str:
        """Return what the progress shows for a host that has finished a round."""
        if self.removed is None:
            return "done"
        whole = len(self.removed.get(host, ()))
        count = whole - self.counted.get(host, 0)
        self.counted[host] = whole
        return f"removed {count}" if count else "nothing there"

    def begin(self, host: str, step: Step) -> None:
        """Report that a step begins, unless the check refuses it."""
        self.check()
        self.progress(host, " ".join(step.line()))


def require(done: Completed, host: str, what: str, hint: str | None) -> None:
    """Raise StepError with `what` and the end of the command's output, unless the command succeeded."""
    if done.code == 0:
        return
    lines = (done.error_text or done.text.strip()).splitlines()
    cause = "\n".join(lines[-QUOTED_LINES:]) if lines else f"exit {done.code}"
    raise StepError(f"{what}: {cause}", hint=hint, host=host)
