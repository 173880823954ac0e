from __future__ import annotations

from dataclasses import dataclass

from kit.model.run import Failure


@dataclass(frozen=True, kw_only=True, slots=True)
class Cause:
    text: str
    hint: str


def cause(failure: Failure) -> Cause | None:
    return None


def told(failure: Failure) -> str:
    return f"{failure.kind} {failure.rank} on {failure.host}: {failure.exit_code} {failure.signal}"
