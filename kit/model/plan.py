"""The plan of a change: typed steps, a host at a time, in the order in which they are done.

The object that --dry-run prints, a golden file pins and the executor runs is this one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from kit.model.secret import Secret

if TYPE_CHECKING:
    # Read by those who plan for Swarm; every other verb starts without it.
    from kit.model.swarm import SwarmStep


@dataclass(frozen=True, kw_only=True, slots=True)
class Ship:
    """Bring the image to the host: those of its layers that are not there. Other hosts reach it at `address`.

    They come from this machine's engine, or that of the host `source` (name, address).
    """

    image: str
    image_id: str
    size: int
    address: str
    why: str
    source: tuple[str, str] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Pull:
    """Let the host's engine pull `source` from its registry, as it is at `digest`, and name it `image`."""

    image: str
    source: str
    digest: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class WriteFile:
    """Write a file below the cluster's folder, atomically, owned by root."""

    path: str
    content: bytes | Secret
    mode: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class DeleteFile:
    """Remove a file below the cluster's folder that no longer belongs there."""

    path: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ComposeUp:
    """`docker compose up` of the host's file. `recreate` when a mounted secret or config changed."""

    folder: str
    project: str
    recreate: bool
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class WaitSshd:
    """Wait until the node's sshd listens on address:port."""

    address: str
    port: int
    timeout_s: float
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyPeers:
    """From the head's container, ssh to every node with no prompt."""

    container: str
    peers: tuple[tuple[str, str], ...]  # (name, address)
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoveCluster:
    """Take everything of a cluster off the host: containers, folder and, on request, images."""

    folder: str
    cluster: str
    images: tuple[str, ...]
    why: str


OwnStep = Ship | Pull | WriteFile | DeleteFile | ComposeUp | WaitSshd | VerifyPeers | RemoveCluster
Step: TypeAlias = "OwnStep | SwarmStep"


@dataclass(frozen=True, kw_only=True, slots=True)
class HostPlan:
    """The steps of one host. They stop at the first that fails; other hosts go on."""

    host: str
    steps: tuple[Step, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Round:
    """Hosts that are done side by side. It begins when every step before it has been done. `name`: of the phase."""

    name: str
    hosts: tuple[HostPlan, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """All steps. `hosts` are done side by side; `after` only where every host of it succeeded.

    Where one host's steps need another's (a swarm), `before` comes before `hosts`, and `rounds` between it and `after`.
    """

    cluster: str
    hosts: tuple[HostPlan, ...]
    after: tuple[HostPlan, ...] = ()
    before: tuple[HostPlan, ...] = ()
    rounds: tuple[Round, ...] = ()

    @property
    def all(self) -> tuple[HostPlan, ...]:
        """In the order in which they are done."""
        return (*self.before, *self.hosts, *(each for r in self.rounds for each in r.hosts), *self.after)

    @property
    def empty(self) -> bool:
        return not any(h.steps for h in self.all)
