"""The program that kit sends to a VM: prints a reading every second as a line of JSON, until its input ends."""

import json
import os
import select
import signal
import sys
import time
from typing import Any, Dict

from kitwatch import gauges, ranks

# How long the first reading waits for nvidia-smi, which starts the driver on a VM without its daemon.
FIRST_S = 10.0
# The first reading with rates is about this much time.
BASE_S = 0.5


def main(order: Dict[str, Any]) -> None:
    """`order`: {"every": seconds, "count": how many readings or 0, "threads": bool, "paths": […]}.

    The first line has the interpreter's version only. It ends with its input, which ends with the connection.
    """
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    every, count = float(order["every"]), int(order.get("count", 0))
    watched = gauges.Gauges(every, order.get("paths") or gauges.PATHS, ranks.Ranks())
    threads = bool(order.get("threads"))
    try:
        watched.read(threads=threads, wait=FIRST_S)
        due = time.monotonic() + min(BASE_S, every)
        printed = 0
        while not _ended(max(due - time.monotonic(), 0.0)):
            _say(watched.read(threads=threads))
            printed += 1
            if printed == count:
                break
            # A host that was stopped for a while does not catch up.
            due = max(due + every, time.monotonic())
    except (BrokenPipeError, _Stop):
        pass
    finally:
        watched.close()


class _Stop(Exception):
    """A signal ends the program."""


def _stop(_number: int, _frame: Any) -> None:
    raise _Stop


def _ended(wait: float) -> bool:
    """Wait for the next reading. Return whether the input has ended, or nobody reads the output."""
    end = time.monotonic() + wait
    poller = select.poll()
    poller.register(0, select.POLLIN)
    # No bits: it reports only that kit is gone.
    poller.register(1, 0)
    while True:
        left = end - time.monotonic()
        events = dict(poller.poll(max(1000 * left, 0)))
        if 1 in events:
            return True
        if 0 in events and not os.read(0, 4096):
            return True
        if left <= 0:
            return False


def _say(reading: Dict[str, Any]) -> None:
    line = json.dumps(reading, separators=(",", ":")).encode("utf-8", "replace") + b"\n"
    while line:
        line = line[os.write(1, line) :]


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
