"""The supervisor's side of the guards: one ssh stream a node, kept alive, opened anew when it breaks."""

import contextlib
import json
import os
import select
import subprocess
import time

from kitrun import procs
from kitrun.guard import LOST_S

BEAT_S = 3.0
AGAIN_S = 2.0
REMOTE = ("python3", "-IS", "/opt/kit/bin/kit-node", "guard")
# Shorter than ssh's own: a stream over a link that is cut is given up, and another tried.
SSH = ("ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=8", "-o", "ServerAliveInterval=5")
SSH += ("-o", "ServerAliveCountMax=3")


def ready(fds, seconds):
    """Those that can be read within so many seconds. Not by select, which knows no descriptor beyond 1023."""
    poller = select.poll()
    for fd in fds:
        poller.register(fd, select.POLLIN)
    return [fd for fd, _ in poller.poll(seconds * 1000)]


class Node:
    """One node of a run. `heard` is when it last said anything (monotonic), None before that.

    `helpless`: its guard cannot run there. Then nobody can say that the node is lost, and mpirun alone watches over it.
    """

    def __init__(self, name, address, run_id):
        self.name, self.address, self.run_id = name, address, run_id
        self.heard = None
        self.begun = time.monotonic()
        self.said = []
        self.helpless = False
        self._process = None
        self._rest = b""
        self._tried = 0.0
        self._beat = 0.0

    def open(self):
        self._tried = time.monotonic()
        self._rest = b""
        self._process = subprocess.Popen(
            [*SSH, "--", self.address, *REMOTE, self.run_id],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.set_blocking(self._process.stdout.fileno(), False)

    @property
    def fd(self):
        """What to wait for; None while there is no stream."""
        return self._process.stdout.fileno() if self._process else None

    def send(self, word):
        if self._process is None:
            return
        try:
            os.write(self._process.stdin.fileno(), word.encode() + b"\n")
        except OSError:
            self.close()

    def tend(self):
        """A beat when it is due; another stream where the last one broke."""
        now = time.monotonic()
        if self._process is None:
            if now - self._tried > AGAIN_S and not self.helpless:
                self.open()
        elif now - self._beat > BEAT_S:
            self._beat = now
            self.send("beat")

    def read(self):
        """Take what it has said into `said`."""
        if self._process is None:
            return
        try:
            data = os.read(self._process.stdout.fileno(), 65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            # ssh's own code where the connection failed; any other is what the guard, or its interpreter, ended with.
            self.helpless = self.heard is None and 0 < self._code() < 255
            self.close()
            return
        self.heard = time.monotonic()
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError):
                self.said.append(json.loads(line.decode("utf-8", "replace")))

    def _code(self):
        try:
            return self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            return 255

    @property
    def lost(self):
        """Whether it has not been heard for so long that its guard has ended the ranks there, or soon will."""
        return not self.helpless and time.monotonic() - (self.heard if self.heard is not None else self.begun) > LOST_S

    def close(self):
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()
        process.kill()
        process.wait()


class Here:
    """The head's own part in a run, with the manners of a Node."""

    lost = helpless = False
    fd = None

    def __init__(self, name, run_id):
        self.name, self.run_id = name, run_id
        self.said = []

    def send(self, word):
        if word == "term":
            procs.end_gently(self.run_id)
            self.said.append({"count": len(procs.ranks(self.run_id))})
        elif word == "count":
            self.said.append({"count": len(procs.ranks(self.run_id))})
        elif word == "stacks":
            self.said.append({"stacks": procs.stacks(self.run_id)})
        elif word == "end":
            self.said.append({"left": procs.sweep(self.run_id)})

    def open(self):
        pass

    def tend(self):
        pass

    def read(self):
        pass

    def close(self):
        pass


def ask(nodes, word, key, patience):
    """Send a word to all nodes and collect their answers: {name: answer}. Who does not answer in time is not in it."""
    answers = {}
    for node in nodes:
        node.said = []
        node.send(word)
    end = time.monotonic() + patience
    while time.monotonic() < end:
        for node in nodes:
            for said in node.said:
                if key in said:
                    answers[node.name] = said[key]
            node.said = []
        waiting = [node for node in nodes if node.name not in answers and not node.helpless]
        if not waiting:
            break
        fds = {node.fd: node for node in waiting if node.fd is not None}
        for fd in ready(fds, 0.1):
            fds[fd].read()
        for node in waiting:
            if node.fd is None and not isinstance(node, Here):
                # A stream that broke: the word goes out again on the next.
                node.tend()
                if node.fd is not None:
                    node.send(word)
    return answers
