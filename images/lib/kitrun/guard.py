"""The guard: watches a run on one node. The supervisor starts it through the node's sshd.

It reads one word a line from standard input: `beat`, `term` (end the ranks gently), `count` (how many ranks are left),
`stacks`, `gpus` (how much they are used), `reading` (what the run uses here: kitrun.metrics), `settle` (the run is
over: settle its working folder), `runs` (which runs have files here), `leave` (the run is over, and what it left may
stay: exit), `end` (end everything that is left, report how many processes did not end, and exit).
It answers in lines of JSON. When beats stop, because the head is gone or the link is cut, it ends the run's processes
here: nobody else can.
"""

import contextlib
import json
import os
import select
import signal
import sys
import time
from typing import Any, Optional, Sequence

from kitrun import idle, metrics, procs, stacks

# The first writable folder: a node whose disk is full is guarded, too.
FOLDERS = ("/run/kit/guards", "/dev/shm/kit-guards")  # noqa: S108  (sign checks whose it is)
# Longer than a link that is cut and repaired, shorter than a person waits for a GPU.
LOST_S = 45.0
# The stream ended, so the supervisor is gone, and not the link. It may be starting another guard.
ENDED_S = 10.0
TICK_S = 2.0
# How often to look at the memory of the ranks: seldom while they use less than half of what they may.
NEAR_S, FAR_S = 0.2, 0.5
# An exact look at large ranks takes the kernel long. The pause after it is this many times longer.
PAUSE = 9


def say(**fields: Any) -> bool:
    """Write a line to the supervisor. Return False if nobody can read it."""
    try:
        os.write(1, json.dumps(fields).encode() + b"\n")
    except OSError:
        return False
    return True


def sign(run_id: str, mine: str) -> str:
    """Write this guard's name where other guards of the run look for it.

    Return the path, or '' if no folder is writable.
    """
    for folder in FOLDERS:
        path = os.path.join(folder, run_id)
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            # A rank that is not root could have made the folder, with a link in it.
            if os.lstat(folder).st_uid != os.geteuid() or os.path.islink(folder):
                continue
            with open(path, "w", encoding="ascii") as file:
                file.write(mine)
        except OSError:
            # An older guard that reads half a name exits, as it should.
            forget(path)
            continue
        return path
    return ""


def forget(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


class Watch:
    """Looks at the memory of a run's ranks here. `most` is what they may use together, in bytes; 0 means no limit."""

    def __init__(self, run_id: str, most: int) -> None:
        self.run_id, self.most = run_id, most
        self._due = 0.0
        self._over = 0

    def look(self, now: float) -> int:
        """Look if that is due. Return what the ranks use if it is more than they may, and 0 otherwise."""
        if self.most and not self._over and now >= self._due:
            used = procs.memory_of(self.run_id, self.most)
            self._over = used if used > self.most else 0
            end = time.monotonic()
            self._due = end + max(NEAR_S if used * 2 > self.most else FAR_S, PAUSE * (end - now))
        return self._over


class Guard:
    def __init__(self, run_id: str, most: int = 0) -> None:
        self.run_id = run_id
        self._watch = Watch(run_id, most)
        self._look = idle.Look()
        self._probe = metrics.Probe(run_id, self._look)
        self._mine = "%d %f" % (os.getpid(), time.monotonic())
        # Only the latest guard counts. An older one, whose stream broke, exits when it sees another name here.
        self._path = sign(run_id, self._mine)
        self._heard = time.monotonic()
        self._said = 0.0
        self._ended = False
        self._rest = b""

    def watch(self) -> int:
        """Serve the supervisor until the run ends, another guard takes over, or beats stop. Return the exit code."""
        while True:
            now = time.monotonic()
            if self._path and procs.read_text(self._path) != self._mine:
                return 0
            if now - self._heard > (ENDED_S if self._ended else LOST_S):
                self._sweep()
                return 1
            over = self._watch.look(now)
            if not self._ended and now - self._said > (NEAR_S if over else TICK_S):
                self._said = now
                say(here=True, **({"over": over} if over else {}))
            if select.select([] if self._ended else [0], [], [], NEAR_S if self._watch.most else 0.5)[0]:
                code = self._hear(os.read(0, 4096))
                if code is not None:
                    return code

    def _hear(self, data: bytes) -> Optional[int]:
        # At the stream's end, too: after a cut link the last beat is long ago, and another guard may be on its way.
        self._heard = time.monotonic()
        if not data:
            self._ended = True
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line == b"end":
                say(left=self._sweep())
                return 0
            if line == b"leave":
                forget(self._path)
                say(leaving=True)
                return 0
            self._answer(line)
        return None

    def _sweep(self) -> int:
        """End what is left of the run here, and remove what it leaves in memory. Return how many did not end."""
        left = procs.sweep(self.run_id)
        forget(self._path)
        return left

    def _answer(self, word: bytes) -> None:
        if word == b"term":
            procs.end_gently(self.run_id)
        if word in (b"term", b"count"):
            say(count=len(procs.ranks(self.run_id)))
        elif word == b"stacks":
            say(stacks=stacks.of_ranks(self.run_id))
        elif word == b"gpus":
            say(gpus=self._look.read())
        elif word == b"reading":
            say(reading=self._probe.read())
        elif word == b"settle":
            self._settle()
            say(settling=True)
        elif word == b"runs":
            # Imported only here: few runs need it.
            from kitrun import store

            say(runs=store.folders())

    def close(self) -> None:
        """End the nvidia-smi that this started."""
        self._look.close()

    def _settle(self) -> None:
        # Imported only here: few runs need it.
        from kitrun import code, settle, store

        # If no process can be started, the next run settles the folder.
        with contextlib.suppress(OSError):
            settle.in_background(lambda: settle.settle(store.Run(self.run_id), code.STORE))


def main(argv: Sequence[str]) -> int:
    # A broken stream must not end this process before it has ended the ranks.
    for number in (signal.SIGHUP, signal.SIGPIPE, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    if len(argv) in (2, 3) and argv[0] == "guard" and "".join(argv[2:]).isdigit() == (len(argv) == 3):
        with contextlib.closing(Guard(argv[1], int(argv[2]) if len(argv) == 3 else 0)) as guard:
            return guard.watch()
    if len(argv) == 2 and argv[0] == "sweep":
        say(left=procs.sweep(argv[1]))
        return 0
    sys.stderr.write("usage: kit-node guard RUN [BYTES] | sweep RUN\n")
    return 2
