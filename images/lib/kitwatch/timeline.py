"""Writes the timeline of each rank of Horovod on this node, while the run lives: kit-timeline RUN.

kit reads and writes lines of JSON over one connection. The first line says which ranks count here (kitwatch.readiness).
Requests, and the answers:

  {"op": "clock"}                               {"clock": ns since 1970}, to compare clocks
  {"op": "begin", "id", "seconds", "bytes"}     {"begun": [rank, …]}: each begins within a second, ends by itself
  {"op": "look"}                                {"states": {rank: state}}
  {"op": "send", "rank"}                        {"data": base64 of zlib} for each part, then {"sent": bytes}
  {"op": "end"}                                 nothing: this process removes the files, as it does at the stream's end

An answer with "error" ends the conversation, and so does a kit that asks nothing, or reads nothing, for PATIENCE_S: a
connection can be cut without notice. The folder of the files belongs to the ranks' user: no link is followed.
"""

import base64
import contextlib
import fcntl
import json
import os
import select
import stat
import sys
import time
import zlib
from typing import Any, Dict, Iterator, Sequence

from kitwatch import readiness

VERSION = 1
PART = 1 << 20
# A rank whose counters are gone has ended, and closed its file.
ENDED = 5
# kit asks twice a second while ranks write. Then it fetches the files of all hosts at once, and asks nothing more.
PATIENCE_S = 300.0


class TimelineError(Exception):
    """A request cannot be carried out. The text is for people."""


class Timeline:
    """The timelines of one run's ranks on this node."""

    def __init__(self, run_id: str) -> None:
        self._counters = readiness.folder_of(run_id)
        self._folder = readiness.timeline_folder_of(run_id)
        self._id = 0
        self._lock = -1
        # By rank: the file, open because the run may end and remove it; and its name.
        self._files = {}  # type: Dict[int, int]
        self._names = {}  # type: Dict[int, str]

    def hello(self) -> Dict[str, Any]:
        files = readiness.files(self._counters)
        return {
            "kit-timeline": VERSION,
            "ranks": sorted(files),
            "size": max((f.size for f in files.values()), default=0),
        }

    def begin(self, number: int, seconds: float, most: int) -> Dict[str, Any]:
        """Tell the ranks here to write for some seconds, and at most this many bytes each. Raises TimelineError."""
        files = readiness.files(self._counters)
        if not files:
            raise TimelineError("no rank counts here")
        counters = readiness.open_folder(self._counters)
        try:
            user = os.fstat(counters)
            self._make_folder(user.st_uid, user.st_gid)
            line = "%d %.3f %d %s\n" % (number, seconds, most, self._folder)
            with contextlib.suppress(OSError):
                os.unlink("control.new", dir_fd=counters)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            file = os.open("control.new", flags, 0o600, dir_fd=counters)
            try:
                os.fchown(file, user.st_uid, user.st_gid)
                os.write(file, line.encode())
            finally:
                os.close(file)
            # Whole from the first moment.
            os.replace("control.new", "control", src_dir_fd=counters, dst_dir_fd=counters)
        finally:
            os.close(counters)
        self._id = number
        self._names = {rank: "%d.%d.json" % (rank, file.pid) for rank, file in files.items()}
        return {"begun": sorted(files)}

    def look(self) -> Dict[str, Any]:
        files = readiness.files(self._counters)
        states = {}
        for rank in self._names:
            self._keep(rank)
            file = files.get(rank)
            if file is None:
                states[rank] = ENDED
            else:
                states[rank] = file.timeline_state if file.timeline_id == self._id else readiness.NONE
        return {"states": states}

    def send(self, rank: int) -> Iterator[Dict[str, Any]]:
        """Yield the parts of a rank's file, and then its length. A file that is not there has none."""
        self._keep(rank)
        sent = 0
        file = self._files.get(rank, -1)
        while file >= 0:
            data = os.pread(file, PART, sent)
            if not data:
                break
            sent += len(data)
            yield {"data": base64.b64encode(zlib.compress(data, 1)).decode()}
        yield {"sent": sent}

    def end(self) -> None:
        """Remove what this process made. A rank that still writes goes on into a file without a name, and ends."""
        if self._lock < 0:
            return
        with contextlib.suppress(OSError):
            counters = readiness.open_folder(self._counters)
            try:
                os.unlink("control", dir_fd=counters)
            finally:
                os.close(counters)
        readiness.remove(self._folder)

    def _make_folder(self, uid: int, gid: int) -> None:
        if self._lock >= 0:
            raise TimelineError("a timeline was begun already")
        with contextlib.suppress(FileExistsError):
            os.mkdir(self._folder, 0o700)
        self._lock = readiness.open_folder(self._folder)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            self._lock = -1
            raise TimelineError("another timeline of this run is being written") from None
        os.fchmod(self._lock, 0o700)
        os.fchown(self._lock, uid, gid)
        # What a process that was killed has left.
        for name in os.listdir(self._lock):
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=self._lock)

    def _keep(self, rank: int) -> None:
        if rank in self._files or rank not in self._names:
            return
        with contextlib.suppress(OSError):
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            file = os.open(self._names[rank], flags, dir_fd=self._lock)
            if stat.S_ISREG(os.fstat(file).st_mode):
                self._files[rank] = file
            else:
                os.close(file)


def say(**fields: Any) -> None:
    """Write a line to kit. Raises BrokenPipeError if kit is gone, or reads nothing for PATIENCE_S."""
    line = json.dumps(fields).encode() + b"\n"
    while line:
        if not select.select([], [1], [], PATIENCE_S)[1]:
            raise BrokenPipeError
        # A pipe that takes some bytes may not take all of them now.
        with contextlib.suppress(BlockingIOError):
            line = line[os.write(1, line) :]


def requests() -> Iterator[bytes]:
    """Yield what kit asks until the end of the input. Raises TimelineError if nothing comes for PATIENCE_S."""
    rest = b""
    while True:
        *lines, rest = rest.split(b"\n")
        yield from lines
        if not select.select([0], [], [], PATIENCE_S)[0]:
            raise TimelineError("kit asked nothing for %g s" % PATIENCE_S)
        data = os.read(0, 1 << 16)
        if not data:
            return
        rest += data


def last_word(why: str) -> None:
    """Write why this ends. Nobody may be there to read it."""
    with contextlib.suppress(OSError):
        say(error=why)


def clock() -> int:
    """Return ns since 1970. Python 3.6 has no time.time_ns."""
    return int(time.clock_gettime(time.CLOCK_REALTIME) * 1e9)


def answer(timeline: Timeline, request: Dict[str, Any]) -> bool:
    """Answer a request. Return False for the last one. Raises TimelineError."""
    operation = request.get("op")
    if operation == "clock":
        say(clock=clock())
    elif operation == "begin":
        say(**timeline.begin(int(request["id"]), float(request["seconds"]), int(request["bytes"])))
    elif operation == "look":
        say(**timeline.look())
    elif operation == "send":
        for part in timeline.send(int(request["rank"])):
            say(**part)
    return operation != "end"


def main(argv: Sequence[str]) -> int:
    if len(argv) != 1:
        sys.stderr.write("usage: kit-timeline RUN\n")
        return 2
    timeline = Timeline(argv[0])
    try:
        os.set_blocking(1, False)
        say(**timeline.hello())
        for line in requests():
            if not answer(timeline, json.loads(line)):
                break
    except TimelineError as error:
        last_word(str(error))
    except BrokenPipeError:
        # kit is gone.
        pass
    except (OSError, ValueError, KeyError) as error:
        last_word("%s: %s" % (type(error).__name__, error))
    finally:
        timeline.end()
    return 0
