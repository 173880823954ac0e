"""Finds the known cause of a failed run in the output of a rank and of mpirun, and words the headline."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import takewhile

from msgspec import Struct

from kit.model.run import EndedBefore, Failure
from kit.plan.run.banners import RULE_OFF
from kit.plan.run.causes import (
    AFTERMATH,
    ENDINGS,
    HUNG_UP,
    NOTICED,
    OF_RANKS,
    READ_ONLY,
    SURE,
    SURVIVED,
    TELLING,
    WARNINGS,
    Rule,
)

# The numbers of Linux, whatever this machine runs: a shell reports a signal as exit code 128 plus its number.
SIGNALS = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}
# How much of the output is searched: the last lines, and the start of each. A progress bar may print one line of a
# megabyte.
LINES = 1000
LINE = 2000
# The lines of a message below an exception.
MESSAGE = 12
# What `…` in a pattern matches. The bound keeps a search of any line short.
GAP = "[^\n]{0,300}?"

_HOLE = re.compile(r"(…|\{\w+(?::[^}]+)?\})")
_TRACEBACK = "Traceback (most recent call last):"
# The line below a traceback. An exception may have any name: cv2.error, queue.Empty.
_NAMED = re.compile(r"[A-Za-z_][\w.<>]*(?::|$)")
# The lines of a traceback. What is above one of them is from another source, such as NCCL, whose lines begin with
# `gpu1:`.
_FRAMES = ('  File "', "    ")
# The traceback may be above the lines that kit has. Then only these names are recognized.
_EXCEPTION = re.compile(r"(?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit)(?::|$)")
# With a process group, PyTorch writes the rank before each line of a traceback.
_RANK = re.compile(r"^\[rank\d+\]: ")
# Python 3.13 and others color their lines on a terminal, and elsewhere if FORCE_COLOR is set.
_COLOR = re.compile(r"\x1b\[[\d;]*m")
# An exception group, such as one of asyncio, has a bar before each line, and a numbered rule above each member.
_GROUP = "Exception Group Traceback (most recent call last):"
_BAR = re.compile(r"^ +[|+] ?")
_MEMBER = re.compile(r"[-+]+ (?:\d+|\.\.\.) -+$")
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
# Compiled code may crash in the cleanup after the exception that ended the program. A program that another signal ended
# had handled its exceptions.
_CRASHES = ("SIGABRT", "SIGSEGV")
# Printed during the cleanup after the exception that ended the program.
_IGNORED = ("Exception ignored ", "Error in atexit")
# So is this, if it directly follows that exception: a thread, such as one that reads data, ends after the main one.
_THREAD = "Exception in thread "
# mpirun prints this when a host never started a rank.
_UNSTARTED = "unable to reliably start one or more daemons"
# Lines of mpirun, or of torchrun, that do not say why it gave up: warnings, what follows from the end of a rank, and
# what is around an exception.
_UNINFORMATIVE = (
    *_CHAINED,
    _TRACEBACK,
    "Exception raised from ",
    "frame #",
    "<omitting python frames>",
    "[",
    "WARNING",
    "Warning: ",
    "Primary job",
    "mpirun detected that",
    "mpirun noticed that",
    "It appears as if",
    "It looks like MPI_INIT failed",
    " ",
    "*",
)


class Cause(Struct, frozen=True, kw_only=True):
    """What happened, in one sentence, and how to fix it, with a command if there is one."""

    text: str
    hint: str


class _Output(Struct, frozen=True):
    """The output of one source: all its lines, and the lines of the exceptions that ended it."""

    lines: str = ""
    raised: str = ""


def cause(failure: Failure, run: str = "RUN") -> Cause | None:
    """Return the known cause, or None. A line of the rank wins over one of mpirun, and both over the exit code.

    `run` is the id that hints name.
    """
    if failure.kind == "code":
        if any("no space left" in line for line in failure.lines):
            host = failure.host or "HOST"
            free = f"free space there (kit ssh {host} -- df -h), then run the command again"
            return Cause(text="no rank was started, because the code of the run does not fit on a host", hint=free)
        again = "run the command again: kit sends the code to this host first"
        return Cause(text="no rank was started, because a host lacks the code of the run", hint=again)
    lines = _end(failure.lines)
    exceptions = _exceptions(lines) if _signal(failure) in ("", *_CRASHES) else []
    rank = _Output("\n".join(_without_survived(lines, exceptions)), "\n".join(exceptions))
    own = _end(failure.mpirun)
    # If no rank failed, these are of torchrun. Else they follow from the end of the rank.
    mpirun = _Output("\n".join(own), "\n".join(_exceptions(own)) if failure.kind == "mpirun" else "")
    known = _find(SURE, failure, run) or _find(OF_RANKS, failure, run, rank) or _find(TELLING, failure, run, mpirun)
    aftermath = _find(AFTERMATH, failure, run, rank)
    if not known and (failure.kind != "rank" or _signal(failure) or aftermath):
        known = _find(WARNINGS, failure, run, rank) or _find(WARNINGS, failure, run, mpirun)
    # The other rules of AFTERMATH tell of more than the end of another rank.
    if failure.before is not None and _find((NOTICED,), failure, run, rank):
        aftermath = _ended_before(failure.before, run)
    return (
        known
        or aftermath
        or _find(ENDINGS, failure, run)
        or _find((READ_ONLY,), failure, run, rank)
        or _find((READ_ONLY,), failure, run, mpirun)
    )


def _ended_before(before: EndedBefore, run: str) -> Cause:
    """Return the cause of a failure that follows from the end of a rank that had none."""
    lines = f"kit logs {shlex.quote(run)} --rank {before.rank}"
    return Cause(
        text=f"rank {before.rank} on {before.host} had ended without an error, and this rank still needed it",
        hint=f"make all ranks run the same number of steps; see its lines: {lines}",
    )


def hung_up(failure: Failure) -> bool:
    """Return whether a node's sshd closed the head's connection before the login. Its log may say why."""
    lines = _Output("\n".join(_end(failure.mpirun)))
    return failure.kind == "host" and _words(HUNG_UP, lines) is not None


def headline(failure: Failure) -> str:  # noqa: PLR0911  (one case a kind)
    """Return which rank failed on which host, and how it ended."""
    if failure.kind == "host":
        # A host that never started a rank was never part of the run.
        how = "could not be reached" if any(_UNSTARTED in line for line in failure.mpirun) else "went away"
        return f"{failure.host or 'a host'} {how}"
    if failure.kind == "code":
        return f"the code is not ready on {failure.host}: {failure.lines[0] if failure.lines else 'it gave no reason'}"
    if failure.kind == "mpirun":
        sentences = [sentence for sentence in _sentences(failure.mpirun) if _shown(sentence)]
        if sentences:
            return f"mpirun gave up: {_shown(next(filter(_is_informative, sentences), sentences[0]))}"
        if failure.signal:
            return f"mpirun on {failure.host or 'the head'} was killed by {failure.signal}"
        return "mpirun gave up" + (f" with exit code {failure.exit_code}" if failure.exit_code is not None else "")
    who = f"rank {failure.rank}"
    if failure.rank is None:
        # Without a host, it ended before all ranks had started.
        who = "a rank" if failure.host else "a rank that mpirun does not name"
    if failure.role:
        who = f"{failure.role} ({who})"
    where = f" on {failure.host}" if failure.host else ""
    why = ": out of memory" if failure.oom else ""
    if failure.signal:
        return f"{who}{where} was killed by {failure.signal}{why}"
    code = f"exit code {failure.exit_code}" if failure.exit_code is not None else "an error"
    return f"{who}{where} ended with {code}{why}"


def regex(pattern: str) -> str:
    """Return the regular expression of a pattern; kit.plan.run.causes.rule explains patterns."""
    parts = []
    quote = ""
    for part in _HOLE.split(pattern):
        if part == "…":
            parts.append(GAP)
        elif _HOLE.fullmatch(part):
            name, _, begin = part[1:-1].partition(":")
            word = f"[^{quote}\n]" if quote else r"[^\s<>,'\"]"
            parts.append(f"(?P<{name}>{re.escape(begin)}{word}{{{0 if begin else 1},200}})")
        else:
            parts.append(re.escape(part))
            quote = part[-1:] if part[-1:] in ("'", '"') else ""
    return "".join(parts)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(regex(pattern))


@cache
def _fixed(pattern: str) -> tuple[str, ...]:
    """Return the parts of a pattern between its holes, the longest first."""
    parts = [part for part in _HOLE.split(pattern) if not _HOLE.fullmatch(part)]
    return tuple(sorted(parts, key=len, reverse=True))


def _find(rules: Iterable[Rule], failure: Failure, run: str, output: _Output | None = None) -> Cause | None:
    for rule in rules:
        if not _matches_ending(rule, failure):
            continue
        words = _words(rule, output) if output else {}
        if words is not None:
            shown = {name: _shown(word) for name, word in words.items()}
            values = {"host": failure.host or "HOST", "run": run, **shown}
            # Users copy hints into a shell.
            quoted = {name: shlex.quote(value) for name, value in values.items()}
            return Cause(text=rule.text.format(**values), hint=rule.hint.format(**quoted))
    return None


def _matches_ending(rule: Rule, failure: Failure) -> bool:
    """Return whether the rule allows this kind of failure, exit code and signal."""
    return (
        rule.kind in (None, failure.kind)
        and rule.exit_code in (None, failure.exit_code)
        and rule.signal in ("", _signal(failure))
        and (failure.oom or not rule.oom)
    )


def _signal(failure: Failure) -> str:
    return failure.signal or SIGNALS.get((failure.exit_code or 0) - 128, "")


def _words(rule: Rule, output: _Output) -> dict[str, str] | None:
    """Return the values of the holes of the first pattern that matches, or None if no pattern matches."""
    for text, patterns in ((output.lines, rule.says), (output.raised, rule.raised)):
        for pattern in patterns:
            # To look for its fixed parts takes far less time than the regular expression, and most texts lack one.
            if all(part in text for part in _fixed(pattern)) and (match := _compiled(pattern).search(text)):
                return match.groupdict()
    return None


def _end(lines: Sequence[str]) -> list[str]:
    return [_COLOR.sub("", line[:LINE]) for line in lines[-LINES:]]


def _plain(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines without the ranks that PyTorch writes before them, and without the bars of exception groups.

    The members of a group are chained to it: each of them ended the program.
    """
    grouped = False
    for line in lines:
        own = _RANK.sub("", line)
        grouped = own.startswith(f"  + {_GROUP}") or (grouped and _BAR.match(own) is not None)
        inner = _BAR.sub("", own) if grouped else own
        yield _CHAINED[0] if grouped and _MEMBER.match(inner) else inner


