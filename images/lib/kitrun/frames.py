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
# A record is never longer than what mpirun's daemon reads at once: a longer one is none, and nothing waits for it.
HEAD = re.compile(rb"\x1ekit-line (\d{1,9}) ([oeux]) ([+.]) (\d{1,4})\n")
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
        # So much of the rest is known to be mpirun's own words.
        self._plain = 0

    def feed(self, data):
        self._rest += data
        while True:
            at = self._rest.find(BEGIN, self._plain)
            if at < 0:
                # A head may just have begun at the very end, behind the last newline.
                at = self._rest.rfind(b"\n") + 1
                if at:
                    yield self._words(at)
                return
            head = HEAD.match(self._rest, at)
            if head is None:
                if len(self._rest) - at < HEAD_ROOM and b"\n" not in self._rest[at:]:
                    return
                # Like a record, and none.
                self._plain = at + 1
                continue
            end = head.end() + int(head.group(4))
            if len(self._rest) < end:
                return
            if at:
                # A record in the middle of another's line: that line ends here.
                yield self._words(at)
            end -= at
            body = self._rest[head.end() - at : end]
            self._rest = self._rest[end:]
            yield head.group(1), head.group(2).decode(), head.group(3).decode(), body

    def _words(self, end):
        words, self._rest, self._plain = self._rest[:end], self._rest[end:], 0
        return None, "m", ".", words

    def end(self):
        """What is left when nothing comes any more."""
        rest, self._rest, self._plain = self._rest, b"", 0
        if rest:
            yield None, "m", ".", rest
