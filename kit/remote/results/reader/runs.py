"""Lists and removes the runs of a cluster."""

import json
import os
import re
import sys
import time
from typing import Dict

from .lists import entries
from .living import changed, file_size, lives
from .mounts import mounts
from .paths import FOLDER, opened, say, text

MADE = ("output", "checkpoints", "work")
# In ns. Ranks of root may set any time.
LATEST = 2**36 * 10**9
ID = re.compile("[0-9A-Za-z][0-9A-Za-z._-]{0,63}")


def ids(cluster: str, below: str) -> None:
    survey(cluster, below, sized=False)


def survey(cluster: str, below: str, stack: str = "", sized: bool = True) -> None:
    try:
        runs = opened(cluster, below)
    except (FileNotFoundError, NotADirectoryError):
        runs = -1
    if stack:
        say({"stack": os.path.exists(os.path.join(cluster, stack))})
    for name in sorted(os.listdir(runs)) if runs >= 0 else ():
        try:
            fd = os.open(name, FOLDER, dir_fd=runs)
        except OSError:
            continue
        more = dict(sizes(fd), began=began(fd)) if sized else {"started": started(fd)}
        say(dict(more, id=text(os.fsencode(name)), live=lives(fd)))
        os.close(fd)
    say({"end": True})


def sizes(run: int) -> Dict[str, int]:
    """Return the bytes of what a run made, how many files that is, and the bytes of its record and log."""
    result = {"files": 0, "log": 0}
    for name in os.listdir(run):
        if name not in MADE:
            result["log"] += file_size(run, name)
    for kind in MADE:
        result[kind] = 0
        for entry, _ in entries(run, b"", 0, [kind.encode()]):
            if entry[0] != "d":
                result["files"] += 1
            if entry[0] == "f":
                result[kind] += entry[2]
    return result


def started(run: int) -> int:
    """Return when the run started, in ns since 1970: a run that waited got its id before. Return 0 without a record.

    The record is written at the start, and keeps its time when it changes.
    """
    at = changed(run, "record.json")
    return 0 if at is None or not 0 <= at < LATEST else at


def began(run: int) -> str:
    """Return when the run started, in the form of ids, or '' without a record."""
    at = started(run)
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime(at // 10**9)) if at else ""


def remove(cluster: str, below: str) -> None:
    """Remove the folders of runs that do not live. Print {"id", "removed"}, {"id", "live"} or {"id", "error"}."""
    import subprocess  # noqa: PLC0415  (no other operation needs it, and each is a new process)

    ids = json.loads(sys.stdin.buffer.read().decode())
    try:
        runs = opened(cluster, below)
    except (FileNotFoundError, NotADirectoryError):
        runs = -1
    for run in ids if runs >= 0 else ():
        if not ID.fullmatch(run):
            sys.exit("this is not the id of a run: %s" % ascii(run))
        try:
            fd = os.open(run, FOLDER, dir_fd=runs)
        except OSError:
            continue
        living = lives(fd)
        size = sizes(fd)
        os.close(fd)
        if living:
            say({"id": run, "live": True})
            continue
        places = mounts(os.path.join(os.readlink("/proc/self/fd/%d" % runs), run))
        if places:
            say({"id": run, "error": "%s is mounted there; unmount it first" % places[0]})
            continue
        # rm follows no link, and reads folders of any depth.
        os.fchdir(runs)
        rm = subprocess.Popen(["rm", "-rf", "--", "./" + run], stderr=subprocess.PIPE)
        errors = rm.communicate()[1].decode("utf-8", "replace")
        if rm.returncode:
            say({"id": run, "error": errors.strip() or "exit %d" % rm.returncode})
        else:
            say({"id": run, "removed": size["log"] + sum(size[kind] for kind in MADE)})
    say({"end": True})
