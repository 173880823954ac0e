"""Finds the rank whose failure the first one that ended only noticed. Pure.

A rank of Horovod that ends by an exception first lets the others know, and waits for them. So their ends may come
before its own, which mpirun then even cuts short.
"""

import re
from itertools import takewhile
from typing import Callable, List, Mapping

from kitrun.decide import RankEnd, is_terminated

# What ranks write that only noticed the end of another one. kit knows more such lines (kit.plan.run.causes.ending).
NOTICED = (
    "Horovod has been shut down.",
    "HorovodInternalError",
    "Connection closed by peer [",
    "Connection closed by remote peer",
    "Connection reset by peer",
    "remote process exited or there was a network error",
    "ailed to recv, got 0 bytes",
    "DistNetworkError: Broken pipe",
    "another task died",
)
_TRACEBACK = "Traceback (most recent call last):"
# Above a traceback that only follows from the one before it: chained, or printed during the cleanup.
_FOLLOWS = (
    "During handling of the above exception",
    "The above exception was the direct cause",
    "Exception ignored ",
    "Error in atexit",
)
# So does this, if it directly follows that exception: a thread ends after the main one.
_THREAD = "Exception in thread "
# The line below a traceback, and one whose traceback is above the lines that the head has.
_NAMED = re.compile(r"[A-Za-z_][\w.<>]*(?::|$)")
_EXCEPTION = re.compile(r"(?:\w+\.)*\w*(?:Error|Exception|Interrupt)(?::|$)")
# What a program writes that has survived its exception: lines of logging, and bars.
_GOES_ON = re.compile(r"(?:DEBUG|INFO|WARNING|ERROR)\b|\d{4}-\d\d-\d\d[ T]|.{0,80}?\d%\|")
# With a process group, PyTorch writes the rank before each line of a traceback. Python 3.13 colors it on a terminal,
# and elsewhere if FORCE_COLOR is set.
_AROUND = re.compile(r"^\[rank\d+\]: |\x1b\[[\d;]*m")


def origin(
    first: RankEnd,
    up: Mapping[int, str],
    ended: Mapping[int, RankEnd],
    wrote: Mapping[int, int],
    lines: Callable[[int], List[str]],
) -> RankEnd:
    """Return how the rank ended that another one's end, `first`, follows from; or `first`.

    `up` has the hosts of ranks, and `ended` what their keepers reported. `wrote` orders ranks by their last lines of
    standard error, and `lines` returns these.
    """
    if first.rank is None or first.oom or not _noticed(_ending(lines(first.rank))):
        return first
    others = [rank for rank in up if rank != first.rank and _failed(ended.get(rank), lines(rank))]
    if not others:
        return first
    rank = min(others, key=lambda one: (wrote.get(one, 0), one))
    end = ended.get(rank)
    # mpirun ended it on its way out. Python ends with 1 after an exception.
    return RankEnd(rank, up[rank], 1, 0, False) if end is None or is_terminated(end) else end


def ended_before(first: RankEnd, ended: Mapping[int, RankEnd], lines: Callable[[int], List[str]]) -> "RankEnd | None":
    """Return the rank that ended without an error before `first`, which only noticed the end of another one; or None.

    `ended` has the ranks in the order in which they ended.
    """
    if first.rank is None or first.oom or not _noticed(_ending(lines(first.rank))):
        return None
    earlier = takewhile(lambda end: end.rank != first.rank, ended.values())
    return next((end for end in earlier if not end.code and not end.signal), None)


def _failed(end: "RankEnd | None", lines: List[str]) -> bool:
    """Return whether the rank failed by itself: by an exception, or by a signal that mpirun does not send."""
    if _noticed(lines) or (end is not None and not end.code and not end.signal):
        return False
    return _raised(lines) or (end is not None and end.signal > 0 and not is_terminated(end))


def _ending(lines: List[str]) -> List[str]:
    """Return the last traceback, with those that it follows from, and what is below; or all lines without one.

    A program may survive a connection that was reset, and write a warning about it.
    """
    begin, follows, above = 0, False, ""
    for at, line in enumerate(_AROUND.sub("", line) for line in lines):
        if line.startswith(_TRACEBACK):
            begin, follows = (begin if follows else at), False
        follows = follows or line.startswith(_FOLLOWS)
        follows = follows or (line.startswith(_THREAD) and _EXCEPTION.match(above) is not None)
        above = line
    return lines[begin:]


def _noticed(lines: List[str]) -> bool:
    return any(word in line for line in (_AROUND.sub("", line) for line in lines) for word in NOTICED)


def _raised(lines: List[str]) -> bool:
    plain = [_AROUND.sub("", line) for line in lines if line.strip()]
    begins = [at for at, line in enumerate(plain) if line.startswith(_TRACEBACK)]
    below = plain[begins[-1] + 1 :] if begins else []
    if any(_GOES_ON.match(line) for line in below):
        return False
    return any(_NAMED.match(line) for line in below) or bool(plain and _EXCEPTION.match(plain[-1]))
