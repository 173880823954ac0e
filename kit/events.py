"""What a flow reports while it works, and the Reporter that it reports to. No event is ever needed for a result."""

from __future__ import annotations

from typing import Literal, Protocol

from msgspec import Struct

Stream = Literal["stdout", "stderr"]


class Note(Struct, frozen=True, kw_only=True):
    """A line for the person who waits."""

    text: str


class Warned(Struct, frozen=True, kw_only=True):
    """Something that a person should know, though the flow goes on."""

    text: str
    hint: str | None = None


class Phase(Struct, frozen=True, kw_only=True):
    """A new phase of the flow begins, on these hosts (empty: on this machine)."""

    name: str
    hosts: tuple[str, ...] = ()


class HostStep(Struct, frozen=True, kw_only=True):
    """A host (or a local task of that name) is at this step. `fraction` is 0..1, None when it cannot be known."""

    host: str
    text: str
    fraction: float | None = None


class HostDone(Struct, frozen=True, kw_only=True):
    host: str
    text: str = "done"


class HostFailed(Struct, frozen=True, kw_only=True):
    host: str
    text: str
    hint: str | None = None


class OutputLine(Struct, frozen=True, kw_only=True):
    """One whole line (no newline) from a run, a container's log or a command. `source` is a rank or host, or ''.

    `raw` has the bytes of a line that is not UTF-8, for a file or pipe. `text` then has U+FFFD in place of some.
    """

    text: str
    stream: Stream = "stdout"
    source: str = ""
    raw: bytes | None = None


class UnfinishedLine(Struct, frozen=True, kw_only=True):
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
