"""The program that kit sends to a VM: prints a reading every second as a line of JSON, until its input ends."""

import json
import os
import select
import signal
import sys
import time
from typing import Any, Dict

from kitwatch import gauges, ranks, suspects

# How long the first reading waits for nvidia-smi, which starts the driver on a VM without its daemon.
FIRST_S = 10.0
# The first reading with rates is about this much time.
BASE_S = 0.5


class Gone(Exception):
    """Nobody reads any more."""


def main(order: Dict[str, Any]) -> None:
    """`order`: {"every": seconds, "count": how many readings or 0, "threads": bool, "paths": […], "patience": seconds}.

    With "run", readings have "suspects": what kitwatch.suspects says of the ranks of this run.

    It ends with its input, which ends with the connection, or after `patience` without a byte of input.
    """
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    every, count, threads = float(order["every"]), int(order["count"]), bool(order["threads"])
    processes = ranks.Ranks()
    watched = gauges.Gauges(every, order["paths"] or gauges.PATHS, processes)
    closely = Closely(order["run"], processes) if order.get("run") else None
    kit = Kit(float(order["patience"]))
    try:
        first = watched.read(threads=threads, wait=FIRST_S)
        if closely:
            closely.add(first)
        due = time.monotonic() + min(BASE_S, every)
        printed = 0
        while not count or printed < count:
            if closely:
                closely.sample(kit, due)
            kit.wait(due)
            reading = watched.read(threads=threads)
            kit.say(closely.add(reading) if closely else reading)
            printed += 1
            # A host that was stopped for a while does not catch up.
            due = max(due + every, time.monotonic())
    except Gone:
        pass
    finally:
        watched.close()


def _stop(_number: int, _frame: Any) -> None:
    raise Gone


class Closely:
    """Looks at the ranks of one run between readings, too."""

    def __init__(self, run: str, processes: ranks.Ranks) -> None:
        self._processes, self._suspects = processes, suspects.Suspects(run)
        self._looks = 0

    def sample(self, kit: "Kit", due: float) -> None:
        """Sample the ranks until shortly before a reading is due."""
        while True:
            at = time.monotonic() + suspects.pause_s(self._looks)
            if at >= due:
                return
            self._looks += 1
            kit.wait(at)
            self._suspects.sample()

    def add(self, reading: Dict[str, Any]) -> Dict[str, Any]:
        """Return the reading with what the samples show, and follow the processes that it has."""
        self._suspects.sample()
        reading["suspects"] = self._suspects.take()
        run = self._suspects.run
        members = self._processes.members(run)
        for rank in reading["ranks"]:
            pids = members.get(rank["rank"]) if rank["run"] == run else None
            if pids:
                members[rank["rank"]] = [rank["pid"]] + [pid for pid in pids if pid != rank["pid"]]
                rank["rank"] = self._suspects.number(rank["rank"])
        self._suspects.follow(members)
        return reading


class Kit:
    """The one who reads: standard input and output."""

    def __init__(self, patience: float) -> None:
        self._patience, self._heard = patience, time.monotonic()
        os.set_blocking(1, False)

    def wait(self, due: float) -> None:
        """Wait until a time. Raises Gone as soon as nobody reads."""
        while True:
            left = due - time.monotonic()
            self._listen(max(left, 0.0), 0)
            if left <= 0:
                return

    def say(self, reading: Dict[str, Any]) -> None:
        """Print a line. A link that was cut lets the pipe fill up, and then nobody reads for the whole patience."""
        line = json.dumps(reading, separators=(",", ":")).encode("utf-8", "replace") + b"\n"
        while line:
            try:
                line = line[os.write(1, line) :]
            except BlockingIOError:
                self._listen(self._patience, select.POLLOUT)
            except OSError:
                raise Gone from None

    def _listen(self, wait: float, output: int) -> None:
        """Wait for input, for room in the output if `output`, or for this time. Raises Gone."""
        poller = select.poll()
        poller.register(0, select.POLLIN)
        # Without bits, it reports only that the reader is gone.
        poller.register(1, output)
        events = dict(poller.poll(1000 * wait))
        if events.get(1, 0) & (select.POLLERR | select.POLLHUP):
            raise Gone
        now = time.monotonic()
        if 0 in events:
            if not os.read(0, 4096):
                raise Gone
            self._heard = now
        if now - self._heard > self._patience:
            raise Gone


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
