"""kit-elastic: runs a command with Horovod's elastic driver, in mpirun's place. The supervisor starts it.

    kit-elastic --min-np N [--max-np N] [--wdir DIR] [-x NAME]... -- COMMAND...

Standard input has lines of JSON. The first is {"start": {"run", "head", "address", "hosts", "code", "began",
"timeout"}}, where hosts are {name: {"address", "slots"}}, and "env" if a host has its own values (kitelastic.desk).
Then come {"hosts": {...}} when they change, and {"stop": true} when the run is to end: then it starts no rank again,
and ends with its standard input. Standard output has its events, lines of JSON (kitrun.elastic). Standard error has
what the ranks send, and its own words.
"""

import argparse
import json
import logging
import os
import signal
import sys
import threading
import time
from typing import Any, Dict, Iterator, List, Optional, Sequence

from kitelastic import ending

# kit's exit code.
NOT_READY = 5
# The last ranks' lines, after the driver has stopped.
DRAIN_S = 10.0
TICK_S = 0.1


class Channel:
    """Events to the supervisor, and output to its log. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._events = os.dup(1)
        # What Horovod prints is for people.
        os.dup2(2, 1)

    def tell(self, name: str, **fields: Any) -> None:
        self._put(self._events, json.dumps(dict(fields, event=name), sort_keys=True).encode() + b"\n")

    def write(self, data: bytes) -> None:
        self._put(2, data)

    def words(self, text: str) -> None:
        self.write(("kit-elastic: %s\n" % text).encode("utf-8", "replace"))

    def _put(self, fd: int, data: bytes) -> None:
        view = memoryview(data)
        with self._lock:
            try:
                while view:
                    view = view[os.write(fd, view) :]
            except OSError:
                return


def lines() -> Iterator[Dict[str, Any]]:
    """Yield the values of the lines on standard input."""
    with open(0, "rb", buffering=0, closefd=False) as stream:
        rest = b""
        while True:
            data = stream.read(65536)
            if not data:
                return
            *whole, rest = (rest + data).split(b"\n")
            for line in whole:
                yield json.loads(line.decode("utf-8"))


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="kit-elastic", allow_abbrev=False)
    parser.add_argument("--min-np", type=int, required=True)
    # Without it, ranks start in every slot of every host.
    parser.add_argument("--max-np", type=int)
    parser.add_argument("--wdir", default="")
    parser.add_argument("-x", action="append", default=[])
    parser.add_argument("command", nargs="+")
    return parser.parse_args(list(argv))


def meeting_of(address: str, port: int) -> Dict[str, str]:
    """Return the variables by which ranks meet. Horovod's own launcher sets the same."""
    return {
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": address,
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port),
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_ELASTIC": "1",
        "PYTHONUNBUFFERED": "1",
    }


class Elastic:
    """One run, from its first world to its end."""

    def __init__(
        self, args: argparse.Namespace, start: Dict[str, Any], channel: Channel, environ: Dict[str, str]
    ) -> None:
        # Imported only here, so that a missing Horovod is a message.
        from kitelastic import crew, driver, hosts, meeting

        self.channel, self.start = channel, start
        head = start["head"]
        self._hosts: Dict[str, Dict[str, Any]] = dict(start["hosts"])
        self.discovery = hosts.Hosts(start["hosts"], start["run"], head, self._busy)
        self.server = meeting.Server(start["address"])
        order = {
            "run": start["run"],
            "env": {name: environ[name] for name in args.x if name in environ},
            "argv": args.command,
            "wdir": args.wdir,
            "code": start["code"],
            "began": start["began"],
        }

        def launch(slot: Any) -> Any:
            host = self._hosts[slot.hostname]
            words = crew.argv_of(slot.hostname, host["address"], head)
            key = (slot.hostname, slot.local_rank)
            met = meeting_of(start["address"], self.server.port)
            own = crew.with_words(order, host.get("env") or {})
            return crew.Worker(key, slot.rank, words, crew.order_of(own, slot, met, self.driver.world()))

        self.driver = driver.Driver(
            self.server,
            self.discovery,
            args.min_np,
            args.max_np,
            timeout=float(start.get("timeout") or 600.0),
            launch=launch,
            write=channel.write,
            tell=channel.tell,
        )
        # The supervisor only lists nodes of the cluster.
        self._allowed = {start["address"], *(host["address"] for host in self._hosts.values())}
        self.server.start(meeting.handler_of(self.driver, self._allowed, self.driver.formed))

    def _busy(self, name: str) -> bool:
        return any(host == name for host, _ in list(self.driver.workers))

    def hear(self, source: Any) -> None:
        """Take what the supervisor sends, until its end: then nobody wants this run any more."""
        for value in source:
            if "hosts" in value:
                self._hosts.update(value["hosts"])
                self._allowed.update(host["address"] for host in self._hosts.values())
                self.discovery.set(value["hosts"])
            if value.get("stop"):
                self.stop()
        self.stop()
        self.driver.quit("")

    def stop(self) -> None:
        """Start no rank again. The ranks go on until the supervisor ends them."""
        self.driver.stopping = True

    def run(self, least: int) -> int:
        """Start the first world and wait for the end of the last one. Return the exit code."""
        try:
            self.driver.begin(least)
        except Exception as error:
            self.channel.words("the run cannot start: %s" % error)
            return ending.HOST_LOST
        while not self.driver.finished():
            time.sleep(TICK_S)
        end = time.monotonic() + DRAIN_S
        while self.driver.workers and time.monotonic() < end:
            time.sleep(TICK_S)
        return self._code()

    def _code(self) -> int:
        driver = self.driver
        code, event = ending.of(driver.first, why=driver.why, refused=driver.refused, everywhere=driver.everywhere)
        if event:
            self.channel.tell(**event)
        return code


def unexpected(channel: Channel, error: Optional[BaseException]) -> None:
    """Report what ended a thread. Horovod ends its own in this way if a rank ends while it waits for the others."""
    if not isinstance(error, RuntimeError):
        channel.words("%r" % error)


def main(argv: Sequence[str]) -> int:
    channel = Channel()
    # What Horovod says there, events say, too, and without tracebacks.
    logging.disable(logging.CRITICAL)
    threading.excepthook = lambda args: unexpected(channel, args.exc_value)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    args = arguments(argv)
    source = lines()
    start: Optional[Dict[str, Any]] = next(source, {}).get("start")
    if start is None:
        channel.words("the supervisor of `kit run --elastic` starts this")
        return 2
    try:
        elastic = Elastic(args, start, channel, dict(os.environ))
    except ImportError as error:
        channel.words("the image has no Horovod for --elastic: %s" % error)
        return NOT_READY
    threading.Thread(target=elastic.hear, args=(source,), daemon=True).start()
    return elastic.run(args.min_np)


def entry(argv: List[str]) -> None:
    """Run, and end without waiting for threads that Horovod's barrier holds."""
    code = main(argv)
    sys.stderr.flush()
    os._exit(code)
