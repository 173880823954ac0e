"""kit-launch: kit starts a run, follows it, and stops it through this program. The run itself does not need it.

Protocol. First this prints a line {"kit-launch": 2, "stdin": true, "words": true, "diffs": true, "options": [names],
"record": "<cluster.json>", "runs": [runs that hold slots], "code": {digest: [hosts]}, "needed": [digests],
"waiting": N, "cordons": {...}, "reserved": {...}, "now": seconds since 1970, by this clock}: the runs by
kitrun.leases.held; the snapshots of code that are here, the newest first, and those that these and waiting runs need;
what is reserved for the first in line (kitqueue.gate).
`words`: an added place may have "env" (kitelastic.desk). `diffs`: runs that join the line may have one difference of
their code together (kitqueue.desk). `options`: those of a run that earlier launchers ignore
(kitrun.requests). kit answers with one line, and gets one or more:

    {"op": "start", "id", "places", "helpers", "hostfile", "argv", "env", "head", "policy", "info", "wait", "code",
    "stdin", "torchrun", "elastic", "now"}
        {"cordoned": {host: cordon}} if a host of it takes no new run, {"held": [records]} if other runs hold slots, or
        {"reserved": {...}} if slots are reserved for a run in line, unless it starts `now`. If it may wait, {"waiting":
        [records], "reserved"} in place of these two. {"started": id}; then the log, as with attach
    {"op": "attach", "id", "offset", "follow", "operator", "last", "tail"}
        {"attached": record, "alive", "ending", "offset", "now"} or {"missing": id}; then the log from that byte on,
        records of kitrun.frames, and at the end one more, the event `ended` with how it ended. With "pruned": true, the
        log was deleted, and only the event comes. With `last`, it begins that many bytes before its end, and with
        `tail` at the record that begins there or not much before; `offset` of the answer says where. `now` is the time
        by this clock, as records have it
    {"op": "stop", "id", "why", "grace", "by"}
        {"stopping": record}, and then the log's end; {"over": record, "ending"} or {"missing": id}
    {"op": "hosts", "id", "add", "drop"}
        see kitelastic.desk; or {"missing": id}

A run that waits in line answers attach with {"queued": entry, "reason"}, again whenever that changes, until it starts,
and stop with {"removed": entry} and what else `change` answers. The id of an array answers attach with {"array": id,
"members": [ids in line], "living": [ids]}, and stop as a run in line. Requests about the line: kitqueue.desk.

An id may be the beginning of one, or '' for the latest. With "line": true, if no run lives, '' may also mean a run in
line: attach waits for it, and stop answers {"queued": entry, "reason"} and changes nothing.

While the log comes, kit sends the lines {} (still here) and {"stop": {…}}. If it started the run with `stdin`, it also
sends {"stdin": BASE64} for rank 0, and {"stdin": null} at the end. When kit's stream ends, this program ends
and the run continues. The supervisor ends a run with an operator in the foreground if no operator returns for a while.
"""

import binascii
import contextlib
import json
import os
import select
import sys
import time
from typing import Callable, Dict, Optional, Sequence

from kitqueue import desk, gate, line, moving, turn

from kitrun import code, fence, frames, leases, store
from kitrun.requests import OPTIONS, Input, Request

RECORD = "/etc/kit/cluster.json"
CHUNK = 262144
# While a run is young its log is read more often: many runs are short.
YOUNG_S, QUICK_S, SLOW_S = 5.0, 0.01, 0.04
# How long an operator whose stream ended has to return on another one.
COME_BACK_S = 15.0
# The exit code if there is no such run, or if it is an array.
MISSING = 4


def say(value: object) -> None:
    sys.stdout.write(frames.text(value) + "\n")
    sys.stdout.flush()


