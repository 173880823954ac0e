"""A cluster's head on this machine, with the real launcher, a fake mpirun and a fake ssh."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import stat
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kit.remote import scripts
from kit.remote.run.log import LogEntry, RunLog
from tests.fakes import launch, launcher
from tests.processes import files_of_processes

WAIT_S = 60.0
# The environment of a run whose ranks ignore TERM.
IMPATIENT = {"KIT_TEST_PATIENCE": "0.5"}
MPIRUN = (sys.executable, "-IS", str(Path(__file__).with_name("mpirun.py")))


def until(true: Callable[[], object], *, limit_s: float = WAIT_S) -> None:
    end = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


def marked(run: str) -> list[int]:
    """Return the processes with the run's mark, without zombies."""
    wanted = f"KIT_RUN={run}".encode()
    pids = []
    for environ in files_of_processes("environ"):
        with contextlib.suppress(OSError):
            state = environ.with_name("stat").read_bytes().rpartition(b")")[2].split()[0]
            if state not in (b"Z", b"X") and wanted in environ.read_bytes().split(b"\0"):
                pids.append(int(environ.parent.name))
    return pids


def parent(pid: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
    return 0


class Head:
    """`values` are constants of kitrun (tests.fakes.launcher)."""

    def __init__(self, folder: Path, **values: Any) -> None:
        self.folder, self.values = folder, {"spare_MARKS": str(folder / "marks"), **values}
        self.runs, self.record = folder / "runs", folder / "cluster.json"
        self.doors: list[Door] = []
        self.ids: list[str] = []
        # The ids of this head's runs begin with it, in place of a date, and other heads have another one.
        self.stamp = f"{uuid.uuid4().int % 10**8:08}"
        self.path = f"{folder}/bin:{os.environ['PATH']}"
        # The most bytes of a file that this head's processes may write.
        self.limit_files: int | None = None
        # How many files they may have open, as prlimit reads it: soft:hard.
        self.limit_open = ""
        (folder / "bin").mkdir()

    def door(self) -> Door:
        self.doors.append(Door(self))
        return self.doors[-1]

    def new_id(self) -> str:
        self.ids.append(f"{self.stamp}-{len(self.ids):06}-{uuid.uuid4().hex[:4]}")
        return self.ids[-1]

    def read_runs(self, *words: str) -> bytes:
        """Return what runs.py prints for these words."""
        program = "".join((Path(scripts.__file__).parent / f"{part}.py").read_text() for part in ("folder", "runs"))
        argv = [sys.executable, "-IS", "-c", program, str(self.folder), self.runs.name, *words]
        return subprocess.run(argv, capture_output=True, check=True, timeout=60).stdout

    def argv(self, *words: str, **values: Any) -> list[str]:
        return launcher.argv(self.record, self.runs, *words, **{**self.values, **values})

    def run(self, *argv: str, **more: Any) -> tuple[Door, dict[str, Any]]:
        """Start a run. Return the door and its answer."""
        door = self.door()
        return door, door.ask(self.request(*argv, **more))

    def done(self, *argv: str, **more: Any) -> Story:
        """Run a command to its end."""
        door, answer = self.run(*argv, **more)
        assert "started" in answer, answer
        return door.story()

    def ranks(self, np: int, script: str, **more: Any) -> tuple[Door, dict[str, Any]]:
        """Start `np` ranks of a shell script. Return the door and its answer."""
        places = more.pop("places", [place("gpu1", np)])
        return self.run(*MPIRUN, "-np", str(np), "sh", "-c", script, places=places, **more)

    def request(self, *argv: str, **more: Any) -> dict[str, Any]:
        run = more.pop("id", None) or self.new_id()
        env = {"KIT_RUN": run, **more.pop("env", {})}
        return {
            "op": "start", "id": run, "hostfile": "10.0.0.1 slots=1\n", "argv": list(argv), "env": env, "head": "gpu1",
            "places": [place("gpu1", 1)], "policy": {"operator": "stop", **more.pop("policy", {})},
            "info": {"cluster": "lab", "image": "i", "command": ["true"], "env": [], "by": "me@here"},
            **more,
        }  # fmt: skip

    def ssh(self, text: str = 'exec "$@"', **values: Any) -> None:
        """Install the head's ssh: shell text with $address and $run; "$@" runs the guard on this machine."""
        guards = self.argv("guard", **{"guard_FOLDERS": ["GUARDS"], "store_ROOT": "RUNS", **values})
        # Nodes differ only in their folders: all share this machine's processes.
        command = shlex.join(guards).replace("GUARDS", f"{self.folder}/guards/'\"$address\"'")
        command = command.replace("RUNS", f"{self.folder}/nodes/'\"$address\"'/runs")
        file = self.folder / "bin" / "ssh"
        file.write_text(
            '#!/bin/bash\nwhile [ "$1" != -- ]; do shift; done\naddress=$2; run=$7; shift 6\n'
            f'set -- {command} "$@"\n{text}\n'
        )
        file.chmod(file.stat().st_mode | stat.S_IXUSR)

    def reached_by_ssh(self, before: str = ":") -> str:
        """Return a folder for kit's PATH: its ssh runs the remote command here, and its docker exec the launcher.

        Each ssh begins with the shell text `before`. In it, $count is the number of this ssh, from 1 on, and
        `cut_after N` forwards N bytes before the connection breaks.
        """
        folder = self.folder / "kit-bin"
        folder.mkdir(exist_ok=True)
        texts = {
            # With -G, it contacts no host.
            "ssh": f"[ $1 != -G ] || exit 0\nfor last; do :; done\necho x >>{self.folder}/dialled\n"
            f"count=$(grep -c x {self.folder}/dialled)\n"
            # A connection breaks at once, also if the other end is silent then.
            'cut_after() { dd bs=1 count="$1" status=none < <(exec sh -c "$last"); }\n'
            f'{before}\nexec sh -c "$last"',
            "docker": f'echo "$*" >>{self.folder}/docker-calls\nPATH={self.path}\nexec {shlex.join(self.argv())}',
        }
        for name, text in texts.items():
            (folder / name).write_text(f"#!/bin/bash\n{text}\n")
            (folder / name).chmod(0o755)
        return str(folder)

    def breaks_when(self, file: Path) -> str:
        """Return shell text for `reached_by_ssh`: the first connection breaks when the file exists."""
        wait = f"until [ -e {file} ]; do [ ! -e {self.over} ] || exit; sleep 0.02; done"
        # ssh and what it runs here are one group of processes. A supervisor is not in it.
        return f"if [ $count = 1 ]; then ({wait}; kill -9 0) >/dev/null 2>&1 </dev/null & fi"

    def ahead(self, seconds: float, whose: str = "launch") -> None:
        """Move the clock of this head's supervisors (or of its guards: `guard`) ahead by this many seconds."""
        new = self.folder / "clock.new"
        new.write_text(str(seconds))
        new.rename(self.record.with_name(f"clock-{whose}"))

    def wait_for_looks(self, seconds: float) -> None:
        """Wait until the only supervisor has had a whole turn at this time (see `ahead`)."""
        looks = self.record.with_name("clock-launch.looks")
        until(lambda: looks.exists() and looks.read_text() == f"{seconds} {launch.LOOKS}")

    def log(self) -> bytes:
        """Return the log of the latest run that was started through a door."""
        return (self.runs / self.ids[-1] / "log").read_bytes()

    def with_mpirun(self) -> None:
        """Install the fake mpirun as the head's, with the number of ranks and the command from kit's arguments."""
        file = self.folder / "bin" / "mpirun"
        file.write_text(
            '#!/bin/bash\nwhile [ "$1" != -np ]; do shift; done\nnp=$2\n'
            'while [ "${1##*/}" != kit-rank ]; do shift; done\nshift\n'
            f'exec {shlex.join(MPIRUN)} -np "$np" "$@"\n'
        )
        file.chmod(0o755)

    def left(self) -> list[int]:
        return [pid for run in self.ids for pid in marked(run)]

    def processes(self) -> list[int]:
        """Return the launchers, supervisors and guards of this head."""
        pids = []
        for cmdline in files_of_processes("cmdline"):
            with contextlib.suppress(OSError):
                if f'"{self.runs}"'.encode() in cmdline.read_bytes():
                    pids.append(int(cmdline.parent.name))
        return pids

    def supervisor(self) -> int:
        """Return the process that supervises the only living run: the parent of its mpirun."""
        pids: set[int] = set()

        def one() -> bool:
            # A process that is becoming another program shows neither its mark nor its command.
            pids.clear()
            pids.update({parent(pid) for pid in self.left()} & set(self.processes()))
            return len(pids) == 1

        until(one)
        return pids.pop()

    @property
    def over(self) -> Path:
        """The file that says that the test has ended."""
        return self.folder / "over"

    def close(self) -> None:
        self.over.touch()
        for pid in (*self.processes(), *self.left()):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        for door in self.doors:
            door.close()

    def nothing_left(self) -> None:
        """Check that no process of any run, no supervisor and no guard is left."""
        for door in self.doors:
            door.close()
        until(lambda: not self.processes() and not self.left())


MakeHead = Callable[..., Head]


def place(node: str, ranks: int, *slots: int, address: str = "") -> dict[str, Any]:
    number = node.removeprefix("gpu")
    return {
        "node": node,
        "address": address or f"10.0.0.{number}",
        "ranks": ranks,
        "slots": list(slots or range(ranks)),
    }


class Story:
    """What a run's log contains."""

    def __init__(self, entries: list[LogEntry]) -> None:
        self.entries = entries

    def lines(self, *kinds: str) -> list[str]:
        return [line.decode() for entry in self.entries if entry.kind in kinds for line in entry.lines]

    @property
    def mpirun(self) -> list[str]:
        return self.lines("mpirun")

    @property
    def out(self) -> list[str]:
        return self.lines("out")

    def events(self, name: str) -> list[Mapping[str, Any]]:
        return [entry.fields for entry in self.entries if entry.kind == "event" and entry.fields.get("event") == name]

    @property
    def ending(self) -> Mapping[str, Any]:
        assert self.entries[-1].fields.get("event") == "ended", self.entries[-3:]
        return self.entries[-1].fields

    @property
    def code(self) -> int:
        return int(self.ending["exit_code"])


class Door:
    """A running kit-launch."""

    def __init__(self, head: Head) -> None:
        self.head = head
        limits = [f"--fsize={head.limit_files}"] if head.limit_files is not None else []
        limits += [f"--nofile={head.limit_open}"] if head.limit_open else []
        argv = head.argv()
        if limits:
            # Python renames a .pyc into place also if the limit cut it, and all other heads of this machine read it.
            argv = ["prlimit", *limits, argv[0], "-B", *argv[1:]]
        self.process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PATH": head.path},
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        self.hello = json.loads(self.stdout.readline())
        self._log = RunLog()
        self._entries: list[LogEntry] = []

    def send(self, value: object) -> None:
        self.stdin.write(json.dumps(value).encode() + b"\n")
        self.stdin.flush()

    def ask(self, value: object) -> dict[str, Any]:
        self.send(value)
        return self.answer()

    def answer(self) -> dict[str, Any]:
        line = self.stdout.readline()
        assert line, self.end()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def read_until(self, text: str) -> None:
        """Read the log until it has this line."""
        while text not in Story(self._entries).lines("out", "err", "mpirun"):
            data = self.stdout.read1(65536)  # type: ignore[attr-defined]  # a BufferedReader
            assert data, self._entries
            self._entries += self._log.feed(data)

    def story(self) -> Story:
        """Read the log to the end of the stream."""
        self._entries += self._log.feed(self.stdout.read())
        self._entries += self._log.end()
        return Story(self._entries)

    def stop(self, **more: Any) -> None:
        self.send({"stop": {"why": "Ctrl-C", "grace": 5.0, "by": "me", **more}})

    def hang_up(self) -> None:
        self.stdin.close()

    def end(self) -> tuple[int, bytes, bytes]:
        """Return (exit code, the rest of standard output, standard error)."""
        assert self.process.stderr is not None
        out = self.stdout.read()
        return self.process.wait(WAIT_S), out, self.process.stderr.read()

    def close(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self.stdin.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.stdout.close()
        if self.process.stderr:
            self.process.stderr.close()
