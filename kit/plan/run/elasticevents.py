"""What kit-elastic reports in a run's log: each reset, and why it cannot go on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kit.events import Note, Warned
from kit.model.answer import convert, within
from kit.model.text import fold
from kit.plan.run.elastic import WRITE
from kit.plan.run.logevents import MOST_RANKS


@dataclass(frozen=True, kw_only=True)
class Reset:
    """Horovod built its world again, in `seconds` after the first sign: hosts that `joined`, and that `left`."""

    joined: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    np_before: int = 0
    np: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Short:
    """Fewer slots than --min-np are left. The run waits for hosts, at most for `seconds`."""

    available: int = 0
    least: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Refused:
    """A rank failed, and no rank had reached Horovod's elastic state."""

    rank: int = 0
    host: str = ""
    exit_code: int = 0


@dataclass(frozen=True, kw_only=True)
class Over:
    why: str = ""


def elastic_event(fields: Mapping[str, Any]) -> Note | Warned:
    """Return what to tell about an event of kit-elastic. Raises OddAnswer."""
    match fields.get("event"):
        case "reset":
            return Warned(text=reset(convert(fields, Reset)))
        case "short":
            short = convert(fields, Short)
            text = f"{short.available} slots are left, and --min-np is {short.least}: the run waits up to "
            return Warned(text=f"{text}{short.seconds:.0f} s for hosts", hint="add some: kit hosts add HOST…")
        case "refused":
            refused = convert(fields, Refused)
            text = f"rank {refused.rank} on {refused.host} failed, and no rank had reached hvd.elastic.run: "
            return Warned(text=f"{text}the script has no elastic state, or fails before it", hint=WRITE)
        case _:
            return Warned(text=f"the elastic run cannot go on: {convert(fields, Over).why}")


def reset(value: Reset) -> str:
    """Return `reset: gpu3 left; 6 → 4 ranks; 12.3 s lost`."""
    for count in (value.np, value.np_before):
        within(count, 0, MOST_RANKS, "the number of ranks")
    moves = [f"{fold(hosts)} {verb}" for hosts, verb in ((value.left, "left"), (value.joined, "joined")) if hosts]
    ranks = f"{value.np_before} → {value.np} ranks" if value.np != value.np_before else f"{value.np} ranks"
    return f"reset: {'; '.join([*moves, ranks, f'{value.seconds:.1f} s lost'])}"
