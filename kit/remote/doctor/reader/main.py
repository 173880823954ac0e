"""Does the reads of one request, and runs the programs among them.

It prints one line: a mark that no other program knows, and an object of JSON with the answer to each read, in order.
Each read has a thread, and the whole has a limit of time: a disk that does not answer hides only itself.
"""

import json
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time
from typing import Any, Dict, List, Optional, Set

from .places import FILE, addresses, content, fault_of, has, matching, mounted, room, shown

# In bytes: one of many files, an output (nvidia-smi -q -x prints about 30 KB a GPU, and 70 KB of a GeForce with many
# clocks), and all answers together.
SMALL, OUTPUT, TOTAL = 4 << 10, 1 << 20, 4 << 20
# Of a type. Each one has a thread.
MOUNTS = 64
# The output of the look. A manager of 10,000 nodes prints 8 MB.
LOOK = 16 << 20
# In place of the number of a read, and which kinds of reads begin first.
LOOK_AT = -1
RANKS = {"look": 0, "run": 1}
# How many reads run at once.
THREADS = 12
# What a login without a shell's files may lack.
PATHS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
# After the end of a program, something that it left behind may keep its output open.
DRAIN_S = 0.3


class Full(Exception):
    """The answers together are too large."""


class Reading:
    """The reads of one request, and what came of them."""

    def __init__(self, request: Dict[str, Any]) -> None:
        self.request = request
        self.lock = threading.Lock()
        self.answers: Dict[int, Any] = {}
        self.running: Set[int] = set()
        self.over = False
        self.room = TOTAL
        self.todo: Any = queue.Queue()
        self.done, self.done_write = os.pipe()
        reads = list(enumerate(request["reads"]))
        if request["look"]:
            reads.append((LOOK_AT, ["look"]))
        self.count = len(reads)
        # Programs take the longest, so they begin first.
        for number, read in sorted(reads, key=lambda pair: RANKS.get(pair[1][0], len(RANKS))):
            self.todo.put((number, read))

    def start(self) -> None:
        for _ in range(min(THREADS, self.count)):
            threading.Thread(target=self.work, daemon=True).start()
        if not self.count:
            os.write(self.done_write, b".")

    def work(self) -> None:
        while True:
            try:
                number, read = self.todo.get_nowait()
            except queue.Empty:
                return
            try:
                value = self.value(read)
            except Full:
                value = {"full": True}
            with self.lock:
                self.answers[number] = value
                complete = len(self.answers) == self.count
            if complete:
                os.write(self.done_write, b".")

    def value(self, read: List[Any]) -> Any:
        """Return what JSON says about one read."""
        kind, words = read[0], read[1:]
        if kind == "look":
            argv, stdin, limit = self.request["look"]
            return self.run(argv, stdin.encode(), limit, LOOK)
        if kind == "run":
            argv, limit, only_with, tail = words
            return self.run(argv, None, limit, OUTPUT, tail) if has(only_with) else None
        read_one: Any = {
            "file": self.file,
            "files": self.files,
            "links": self.links,
            "disk": room,
            "lookup": addresses,
            "mounts": self.mounts,
        }[kind]
        return read_one(*words)

    def take(self, size: int) -> None:
        with self.lock:
            self.room -= size
            if self.room < 0:
                raise Full

    def files(self, pattern: str) -> Dict[str, str]:
        texts = ((path, self.file(path, SMALL)) for path in matching(pattern))
        return {shown(path): text for path, text in texts if text is not None}

    def file(self, path: str, most: int = FILE) -> Optional[str]:
        data = content(path, most)
        if data is None:
            return None
        self.take(len(data))
        return data.decode("utf-8", "replace")

    def links(self, pattern: str) -> Dict[str, str]:
        links = {}
        for path in matching(pattern):
            try:
                target = os.readlink(path)
            except OSError:
                target = ""
            self.take(len(path) + len(target))
            links[shown(path)] = shown(target)
        return links

    def mounts(self, kind: str, limit: float) -> Optional[Dict[str, List[Any]]]:
        """Return [device, fault] of each mount of a type, by its folder. The fault of one that is late is None."""
        devices = mounted(kind)
        if devices is None:
            return None
        self.take(sum(len(place) + len(device) for place, device in devices.items()))
        if len(devices) > MOUNTS:
            raise Full
        faults: Dict[str, str] = {}

        def look(place: str) -> None:
            faults[place] = fault_of(place)

        threads = [threading.Thread(target=look, args=(place,), daemon=True) for place in devices]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + limit
        for thread in threads:
            thread.join(max(0, deadline - time.monotonic()))
        return {shown(place): [device, faults.get(place)] for place, device in devices.items()}

    def run(
        self, argv: List[str], stdin: Optional[bytes], limit: float, most: int, tail: bool = False
    ) -> Optional[List[Any]]:
        """Return [code, output, errors] of a program, or None if the VM does not have it. A late one has no code.

        Of more than `most` bytes of output, it is the beginning, or with `tail` the end.
        """
        try:
            process: Any = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                cwd="/",
            )
        except OSError:
            return None
        with self.lock:
            self.running.add(process.pid)
            over = self.over
        if over:
            kill(process.pid)
        try:
            return self.output(process, stdin, limit, most, tail)
        finally:
            # Before the group's number is free again. What the program left behind ends with it.
            kill(process.pid)
            with self.lock:
                self.running.discard(process.pid)
            reap(process)
            for pipe in (process.stdout, process.stderr):
                pipe.close()

    def output(self, process: Any, stdin: Optional[bytes], limit: float, most: int, tail: bool) -> List[Any]:
        if stdin is not None:
            try:
                process.stdin.write(stdin)
                process.stdin.close()
            except OSError:
                pass
        deadline, over = time.monotonic() + limit, False
        texts = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
        poller, pipes = select.poll(), len(texts)
        for pipe in texts:
            poller.register(pipe, select.POLLIN)
        # A program may close its output and go on.
        while (pipes or not over) and time.monotonic() < deadline:
            if not over and ended(process.pid) is not None:
                over, deadline = True, min(deadline, time.monotonic() + DRAIN_S)
            for pipe, _ in poller.poll(20):
                data = os.read(pipe, 65536)
                text = texts[pipe]
                text += data
                excess = slice(max(0, len(text) - most)) if tail else slice(most, None)
                del text[excess]
                if not data:
                    poller.unregister(pipe)
                    pipes -= 1
        code = ended(process.pid)
        out, errors = (bytes(texts[pipe.fileno()]) for pipe in (process.stdout, process.stderr))
        if most != LOOK:
            self.take(len(out) + len(errors))
        return [code, out.decode("utf-8", "replace"), errors.decode("utf-8", "replace")]

    def end(self) -> None:
        """End all programs that still run."""
        with self.lock:
            self.over = True
            running = list(self.running)
        for pid in running:
            kill(pid)

    def answer(self) -> Dict[str, Any]:
        with self.lock:
            answers = dict(self.answers)
        look = answers.pop(LOOK_AT, None)
        late = [number for number in range(len(self.request["reads"])) if number not in answers]
        full = [number for number, value in answers.items() if value == {"full": True}]
        missing = sorted(late + full)
        reads = [None if number in missing else answers[number] for number in range(len(self.request["reads"]))]
        return {"reads": reads, "missing": missing, "look": look}


