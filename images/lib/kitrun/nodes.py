"""The supervisor's side of the guards: one ssh stream for each node. It is kept alive, and reopened when it breaks."""

import contextlib
import json
import os
import select
import subprocess
import time
from typing import Any, Dict, Iterable, List, Optional, Sequence, Union

from kitrun import idle, metrics, procs, stacks
from kitrun.guard import LOST_S, Watch

BEAT_S = 3.0
AGAIN_S = 2.0
QUIET_S = 10.0
REMOTE = ("python3", "-IS", "/opt/kit/bin/kit-node", "guard")
# Shorter limits than ssh's own: kit gives up a stream over a cut link, and tries another one.
LIMITS = ("-o", "ConnectTimeout=8", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3")
SSH = ("ssh", "-T", "-o", "BatchMode=yes", *LIMITS)


def ready(fds: Iterable[int], seconds: float) -> List[int]:
    """Wait that long at most, and return the readable descriptors. Unlike select, poll knows descriptors over 1023."""
    poller = select.poll()
    for fd in fds:
        poller.register(fd, select.POLLIN)
    return [fd for fd, _ in poller.poll(seconds * 1000)]


class Node:
    """One node of a run. `heard` is when it last sent anything (monotonic), or None before that.

    `helpless`: its guard cannot run there. Then nobody can say that the node is lost, and only mpirun watches it.
    `over`: the bytes that its ranks use, if that is more than `memory`, what they may use. `gpus` is what it last
    answered to that word (kitrun.idle), and `reading` what it last answered to that one, until somebody takes it.
    """

    def __init__(self, name: str, address: str, run_id: str, memory: int = 0) -> None:
        self.name, self.address, self.run_id, self.memory = name, address, run_id, memory
        self.over = 0
        self.gpus: idle.Seen = None
        self.reading: Optional[Dict[str, Any]] = None
        self.heard: Optional[float] = None
        self.begun = time.monotonic()
        self.received: List[Dict[str, Any]] = []
        self.helpless = False
        # How many streams there were, with the present one and those that could not be started.
        self.streams = 0
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._rest = b""
        self._tried = 0.0
        self._beat = 0.0

    def open(self) -> None:
        self._tried = time.monotonic()
        self._rest = b""
        if not self.streams:
            # What came before, such as a slow copy of the code on the head, is no silence of the node.
            self.begun = self._tried
        self.streams += 1
        try:
            self._process = subprocess.Popen(
                [*SSH, "--", self.address, *REMOTE, self.run_id, *([str(self.memory)] if self.memory else [])],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError:
            # No process, memory or file is free at this moment. `tend` tries again.
            return
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)

    @property
    def fd(self) -> Optional[int]:
        """The descriptor to wait for; None while there is no stream."""
        return self._process.stdout.fileno() if self._process and self._process.stdout else None

    def send(self, word: str) -> bool:
        """Write a word. Return False if there is no stream for it."""
        if self._process is None or self._process.stdin is None:
            return False
        try:
            os.write(self._process.stdin.fileno(), word.encode() + b"\n")
        except OSError:
            self.close()
            return False
        return True

    def tend(self, *, may_open: bool = True) -> None:
        """Send a beat if it is due. Open another stream if the last one broke, unless `may_open` is False."""
        now = time.monotonic()
        if self._process is None:
            if may_open and now - self._tried > AGAIN_S and not self.helpless:
                self.open()
        elif now - self._beat > BEAT_S:
            self._beat = now
            self.send("beat")

    def read(self) -> None:
        """Read what it sent into `received`."""
        fd = self.fd
        if fd is None:
            return
        try:
            data = os.read(fd, 65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            # 255 is ssh's own code for a failed connection. Any other code is that of the guard or its interpreter.
            self.helpless = self.heard is None and 0 < self._code() < 255
            self.close()
            return
        self.heard = time.monotonic()
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError):
                self._take(json.loads(line.decode("utf-8", "replace")))

    def _take(self, answer: Dict[str, Any]) -> None:
        over = answer.get("over")
        if isinstance(over, int):
            self.over = over
        if "gpus" in answer:
            self.gpus = idle.seen(answer["gpus"])
            return
        if "reading" in answer:
            self.reading = answer["reading"]
            return
        self.received.append(answer)

    def _code(self) -> int:
        assert self._process is not None
        try:
            return self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            return 255

    @property
    def lost(self) -> bool:
        """Whether it has been silent for so long that its guard has ended the ranks there, or soon will."""
        silent = time.monotonic() - (self.heard if self.heard is not None else self.begun)
        return self.streams > 0 and not self.helpless and silent > LOST_S

    @property
    def is_quiet(self) -> bool:
        """Whether its guard, which sends something every two seconds, has stopped doing so."""
        return self.heard is not None and not self.helpless and time.monotonic() - self.heard > QUIET_S

    def close(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()
        process.kill()
        process.wait()


class Here:
    """The head's part in a run, with the methods of a Node."""

    lost = helpless = is_quiet = False
    fd: Optional[int] = None
    streams = 1

    def __init__(self, name: str, run_id: str, memory: int = 0) -> None:
        self.name, self.run_id = name, run_id
        self.received: List[Dict[str, Any]] = []
        self.over = 0
        self.gpus: idle.Seen = None
        self._look = idle.Look()
        self.reading: Optional[Dict[str, Any]] = None
        self._watch = Watch(run_id, memory)
        self._probe = metrics.Probe(run_id, self._look)

    def send(self, word: str) -> bool:
        if word == "term":
            procs.end_gently(self.run_id)
            self.received.append({"count": len(procs.ranks(self.run_id))})
        elif word == "count":
            self.received.append({"count": len(procs.ranks(self.run_id))})
        elif word == "stacks":
            self.received.append({"stacks": stacks.of_ranks(self.run_id)})
        elif word == "gpus":
            self.gpus = self._look.read()
        elif word == "end":
            self.received.append({"left": procs.sweep(self.run_id)})
        elif word == "reading":
            self.reading = self._probe.read()
        return True

    def tend(self, *, may_open: bool = True) -> None:  # noqa: ARG002  (there is no stream)
        self.over = self._watch.look(time.monotonic())

    # There is no stream.

    def open(self) -> None:
        pass

    def read(self) -> None:
        pass

    def close(self) -> None:
        self._look.close()


AnyNode = Union[Node, Here]


def ask(nodes: Sequence[AnyNode], word: str, key: str, patience: float) -> Dict[str, Any]:
    """Send a word to all nodes and return the answers by node name, without nodes that do not answer in time."""
    answers: Dict[str, Any] = {}
    for node in nodes:
        node.received = []
        node.send(word)
    end = time.monotonic() + patience
    while time.monotonic() < end:
        for node in nodes:
            for answer in take(node):
                if key in answer:
                    answers[node.name] = answer[key]
        waiting = [node for node in nodes if node.name not in answers and not node.helpless]
        if not waiting:
            break
        streams = {node.fd: node for node in waiting if node.fd is not None}
        for fd in ready(streams, 0.1):
            streams[fd].read()
        for node in waiting:
            if node.fd is None:
                send_again(node, word)
    return answers


def take(node: AnyNode) -> List[Dict[str, Any]]:
    """Return what a node has sent since the last call."""
    answers, node.received = node.received, []
    return answers


def send_again(node: AnyNode, word: str) -> None:
    """Open another stream for one that broke, and send the word on it. The head has no stream."""
    node.tend()
    if node.fd is not None:
        node.send(word)
