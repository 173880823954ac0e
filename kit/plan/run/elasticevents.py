"""What kit-elastic reports in a run's log: each reset, and why it cannot go on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from kit.events import Note, Warned
from kit.model.answer import MOST, convert, within
from kit.model.text import fold
from kit.plan.run.diagnose import SIGNALS
from kit.plan.run.elastic import WRITE
from kit.plan.run.logevents import MOST_RANKS

# ssh's own exit code for a connection that broke.
_BROKEN = 255


class Failed(Struct, frozen=True, kw_only=True):
    """A rank that failed. The exit code is 255 where the connection to its host broke.

    `reported`: the exit code is the rank's own.
    """

    rank: int = 0
    host: str = ""
    exit_code: int = 0
    reported: bool = False


class Reset(Struct, frozen=True, kw_only=True):
    """Horovod built its world again, in `seconds` after the first sign: hosts that `joined`, and that `left`.

    `failed` is the rank whose end began it, or None if hosts only came or left.
    """

    joined: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    np_before: int = 0
    np: int = 0
    seconds: float = 0.0
    failed: Failed | None = None


class Short(Struct, frozen=True, kw_only=True):
    """Fewer slots than --min-np are left. The run waits for hosts, at most for `seconds`."""

    available: int = 0
    least: int = 0
    seconds: float = 0.0


class Refused(Failed, frozen=True, kw_only=True):
    """A rank failed, and no rank had reached Horovod's elastic state."""


class Over(Struct, frozen=True, kw_only=True):
    why: str = ""


def elastic_event(fields: Mapping[str, Any]) -> Note | Warned:
    """Return what to tell about an event of kit-elastic. Raises OddAnswer."""
    match fields.get("event"):
        case "reset":
            return Warned(text=reset(convert(fields, Reset)))
        case "short":
            short = convert(fields, Short)
            for count in (short.available, short.least):
                within(count, 0, MOST_RANKS, "the number of slots")
            within(short.seconds, 0, MOST, "the time for which the run waits")
            text = f"{short.available} slots are left, and --min-np is {short.least}: the run waits up to "
            return Warned(text=f"{text}{short.seconds:.0f} s for hosts", hint="add some: kit hosts add HOST…")
        case "refused":
            refused = convert(fields, Refused)
            within(refused.rank, 0, MOST_RANKS, "a rank")
            text = f"rank {refused.rank} on {refused.host} failed, and no rank had reached hvd.elastic.run: "
            return Warned(text=f"{text}the script has no elastic state, or fails before it", hint=WRITE)
        case _:
            return Warned(text=f"the elastic run cannot go on: {convert(fields, Over).why}")


def reset(value: Reset) -> str:
    """Return `reset: gpu3 left; 6 → 4 ranks; 12.3 s lost; rank 5 on gpu3 was killed by SIGKILL`."""
    for count in (value.np, value.np_before):
        within(count, 0, MOST_RANKS, "the number of ranks")
    within(value.seconds, 0, MOST, "the time of a reset")
    moves = [f"{fold(hosts)} {verb}" for hosts, verb in ((value.left, "left"), (value.joined, "joined")) if hosts]
    ranks = f"{value.np_before} → {value.np} ranks" if value.np != value.np_before else f"{value.np} ranks"
    why = [_cause(value.failed)] if value.failed is not None else []
    return f"reset: {'; '.join([*moves, ranks, f'{value.seconds:.1f} s lost', *why])}"


def _cause(failed: Failed) -> str:
    if failed.exit_code == _BROKEN and not failed.reported:
        return f"the connection to {failed.host} broke"
    within(failed.rank, 0, MOST_RANKS, "a rank")
    signal = SIGNALS.get(failed.exit_code - 128)
    how = f"was killed by {signal}" if signal else f"ended with exit code {failed.exit_code}"
    return f"rank {failed.rank} on {failed.host} {how}"
