"""What Compose and Swarm each bring to a deploy. kit/plan/cluster/deploy.py plans the rest for both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from kit.errors import KitError
from kit.model.keys import ClusterKeys
from kit.model.launch import ClusterRecord, Node
from kit.model.observed import HostFacts
from kit.model.plan import HostPlan, Round
from kit.model.spec import ClusterSpec
from kit.plan.cluster.supply import Image


class Site(Struct, frozen=True, kw_only=True):
    """What a deploy is planned from. `observed` and `nodes` are in step, the head first. `text` is the record's."""

    spec: ClusterSpec
    observed: Sequence[HostFacts]
    nodes: Sequence[Node]
    image: Image
    keys: ClusterKeys
    record: ClusterRecord
    text: str


class Draft(Struct, frozen=True, kw_only=True):
    """A dialect's part of a plan: rounds before the image comes, what each host does for itself, and rounds after that.

    `digests` tell apart the definitions of the services.
    """

    hosts: tuple[HostPlan, ...]
    digests: tuple[str, ...]
    before: tuple[Round, ...] = ()
    after: tuple[Round, ...] = ()


class HeldKeys(Struct, frozen=True, kw_only=True):
    """The public halves of the keys that exist. `owners` maps each host to the owner of its host key in `hosts`."""

    client: str | None
    hosts: Mapping[str, str]
    owners: Mapping[str, str]


class Dialect(Protocol):
    """A module that plans for one orchestrator. Its functions are pure."""

    def paths(self, spec: ClusterSpec) -> tuple[str, ...]:
        """Return the paths on VMs whose absence the plan needs to know."""

    def problems(self, observed: Sequence[HostFacts], nodes: Sequence[Node]) -> list[KitError]:
        """Return what keeps hosts from a deploy with this orchestrator."""

    def held_keys(self, observed: Sequence[HostFacts]) -> HeldKeys:
        """Return the keys that hosts already hold."""

    def draft(self, site: Site) -> Draft:
        """Return this orchestrator's part of the plan."""
