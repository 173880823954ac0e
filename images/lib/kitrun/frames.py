"""The two kinds of records: what kit-rank sends through mpirun, and what a run's log consists of.

From kit-rank, on standard error, among whatever else mpirun writes:

    0x1e kit-line RANK KIND MORE LENGTH newline, LENGTH bytes

In the log, and on its way to kit, there is nothing else than

    0x1e MILLISECONDS RANK KIND MORE LENGTH newline, LENGTH bytes

KIND: o and e are whole lines of standard output and error (MORE is + where the last line goes on in the rank's next
record); u, a rank is up: `HOST PID`; x, a rank has ended: `HOST CODE SIGNAL OOM`, the last 1 or 0; m, mpirun's own words
(rank -); k, an event of the supervisor: JSON (rank -).
"""

import json
import re

BEGIN = b"\x1ekit-line "
HEAD = re.compile(rb"\x1ekit-line (\d+) ([oeux]) ([+.]) (\d+)\n")
# A head is never longer: what begins like one and has no newline by then is none.
HEAD_ROOM = 64


def record(milliseconds, rank, kind, body, more="."):
    """One record of the log."""
    return b"\x1e%d %s %s %s %d\n%s" % (milliseconds, rank, kind.encode(), more.encode(), len(body), body)


def event(milliseconds, name, **fields):
    fields["event"] = name
    return record(milliseconds, b"-", "k", json.dumps(fields, sort_keys=True).encode())


class Splitter:
    """Takes mpirun's bytes in pieces of any size; gives (rank, kind, more, body) for each whole record, rank None for
    mpirun's own words, whole lines of them."""

    def __init__(self):
        self._rest = b""

    def feed(self, data):
        self._rest += data
        while True:
            at = self._rest.find(BEGIN)
            if at < 0:
                # A head may just have begun at the very end.
                end = self._rest.rfind(b"\n") + 1
                if end:
                    yield None, "m", ".", self._rest[:end]
                    self._rest = self._rest[end:]
                return
            if at:
                # A record in the middle of another's line: that line ends here.
                yield None, "m", ".", self._rest[:at]
                self._rest = self._rest[at:]
            head = HEAD.match(self._rest)
            if head is None:
                if b"\n" not in self._rest[:HEAD_ROOM] and len(self._rest) < HEAD_ROOM:
                    return
                # Like a record, and none.
                line, newline, self._rest = self._rest.partition(b"\n")
                yield None, "m", ".", line + newline
                continue
            size = int(head.group(4))
            if len(self._rest) < head.end() + size:
                return
            body = self._rest[head.end() : head.end() + size]
            self._rest = self._rest[head.end() + size :]
            yield head.group(1), head.group(2).decode(), head.group(3).decode(), body

    def end(self):
        """What is left when nothing comes any more."""
        rest, self._rest = self._rest, b""
        if rest:
            yield None, "m", ".", rest