def _exceptions(lines: Iterable[str]) -> list[str]:
    """Return the exception that ended a Python program and those it was raised from, without handled ones."""
    exceptions: list[str] = []
    chained = ignored = traced = False
    ended = -1
    plain = list(_plain(lines))
    for at, (line, below) in enumerate(zip(plain, [*plain[1:], ""], strict=False)):
        if line.startswith(_CHAINED):
            chained = True
        elif line.startswith(_IGNORED) or (line.startswith(_THREAD) and exceptions and at == ended + 1):
            ignored = True
        elif line.startswith((_TRACEBACK, _GROUP)):
            traced = True
        elif _EXCEPTION.match(line) or (traced and _NAMED.match(line) and not below.startswith(_FRAMES)):
            if not ignored and not chained:
                exceptions.clear()
            if not ignored:
                exceptions.append(_message(plain, at))
            chained = ignored = traced = False
            ended = at
    return exceptions


def _message(lines: Sequence[str], at: int) -> str:
    """Return the line of an exception. If that ends with a colon, its message goes on in the lines below it."""
    if not lines[at].endswith(":"):
        return lines[at]
    more = takewhile(lambda line: not line.startswith((_TRACEBACK, *_CHAINED, *_IGNORED)), lines[at + 1 : at + MESSAGE])
    return " ".join(" ".join([lines[at], *more]).split())[:LINE]