def ended(pid: int) -> Optional[int]:
    """Return the exit code of a child as a shell reports it, or None. It stays, so that nobody else gets its number."""
    state = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if state is None:
        return None
    return state.si_status if state.si_code == os.CLD_EXITED else 128 + state.si_status


def reap(process: Any) -> None:
    """Wait for the end of a process that was killed. One that waits in a driver, as nvidia-smi may, does not end."""
    deadline = time.monotonic() + DRAIN_S
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)


def kill(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except OSError:
        pass


def main(text: str) -> None:
    """Do a request. Returns only if all went well; the process ends then, whatever its threads wait for."""
    request = json.loads(text)
    environ = os.environ
    environ["LC_ALL"] = "C"
    present = [path for path in environ.get("PATH", "").split(":") if path]
    environ["PATH"] = ":".join(present + [path for path in PATHS if path not in present])
    reading = Reading(request)

    def stop(_number: object, _frame: object) -> None:
        reading.end()
        os._exit(1)

    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    reading.start()
    poller = select.poll()
    poller.register(reading.done, select.POLLIN)
    # No bits: it reports only that kit is gone.
    poller.register(1, 0)
    deadline = time.monotonic() + request["limit"]
    while True:
        left = deadline - time.monotonic()
        events = dict(poller.poll(max(0, 1000 * left)))
        if 1 in events:
            stop(None, None)
        if events or left <= 0:
            break
    reading.end()
    answer = json.dumps(reading.answer(), ensure_ascii=False)
    sys.stdout.buffer.write(("@@ %s %s\n" % (request["mark"], answer)).encode("utf-8", "replace"))
    sys.stdout.buffer.flush()
    # A thread may wait for a disk that never answers.
    os._exit(0)