def read_record(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


def ended(ending: Request) -> bytes:
    """Return the record of the event that ends a log."""
    return frames.event(int(time.time() * 1000), "ended", **ending)


class Front:
    def __init__(self, root: Optional[str] = None, record: str = RECORD) -> None:
        self.root, self.record = root or store.ROOT, record
        self.input = Input()
        # Whether this connection brings the standard input of the run that it started.
        self._sends_stdin = False

    def serve(self) -> int:
        runs, waiting = leases.held(self.root), line.entries(self.root)
        say(
            {
                "kit-launch": 2,
                "stdin": True,
                "words": True,
                "diffs": True,
                "options": OPTIONS,
                "record": read_record(self.record),
                "runs": runs,
                "code": code.snapshots(root=self.root),
                "needed": sorted(
                    {record["code"]["digest"] for record in runs if record.get("code")} | line.code(waiting)
                ),
                "waiting": len(waiting),
                "cordons": line.cordons(self.root),
                "reserved": gate.shown(gate.reserved(self.root)) if waiting else None,
                "now": time.time(),
            }
        )
        # kit is still reading that. What starts a run takes a third of this program's start, so it comes only now.
        from kitrun import begin as _  # noqa: F401

        request = self.input.first()
        if request is None:
            return 0
        # A keeper that was killed comes back.
        if request.get("op") not in moving.AWAY:
            desk.tend(self.root, self.record, waiting)
        try:
            answer = desk.answer(request, self.root, self.record) or turn.without_id(request, waiting, self.root)
            if answer is not None:
                say(answer)
                return 0
            operation = self._operations()[request["op"]]
            word = request["id"]
            request["offset"] = max(0, int(request.get("offset", 0)))
            request["last"] = max(0, int(request.get("last", 0)))
            request["tail"] = max(0, int(request.get("tail", 0)))
            run = store.Run(word, self.root) if request["op"] == "start" else self._started(word + "", waiting)
        except (KeyError, TypeError, ValueError):
            sys.stderr.write("kit-launch: this is not a request: %s\n" % json.dumps(request)[:80])
            return 2
        try:
            return operation(run, request) if run is not None else self._in_line(word, request)
        except BrokenPipeError:
            # Python flushes standard output when it exits; that must not fail, too.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            return 0
        except OSError as error:
            say({"failed": str(error)})
            return 1

    def _started(self, word: str, waiting: Sequence[Request]) -> Optional[store.Run]:
        """Return the run that the word means, unless it may also mean one in line."""
        run = store.find(word, self.root)
        if run is None:
            return None
        others = word and run.id != word and any(entry["id"].startswith(word) for entry in waiting)
        # If the head went down during its start, it is still in line, and starts again.
        again = any(entry["id"] == run.id for entry in waiting) and run.cut
        return None if others or again else run

    def _operations(self) -> "Dict[str, Callable[[store.Run, Request], int]]":
        return {"start": self.start, "attach": self.attach, "stop": self.stop, "hosts": self.hosts}

    def hosts(self, run: store.Run, request: Request) -> int:
        """Change the hosts of an elastic run."""
        # Imported only here: few runs are elastic.
        from kitelastic import desk as hosts

        try:
            say(hosts.change(run, request, self.root))
        except (KeyError, TypeError, ValueError) as error:
            say({"failed": "this is not a change of hosts: %s" % error})
        return 0

    def start(self, run: store.Run, request: Request) -> int:
        from kitrun import begin

        launch = begin.launch_of(request, self.root)
        if launch is None:
            sys.stderr.write("kit-launch: this is not a launch\n")
            return 2
        reported = None
        while True:
            with leases.starting(self.root):
                # kit looked at all this when it planned the run, and it may have changed since.
                against = gate.against(launch, self.root, now=bool(request.get("now")))
                if against is None:
                    # Two runs that somebody starts in the same second may have the same id.
                    if os.path.lexists(run.folder) or line.has(run.id, self.root):
                        say({"taken": [run.id]})
                        return 3
                    self._begin(run, launch)
                    break
            answer = {"held": against.held} if against.held else {"reserved": gate.shown(against.first)}
            if against.cordoned or not request.get("wait"):
                say({"cordoned": against.cordoned} if against.cordoned else answer)
                return 3
            holders = (against.held, against.first and against.first.id)
            if holders != reported:
                say({"waiting": against.held, "reserved": gate.shown(against.first)})
                reported = holders
            self.input.lines(0.5)
            if self.input.over:
                return 0
        say({"started": run.id})
        if request.get("detach"):
            return 0
        return self.follow(run, 0, follow=True, operator=request["policy"].get("operator") is not None)

    def _begin(self, run: store.Run, launch: Request) -> None:
        from kitrun import begin

        begin.begin(run, begin.record_of(run.id, launch), launch, lambda: self._prepare(run, launch))

    def _prepare(self, run: store.Run, launch: Request) -> None:
        if launch["policy"].get("operator") == "stop":
            run.touch_operator()
        if launch["stdin"]:
            run.open_stdin()
            self._sends_stdin = True

    def attach(self, run: store.Run, request: Request) -> int:
        pruned = {} if os.path.exists(run.path("log")) else {"pruned": True}
        offset = 0 if pruned else self._beginning(run, request)
        now = time.time()
        say(dict(pruned, attached=run.record, alive=run.alive, ending=run.ending, offset=offset, now=now))
        if pruned:
            self._send(ended(run.ending or {"lost": True}), run, operator=False)
            return 0
        operator = bool(request.get("operator"))
        return self.follow(run, offset, follow=bool(request.get("follow", True)), operator=operator)

    def _beginning(self, run: store.Run, request: Request) -> int:
        """Return the byte of the log from which on it is wanted."""
        offset, size = request["offset"], os.stat(run.path("log")).st_size
        if request["last"]:
            offset = max(offset, size - request["last"])
        if request["tail"]:
            offset = max(offset, run.mark(size - request["tail"]))
        return int(offset)

    def _in_line(self, word: str, request: Request) -> int:
        """Answer about a run that waits in line: end its wait, or tell why it waits until it starts, and attach."""
        outcome = turn.begun(word, request, self.root)
        if not isinstance(outcome, str):
            say(outcome)
            return 0 if "removed" in outcome else MISSING
        run = store.Run(outcome, self.root)
        follow = bool(request.get("follow", True))
        if not turn.await_start(run, self.record, say, self._gone if follow else lambda _: True):
            return 0 if line.has(run.id, self.root) else MISSING
        return self.stop(run, request) if request["op"] == "stop" else self.attach(run, request)

    def _gone(self, patience: float) -> bool:
        self.input.lines(patience)
        return self.input.over

    def stop(self, run: store.Run, request: Request) -> int:
        if not run.alive:
            say({"over": run.record, "ending": run.ending})
            return 0
        run.ask_to_stop(request.get("why"), request.get("grace", 10.0), request.get("by"))
        say({"stopping": run.record})
        return self.follow(run, os.path.getsize(run.path("log")), follow=True, operator=False)

    def follow(self, run: store.Run, offset: int, *, follow: bool, operator: bool) -> int:
        """Send the log from this byte on, until the run has ended (without `follow`, to the log's present end)."""
        began = time.monotonic()
        if operator:
            run.touch_operator()
        log = os.open(run.path("log"), os.O_RDONLY)
        os.lseek(log, offset, os.SEEK_SET)
        os.set_blocking(1, False)
        try:
            while True:
                # Look before reading: the loop below reads all that was written until now, and nothing comes after it.
                over = not run.alive
                idle = True
                while True:
                    data = os.read(log, CHUNK)
                    if not data:
                        break
                    self._send(data, run, operator)
                    idle = False
                if over:
                    ending = run.ending or {"lost": True}
                    self._send(ended(ending), run, operator)
                if over or not follow:
                    return 0
                patience = QUICK_S if time.monotonic() - began < YOUNG_S else SLOW_S
                self._hear(run, operator, patience if idle else 0)
        except BrokenPipeError:
            if operator:
                self._leave(run)
            raise

    def _send(self, data: bytes, run: store.Run, operator: bool) -> None:
        """Write as fast as kit reads, and hear kit meanwhile: an operator whose screen is paused is still there."""
        view = memoryview(data)
        while view:
            heard, ready, _ = select.select([0], [1], [])
            if heard:
                self._hear(run, operator, 0)
            if ready:
                with contextlib.suppress(BlockingIOError):
                    view = view[os.write(1, view) :]

    def _hear(self, run: store.Run, operator: bool, patience: float) -> None:
        """Read kit's lines. Raises BrokenPipeError when kit's stream has ended: nobody waits for the log any more."""
        for value in self.input.lines(patience):
            if operator:
                run.touch_operator()
            if isinstance(value, dict) and "stdin" in value and self._sends_stdin:
                self._take_stdin(run, value["stdin"])
            if isinstance(value, dict) and isinstance(value.get("stop"), dict):
                stop = value["stop"]
                run.ask_to_stop(stop.get("why"), stop.get("grace", 10.0), stop.get("by"))
        if self.input.over:
            if self._sends_stdin:
                run.end_stdin()
            raise BrokenPipeError

    def _take_stdin(self, run: store.Run, text: object) -> None:
        """Keep a piece of standard input. If the disk is full, rank 0 sees the end: it must not miss a piece."""
        try:
            if isinstance(text, str):
                run.take_stdin(binascii.a2b_base64(text))
                return
            run.end_stdin()
        except (OSError, ValueError):
            # The ending of the run says so: nobody reads this program's standard error after a good run.
            run.cut_stdin()
        self._sends_stdin = False

    def _leave(self, run: store.Run) -> None:
        """Shorten the wait for the operator, whose stream ended. Another stream may come, but not much later."""
        from kitrun import decide

        run.touch_operator(over=decide.OPERATOR_S - COME_BACK_S)


def main() -> int:
    fence.close()
    return Front().serve()