def _without_survived(lines: list[str], exceptions: list[str]) -> list[str]:
    """Leave out the errors that a program survived, if an exception of another kind ended it."""
    if not exceptions:
        return lines
    raised = "\n".join(exceptions)
    survived = [words for words, kinds in SURVIVED.items() if not any(kind in raised for kind in kinds)]
    return [*(line for line in lines if not any(words in line for words in survived)), *exceptions]


def _sentences(lines: Sequence[str]) -> Iterator[str]:
    """Yield each line of mpirun; of a message framed in dashes, yield only the first sentence."""
    framed = False
    block: list[str] = []
    for line in (*lines, RULE_OFF):
        if not line.strip().startswith(RULE_OFF):
            block.append(line)
            continue
        if framed:
            opening = takewhile(lambda line: line.strip() and not line.startswith(" "), block)
            text = " ".join(" ".join(opening).split())
            yield re.split(r"(?<=\.) ", text, maxsplit=1)[0].rstrip(".:")
        else:
            yield from (line.removeprefix("mpirun: ").removeprefix("Error: ") for line in block if line.strip())
        block, framed = [], not framed


def _is_informative(line: str) -> bool:
    return not line.startswith(_UNINFORMATIVE)


def _shown(text: str) -> str:
    """Return the start of a text without characters that could control the terminal."""
    return "".join(char for char in text[:LINE] if char.isprintable())[:200].strip()
