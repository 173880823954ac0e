"""What watches over a run on one node, started by the supervisor through the node's sshd.

It takes a line each from standard input: `beat`, `term` (end the ranks gently), `count` (how many ranks are left),
`stacks`, `end` (end all that is left, say how many would not, and go). It answers in lines of JSON. Where no beat comes
any more, because the head is gone or the link is cut, it ends the run's processes here by itself: nobody else could.
"""

import contextlib
import json
import os
import select
import signal
import sys
import time

from kitrun import procs

# The first that can be written to: a node whose disk is full is guarded like any other.
FOLDERS = ("/run/kit/guards", "/dev/shm/kit-guards")
# Longer than a link may be cut and healed, shorter than a person waits for a GPU.
LOST_S = 45.0
# The supervisor is gone, not the link: the stream ended. Another of its guards may be on the way.
ENDED_S = 10.0
TICK_S = 2.0


def say(**fields):
    """A line to the supervisor; False when nobody can read it."""
    try:
        os.write(1, json.dumps(fields).encode() + b"\n")
    except OSError:
        return False
    return True


def sign(run_id, mine):
    """Write this guard's name where others of the run look for it. Returns the path, '' where none can be written."""
    for folder in FOLDERS:
        path = os.path.join(folder, run_id)
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            with open(path, "w", encoding="ascii") as file:
                file.write(mine)
        except OSError:
            # Half a name is nobody's: an older guard that reads it goes, as it should.
            forget(path)
            continue
        return path
    return ""


def forget(path):
    with contextlib.suppress(OSError):
        os.unlink(path)


def guard(run_id):
    mine = "%d %f" % (os.getpid(), time.monotonic())
    # The latest guard is the one: an older one, whose stream broke, goes when it sees another's name.
    path = sign(run_id, mine)
    heard = time.monotonic()
    told = 0.0
    ended = False
    rest = b""
    while True:
        now = time.monotonic()
        if path and procs.read_text(path) != mine:
            return 0
        if now - heard > (ENDED_S if ended else LOST_S):
            procs.sweep(run_id)
            forget(path)
            return 1
        if not ended and now - told > TICK_S:
            told = now
            say(here=True)
        ready = select.select([] if ended else [0], [], [], 0.5)[0]
        if not ready:
            continue
        data = os.read(0, 4096)
        if not data:
            # Counted from here: after a link that was cut, the last beat is long ago, and another guard on its way.
            ended = True
            heard = time.monotonic()
            continue
        heard = time.monotonic()
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if line == b"term":
                procs.end_gently(run_id)
                say(count=len(procs.ranks(run_id)))
            elif line == b"count":
                say(count=len(procs.ranks(run_id)))
            elif line == b"stacks":
                say(stacks=procs.stacks(run_id))
            elif line == b"end":
                say(left=procs.sweep(run_id))
                forget(path)
                return 0


def main(argv):
    # A stream that broke must not end this before it has ended the ranks.
    for number in (signal.SIGHUP, signal.SIGPIPE, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    if len(argv) == 2 and argv[0] == "guard":
        return guard(argv[1])
    if len(argv) == 2 and argv[0] == "sweep":
        say(left=procs.sweep(argv[1]))
        return 0
    sys.stderr.write("usage: kit-node guard|sweep RUN\n")
    return 2
