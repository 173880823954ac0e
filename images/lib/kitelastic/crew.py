"""The ranks' processes as the head sees them: one stream to each rank's node, with its order and its output."""

import json
import os
import select
import subprocess
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from kitrun import frames, nccl

# Two silent intervals more than the first end a stream: a rank on a dead host must fail before Gloo's own timeout.
LIMITS = ("-o", "ConnectTimeout=8", "-o", "ServerAliveInterval=3", "-o", "ServerAliveCountMax=3")
SSH = ("ssh", "-T", "-o", "BatchMode=yes", *LIMITS)
WORKER = ("python3", "-IS", "/opt/kit/bin/kit-worker")
TICK_S = 0.1
# After its grace on the node, plus time for a slow network: then the stream itself goes, which ends the rank, too.
END_S = 6.0
# ssh's own exit code for a connection that failed or broke. A rank can have it, too: sys.exit(-1).
SSH_FAILED = 255
# What stands for the exit code of a rank whose connection broke. No process has it.
BROKEN = 256

Key = Tuple[str, int]


def order_of(start: Mapping[str, Any], slot: Any, meeting: Mapping[str, str], hosts: Sequence[str]) -> Dict[str, Any]:
    """Return what kit-worker reads for a rank.

    `slot` is Horovod's SlotInfo, `meeting` where the ranks meet. `hosts` are those of the present world, by number.
    """
    number = hosts.index(slot.hostname) if slot.hostname in hosts else 0
    env = dict(
        start["env"],
        HOROVOD_HOSTNAME=slot.hostname,
        HOROVOD_RANK=str(slot.rank),
        HOROVOD_SIZE=str(slot.size),
        HOROVOD_LOCAL_RANK=str(slot.local_rank),
        HOROVOD_LOCAL_SIZE=str(slot.local_size),
        HOROVOD_CROSS_RANK=str(slot.cross_rank),
        HOROVOD_CROSS_SIZE=str(slot.cross_size),
        # kit-rank and the guards know a rank by these. They are its numbers at its start.
        KIT_AGENT="elastic",
        RANK=str(slot.rank),
        WORLD_SIZE=str(slot.size),
        LOCAL_RANK=str(slot.local_rank),
        LOCAL_WORLD_SIZE=str(slot.local_size),
        # Not the cross rank: with uneven slots, ranks of one host have different ones.
        GROUP_RANK=str(number),
    )
    env.update(meeting)
    if len(hosts) == 1:
        # NCCL names a network there, too, and uses none. Ranks on a host that comes later are watched: with another
        # network than theirs, NCCL does not connect.
        env.pop(nccl.REQUIRE, None)
    order = {"run": start["run"], "env": env, "argv": list(start["argv"])}
    order.update({name: start[name] for name in ("wdir", "code", "began") if name in start})
    return order


def with_words(start: Mapping[str, Any], words: Mapping[str, str]) -> Dict[str, Any]:
    """Return the start of ranks on a host that has its own values of some variables. '': they do not get it."""
    env = {name: value for name, value in start["env"].items() if name not in words}
    env.update((name, value) for name, value in words.items() if value)
    return dict(start, env=env)


class Worker:
    """One rank's stream. `rank` is the number in the present world, which the driver changes."""

    def __init__(self, key: Key, rank: int, argv: Sequence[str], order: Mapping[str, Any]) -> None:
        self.key, self.rank = key, rank
        # We end it ourselves, so its end is no failure.
        self.ended = False
        self.exit_code: Optional[int] = None
        # In how many worlds this rank met the others.
        self.worlds = 0
        # Whether kit-rank has reported the rank's start, and its end: then the exit code is the rank's own.
        self.started = self.reported = False
        self._splitter = frames.Splitter()
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            # On the head, kit-worker inherits this. Only an order says whether NCCL is watched.
            env={name: value for name, value in os.environ.items() if name != nccl.REQUIRE},
            start_new_session=True,
        )
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            # Its exit code says why.
            pass

    def run(self, events: Sequence[Any], write: Callable[[bytes], None]) -> int:
        """Pass its output on until it has ended, or until one of the events is set. Return its exit code."""
        process = self._process
        assert process.stderr is not None
        fd = process.stderr.fileno()
        deadline: Optional[float] = None
        while True:
            if deadline is None and any(event.is_set() for event in events):
                deadline = time.monotonic() + END_S
                self.end()
            if deadline is not None and time.monotonic() > deadline:
                process.kill()
            poller = select.poll()
            poller.register(fd, select.POLLIN)
            if poller.poll(TICK_S * 1000):
                data = os.read(fd, 65536)
                if not data:
                    break
                self._pass_on(self._splitter.feed(data), write)
            elif process.poll() is not None:
                break
        self._pass_on(self._splitter.end(), write)
        status = process.wait()
        process.stderr.close()
        code = status if status >= 0 else 128 - status
        self.exit_code = BROKEN if code == SSH_FAILED and not self.reported else code
        return self.exit_code

    def end(self) -> None:
        """End the rank on its node, by ending its standard input."""
        self.ended = True
        stdin = self._process.stdin
        if stdin is not None:
            try:
                stdin.close()
            except OSError:
                return

    def _pass_on(self, pieces: Any, write: Callable[[bytes], None]) -> None:
        for rank, kind, more, body in pieces:
            self.started = self.started or kind == "u"
            self.reported = self.reported or kind == "x"
            if rank is None:
                write(body)
            elif kind != "x" or not self.ended:
                write(frames.relayed(str(self.rank).encode(), kind, body, more))


def argv_of(node: str, address: str, head: str) -> List[str]:
    """Return the command that starts kit-worker on a node. The head's own needs no ssh."""
    return list(WORKER) if node == head else [*SSH, "--", address, *WORKER]
