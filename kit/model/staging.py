"""What a stager answers, decoded and checked. The host may be one that somebody broke into.

images/lib/kitdata has the other side. All sizes are in bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from msgspec import Struct, field

from kit.model.answer import MOST, OddAnswer, convert, within

# The longest line: a plan of 10,000 hosts.
MOST_LINE = 4 << 20
# The longest text and path, in characters.
_MOST_TEXT, _MOST_PATH = 4000, 4096
# The longest name of a host.
_MOST_NAME = 253
_MOST_PORT = 65535
# A year: how long a staging may take, in seconds.
_MOST_SECONDS = 365 * 86400.0
# Wrong files that one host names.
_MOST_WRONG = 100
# Seconds since 1970, and how long the summary of a data set on a host may be.
_LATEST = 2.0**36
MOST_SUMMARY = 1 << 16


class Hello(Struct, frozen=True, kw_only=True):
    """The stager's version, the id of the staging that it takes part in, and whether it leads that.

    `mounted`: whether it has mounted a source.
    """

    version: int
    staging: str | None = None
    lead: bool = False
    mounted: bool = False


class Joined(Struct, frozen=True, kw_only=True):
    """The stager takes part: the port at which it listens, and the free bytes where it stages."""

    port: int
    free: int = 0


class Counted(Struct, frozen=True, kw_only=True):
    """What a listing has counted so far."""

    files: int = 0
    bytes: int = 0


class Need(Struct, frozen=True, kw_only=True):
    """What a host needs of a staging, and what it has already."""

    need: int = 0
    have: int = 0


class StagingPlan(Struct, frozen=True, kw_only=True):
    """What a staging is about to do. `new` and `removed` are files; `read` is what the source is read for."""

    files: int = 0
    bytes: int = 0
    new: int = 0
    removed: int = 0
    read: int = 0
    hosts: dict[str, Need] = field(default_factory=dict)


class StagingProgress(Struct, frozen=True, kw_only=True):
    """What each host has, in bytes of what it needs, and what was read from the source."""

    at: dict[str, int] = field(default_factory=dict)
    read: int = 0


class Lost(Struct, frozen=True, kw_only=True):
    """A host is out of the staging. The others go on."""

    host: str
    text: str = ""


class WrongPiece(Struct, frozen=True, kw_only=True):
    """A piece came to this host with wrong bytes, and is fetched again."""

    host: str
    file: str = ""


class ChangedFile(Struct, frozen=True, kw_only=True):
    """A file of the source changed while it was read."""

    file: str


class Staged(Struct, frozen=True, kw_only=True):
    """How a staging ended. `hosts` are those that have the data set now."""

    files: int = 0
    bytes: int = 0
    new: int = 0
    removed: int = 0
    read: int = 0
    seconds: float = 0.0
    hosts: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


class Failed(Struct, frozen=True, kw_only=True):
    """Why an order failed. kit.plan.data.failures makes an error of it."""

    kind: str
    host: str | None = None
    text: str = ""


class Asked(Struct, frozen=True, kw_only=True):
    """The staging that a watcher joins. `limit` is in bytes a second; 0 for none. `since`: seconds since 1970."""

    id: str = ""
    source: str = ""
    limit: int = 0
    since: float = 0.0


class Checked(Struct, frozen=True, kw_only=True):
    """How far a host has read its files."""

    bytes: int = 0
    of: int = 0


class WrongFile(Struct, frozen=True, kw_only=True):
    file: str
    why: str = ""


class Verified(Struct, frozen=True, kw_only=True):
    """What a host found in its files. `wrong` are the first wrong ones, and `more` counts the others."""

    files: int = 0
    bytes: int = 0
    wrong: tuple[WrongFile, ...] = ()
    more: int = 0


class Mounted(Struct, frozen=True, kw_only=True):
    """The source is mounted. `already`: an earlier order had mounted it."""

    already: bool = False


class StagerAnswer(Struct, frozen=True, kw_only=True):
    """One line of a stager: one of these."""

    hello: Hello | None = None
    joined: Joined | None = None
    request: Asked | None = None
    listing: Counted | None = None
    plan: StagingPlan | None = None
    progress: StagingProgress | None = None
    lost: Lost | None = None
    wrong: WrongPiece | None = None
    changed: ChangedFile | None = None
    done: Staged | None = None
    failed: Failed | None = None
    stopped: bool | None = None
    checked: Checked | None = None
    verified: Verified | None = None
    mounted: Mounted | None = None


class Summary(Struct, frozen=True, kw_only=True):
    """staged.json: what one host has of a data set. `id` is the staging that brought it, `at` seconds since 1970.

    `among`: with split, the names of the hosts that share the files; "" if it is not known.
    """

    name: str = ""
    source: str = ""
    stage: str = ""
    split: str = "none"
    files: int = 0
    bytes: int = 0
    id: str = ""
    at: float = 0.0
    among: str = ""


def loaded(text: bytes | str, *, most: int) -> object:
    """Return a JSON value of at most `most` bytes. Raises OddAnswer.

    A name of a file need not be UTF-8: Python then has it with surrogates, which msgspec refuses to decode.
    """
    if len(text) > most:
        raise OddAnswer(f"it has more than {most} bytes", text)
    try:
        value: object = json.loads(text)
    except RecursionError:
        raise OddAnswer("it is nested too deeply", text) from None
    except ValueError as error:
        raise OddAnswer(str(error), text) from None
    return value


def read(line: bytes) -> StagerAnswer:
    """Return the answer of one line. Raises OddAnswer."""
    answer: StagerAnswer = convert(loaded(line, most=MOST_LINE), StagerAnswer)
    _check_sizes(answer)
    _check_texts(answer, line)
    if answer.joined is not None:
        within(answer.joined.port, 1, _MOST_PORT, "the port")
    if answer.done is not None:
        within(answer.done.seconds, 0, _MOST_SECONDS, "the time")
    if answer.request is not None:
        within(answer.request.since, 0, _LATEST, "the time")
    return answer


def read_summary(text: bytes | str) -> Summary:
    """Return what staged.json says. Raises OddAnswer."""
    summary: Summary = convert(loaded(text, most=MOST_SUMMARY), Summary)
    for number in (summary.files, summary.bytes):
        within(number, 0, MOST, "a number")
    within(summary.at, 0, _LATEST, "the time")
    if any(len(name) > _MOST_NAME for name in summary.among.split()):
        raise OddAnswer("a name is too long", text)
    return summary


def _check_sizes(answer: StagerAnswer) -> None:
    parts: Iterable[object] = (
        *(answer.joined, answer.listing, answer.plan, answer.progress, answer.done, answer.request, answer.checked),
        *(answer.plan.hosts.values() if answer.plan else ()),
        answer.verified,
    )
    for part in parts:
        for name in ("free", "files", "bytes", "new", "removed", "read", "need", "have", "limit", "of", "more"):
            within(getattr(part, name, 0), 0, MOST, "a number")
    for number in answer.progress.at.values() if answer.progress else ():
        within(number, 0, MOST, "a number")


def _check_texts(answer: StagerAnswer, line: bytes) -> None:
    texts = [answer.lost.text if answer.lost else "", answer.failed.text if answer.failed else ""]
    texts += [answer.request.id, answer.request.source] if answer.request else []
    if any(len(text) > _MOST_TEXT for text in texts):
        raise OddAnswer("a text is too long", line)
    named = [answer.wrong.file] if answer.wrong else [answer.changed.file] if answer.changed else []
    if answer.verified is not None:
        if len(answer.verified.wrong) > _MOST_WRONG:
            raise OddAnswer("it names too many files", line)
        named += [wrong.file for wrong in answer.verified.wrong]
    if any(len(path) > _MOST_PATH for path in named):
        raise OddAnswer("a path is too long", line)


def order_line(**words: object) -> bytes:
    """Return an order as the line that a stager reads."""
    return json.dumps(words).encode() + b"\n"
