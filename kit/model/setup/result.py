"""What came of `kit setup`: the plan with what it leaves open, and the hosts afterwards."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from kit.model.plan import Plan


class Remark(Struct, frozen=True, kw_only=True):
    """Something about hosts that a person should know. It does not prevent the rest."""

    host: str
    text: str
    hint: str | None = None


class Draft(Struct, frozen=True, kw_only=True):
    """A plan with what it leaves open. `waiting` maps a host to what needs a reboot there."""

    plan: Plan
    waiting: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    remarks: tuple[Remark, ...] = ()


class SetupHost(Struct, frozen=True, kw_only=True):
    """One host after the verb. `status` is ok or unchanged. `waiting` is what needs a reboot."""

    host: str
    status: str
    steps: int
    engine: str
    compose: str
    waiting: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()


class SetupResult(Struct, frozen=True, kw_only=True):
    """What `kit setup` did. `undo`: it restored what an earlier one had changed. `remarks` is what it leaves open."""

    hosts: tuple[SetupHost, ...]
    changed: bool
    undo: bool
    seconds: float
    remarks: tuple[Remark, ...] = ()
