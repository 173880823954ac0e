"""What went wrong first in a run, and what to do: known causes, looked for in what a rank and mpirun said."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import takewhile

from kit.model.run import Failure
from kit.plan.run.causes import AFTERMATH, ENDINGS, SURE, TELLING, WARNINGS, Rule

# Linux's numbers, whatever this machine has: a shell tells a signal's end as 128 and the number.
SIGNALS = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}
# How much is looked at: the last lines, and the beginning of each. A progress bar may be a line of a megabyte.
LINES = 1000
LINE = 2000
# For what `…` stands: bounded, so that no line takes long.
GAP = "[^\n]{0,300}?"

_HOLE = re.compile(r"(…|\{\w+(?::[^}]+)?\})")
_EXCEPTION = re.compile(r"(?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit)(?::|$)")
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
# Of the clean-up behind the exception that ended the program.
_IGNORED = ("Exception ignored in", "Error in atexit")
_UNSTARTED = "unable to reliably start one or more daemons"
# Above and below a message of mpirun.
_RULE_OFF = "-" * 20
# mpirun's lines that do not say why: what follows from a rank's end, and warnings.
_NOT_TELLING = (
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Cause:
    """What it was, in one sentence, and the fix, with a command where there is one."""

    text: str
    hint: str


@dataclass(frozen=True, slots=True)
class _Output:
    """What somebody said: all of it, and the exceptions that ended it. Both have a line for each line."""

    said: str = ""
    raised: str = ""


def cause(failure: Failure) -> Cause | None:
    """The known cause, or None. The rank's own lines go before mpirun's, and lines before how it ended."""
    lines = _end(failure.lines)
    rank = _Output("\n".join(lines), "\n".join(_exceptions(lines)))
    mpirun = _Output("\n".join(_end(failure.mpirun)))
    found = _find(SURE, failure) or _find(TELLING, failure, rank) or _find(TELLING, failure, mpirun)
    aftermath = _find(AFTERMATH, failure, rank)
    if not found and (failure.kind != "rank" or _signal(failure) or aftermath):
        found = _find(WARNINGS, failure, rank) or _find(WARNINGS, failure, mpirun)
    return found or aftermath or _find(ENDINGS, failure)


def told(failure: Failure) -> str:
    """The headline: which rank on which host, and how it ended."""
    if failure.kind == "host":
        # Before it had a rank, it could not go away.
        how = "could not be reached" if any(_UNSTARTED in line for line in failure.mpirun) else "went away"
        return f"{failure.host or 'a host'} {how}"
    if failure.kind == "mpirun":
        said = [sentence for line in _sentences(failure.mpirun) if (sentence := _shown(line))]
        if said:
            return f"mpirun gave up: {next(filter(_tells, said), said[0])}"
        if failure.signal:
            return f"mpirun on {failure.host or 'the head'} was killed by {failure.signal}"
        return "mpirun gave up" + (f" with exit code {failure.exit_code}" if failure.exit_code is not None else "")
    who = "a rank" if failure.rank is None else f"rank {failure.rank}"
    if failure.role:
        who = f"{failure.role} ({who})"
    where = f" on {failure.host}" if failure.host else ""
    why = ": out of memory" if failure.oom else ""
    if failure.signal:
        return f"{who}{where} was killed by {failure.signal}{why}"
    code = f"exit code {failure.exit_code}" if failure.exit_code is not None else "an error"
    return f"{who}{where} ended with {code}{why}"


def regex(pattern: str) -> str:
    """The regular expression of a pattern, as kit.plan.run.causes.rule explains them."""
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


def _find(rules: Iterable[Rule], failure: Failure, output: _Output | None = None) -> Cause | None:
    for rule in rules:
        if not _ended(rule, failure):
            continue
        words = _words(rule, output) if output else {}
        if words is not None:
            values = {"host": failure.host or "HOST", **{name: _shown(word) for name, word in words.items()}}
            # A hint may be copied into a shell.
            quoted = {name: shlex.quote(value) for name, value in values.items()}
            return Cause(text=rule.text.format(**values), hint=rule.hint.format(**quoted))
    return None


def _ended(rule: Rule, failure: Failure) -> bool:
    """Whether the rule may be for something that ended like this."""
    return (
        rule.kind in (None, failure.kind)
        and rule.exit_code in (None, failure.exit_code)
        and rule.signal in ("", _signal(failure))
        and (failure.oom or not rule.oom)
    )


def _signal(failure: Failure) -> str:
    return failure.signal or SIGNALS.get((failure.exit_code or 0) - 128, "")


def _words(rule: Rule, output: _Output) -> dict[str, str] | None:
    """What stands in the holes of the first pattern that fits; None where none does."""
    for text, patterns in ((output.said, rule.says), (output.raised, rule.raised)):
        for pattern in patterns:
            if text and (match := _compiled(pattern).search(text)):
                return match.groupdict()
    return None


def _end(lines: Sequence[str]) -> list[str]:
    return [line[:LINE] for line in lines[-LINES:]]


def _exceptions(lines: Iterable[str]) -> list[str]:
    """The exception that ended a Python program, and those that led to it: none that it printed and outlived."""
    found: list[str] = []
    chained = ignored = False
    for line in lines:
        if line.startswith(_CHAINED):
            chained = True
        elif line.startswith(_IGNORED):
            ignored = True
        elif _EXCEPTION.match(line):
            if not ignored and not chained:
                found.clear()
            if not ignored:
                found.append(line)
            chained = ignored = False
    return found


def _sentences(lines: Sequence[str]) -> Iterator[str]:
    """What mpirun says, line by line; of a message that it frames in dashes the first sentence."""
    framed = False
    block: list[str] = []
    for line in (*lines, _RULE_OFF):
        if not line.strip().startswith(_RULE_OFF):
            block.append(line)
            continue
        if framed:
            opening = takewhile(lambda line: line.strip() and not line.startswith(" "), block)
            text = " ".join(" ".join(opening).split())
            yield re.split(r"(?<=\.) ", text, maxsplit=1)[0].rstrip(".:")
        else:
            yield from (line.removeprefix("mpirun: ").removeprefix("Error: ") for line in block if line.strip())
        block, framed = [], not framed


def _tells(line: str) -> bool:
    return not line.startswith(_NOT_TELLING)


def _shown(text: str) -> str:
    """For a terminal: what a program printed may hold anything."""
    return "".join(char for char in text[:LINE] if char.isprintable())[:200].strip()
