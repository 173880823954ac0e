"""kit-worker: runs one rank of an elastic run on this node. kit-elastic starts it, through the node's sshd.

It reads its order, a line of JSON, from standard input, so that neither the command nor a variable is in any process's
arguments on the head:

    {"run", "env": {name: value}, "argv": [...], "wdir": folder or "", "code": digest or "", "order": kitrun.code.Order}

It ends the rank when its standard input ends, because the head is gone then, or wants the rank to end. What the rank
sends (kit-rank) goes to standard error.
"""

import contextlib
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import time
from typing import Any, Dict, Iterator, Mapping, Optional, Sequence

# How long the rank has to end before it is killed.
GRACE_S = 3.0
BIN = "/opt/kit/bin"
# In the folder of all runs.
GATE = ".seeding"
# What a rank of the elastic run must not inherit from another launcher.
STRANGERS = ("OMPI_", "PMIX_", "PMI_", "ORTE_")


def read_order() -> "Optional[Dict[str, Any]]":
    """Return the order, or None if standard input ends before its line does."""
    data = b""
    while not data.endswith(b"\n"):
        # Byte by byte would be slow, and nothing follows the line until the end.
        more = os.read(0, 65536)
        if not more:
            return None
        data += more
    value = json.loads(data.decode("utf-8"))
    return value if isinstance(value, dict) else None


def environment(base: Mapping[str, str], order: Mapping[str, Any]) -> "Dict[str, str]":
    """Return the environment of the rank: the node's, with the order's variables."""
    kept = {name: value for name, value in base.items() if not name.startswith(STRANGERS)}
    # Each node has its own name of the cluster's interface. An order has one only if the user chose it.
    return dict(kept, **order["env"])


def seed(order: Mapping[str, Any]) -> Optional[str]:
    """Make the run's working folder here, and return why that failed, or None."""
    if not order.get("code"):
        return None
    from kitrun import code, settle, store
    from kitrun.snapshot import NoCode

    run = store.Run(order["run"])
    try:
        with alone(os.path.dirname(run.folder)):
            code.seed(run.id, order["code"], float(order["began"]))
    except (NoCode, OSError) as error:
        return code.why(error)
    held = settle.hold(run)
    if held is not None:
        # As long as the rank lives, the folder is not settled.
        os.set_inheritable(held, True)
    return None


@contextlib.contextmanager
def alone(root: str) -> "Iterator[None]":
    """Let one worker of this node at a time into the block: its ranks begin together, and one of them makes the folder.

    A lock on the run's folder would not do. Each rank that is there holds one until it ends (kit-rank).
    """
    os.makedirs(root, mode=0o700, exist_ok=True)
    gate = os.open(os.path.join(root, GATE), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(gate, fcntl.LOCK_EX)
        yield
    finally:
        os.close(gate)


class Rank:
    """The rank's process group, with kit-rank as its leader."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], folder: str) -> None:
        self.process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(env),
            cwd=folder or None,
            start_new_session=True,
            close_fds=False,
        )
        self._ends: Optional[float] = None

    def end(self) -> None:
        """Ask it to end."""
        if self._ends is None:
            self._ends = time.monotonic() + GRACE_S
            self._send(signal.SIGTERM)

    def tend(self) -> None:
        """Kill it if it did not end in time."""
        if self._ends is not None and time.monotonic() > self._ends:
            self._send(signal.SIGKILL)

    def _send(self, sign: int) -> None:
        try:
            os.killpg(self.process.pid, sign)
        except OSError:
            return


def follow(rank: Rank) -> int:
    """Pass on what it sends until it has ended. Return its exit code, as a shell reports it."""
    process = rank.process
    assert process.stdout is not None
    assert process.stderr is not None
    sources = {process.stdout.fileno(), process.stderr.fileno()}
    hears = True
    while sources or process.poll() is None:
        ready = select.select([*sources, *([0] if hears else [])], [], [], 0.1)[0]
        for fd in ready:
            if fd == 0:
                hears = bool(os.read(0, 4096))
                if not hears:
                    rank.end()
                continue
            data = os.read(fd, 65536)
            if not data:
                sources.discard(fd)
            elif not pass_on(data):
                rank.end()
        rank.tend()
        if not ready and process.poll() is not None:
            # A child that the rank left behind may have the far ends of the pipes.
            break
    status = process.wait()
    return status if status >= 0 else 128 - status


def pass_on(data: bytes) -> bool:
    """Write it to standard error. Return False if nobody reads it any more."""
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(2, view) :]
    except OSError:
        return False
    return True


def main() -> int:
    for sign in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(sign, signal.SIG_IGN)
    try:
        order = read_order()
        if order is None:
            return 0
        env = environment(os.environ, order)
        argv = ["python3", "-IS", os.path.join(BIN, "kit-rank"), *order["argv"]]
        os.environ["KIT_RUN"] = order["run"]
        failed = seed(order)
        if failed:
            os.write(2, ("kit-code: %s: %s\n" % (env.get("KIT_NODE", "-"), failed)).encode("utf-8", "replace"))
            return 4
        rank = Rank(argv, env, order.get("wdir") or "")
    except (KeyError, TypeError, ValueError) as error:
        sys.stderr.write("kit-worker: this is not an order of kit-elastic: %r\n" % error)
        return 2
    except OSError as error:
        sys.stderr.write("kit-worker: %s: %s\n" % (os.environ.get("KIT_NODE", "-"), error))
        return 4
    return follow(rank)
