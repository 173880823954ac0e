"""What a flow reports while it works, and the Reporter that it reports to. No event is ever needed for a result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

Stream = Literal["stdout", "stderr"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Note:
    """A line for the person who waits."""

    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Warned:
    """Something that a person should know, though the flow goes on."""

    text: str
    hint: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Phase:
    """A new phase of the flow begins, on these hosts (empty: on this machine)."""

    name: str
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class HostStep:
    """A host (or a local task of that name) is at this step. `fraction` is 0..1, None when it cannot be known."""

    host: str
    text: str
    fraction: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class HostDone:
    host: str
    text: str = "done"


@dataclass(frozen=True, kw_only=True, slots=True)
class HostFailed:
    host: str
    text: str
    hint: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputLine:
    """One whole line (no newline) from a run, a container's log or a command. `source` is a rank or host, or ''."""

    text: str
    stream: Stream = "stdout"
    source: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class UnfinishedLine:
    """What a line shows before it ends: a progress bar, a prompt. More of them follow, and at last an OutputLine.

    `live`: a file or pipe gets it, too. Another rank's line may interrupt it there, and then it begins again.
    """

    text: str
    stream: Stream = "stdout"
    source: str = ""
    live: bool = True


Event = Note | Warned | Phase | HostStep | HostDone | HostFailed | OutputLine | UnfinishedLine


class Reporter(Protocol):
    """Takes events, from any thread, in order of arrival for each host. Must not raise."""

    def report(self, event: Event) -> None: ...


class Silent:
    """A reporter that drops everything."""

    def report(self, event: Event) -> None:
        pass
