"""A cluster's head on this machine: its launcher for real, mpirun and ssh of the test's own, and what it leaves."""

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

from kit.remote.run.log import Entry, RunLog
from tests.fakes import launcher

WAIT_S = 60.0
# The environment of a run whose ranks do not listen to TERM.
IMPATIENT = {"KIT_TEST_PATIENCE": "0.5"}
MPIRUN = (sys.executable, "-IS", str(Path(__file__).with_name("mpirun.py")))


def until(true: Callable[[], object], *, limit_s: float = WAIT_S) -> None:
    end = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


def marked(run: str) -> list[int]:
    """Processes that carry the run's mark, zombies left out."""
    wanted = f"KIT_RUN={run}".encode()
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            state = environ.with_name("stat").read_bytes().rpartition(b")")[2].split()[0]
            if state not in (b"Z", b"X") and wanted in environ.read_bytes().split(b"\0"):
                found.append(int(environ.parent.name))
    return found


def parent(pid: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
    return 0


class Head:
    """`values` are constants of kitrun (tests.fakes.launcher)."""

    def __init__(self, folder: Path, **values: Any) -> None:
        self.folder, self.values = folder, values
        self.runs, self.record = folder / "runs", folder / "cluster.json"
        self.doors: list[Door] = []
        self.ids: list[str] = []
        self.path = f"{folder}/bin:{os.environ['PATH']}"
        # The most bytes of a file that this head's processes may write.
        self.limit_files: int | None = None
        (folder / "bin").mkdir()

    def door(self) -> Door:
        self.doors.append(Door(self))
        return self.doors[-1]

    def new_id(self) -> str:
        self.ids.append(f"t-{len(self.ids):03}-{uuid.uuid4().hex[:12]}")
        return self.ids[-1]

    def argv(self, *words: str, **values: Any) -> list[str]:
        return launcher.argv(self.record, self.runs, *words, **{**self.values, **values})

    def run(self, *argv: str, **more: Any) -> tuple[Door, dict[str, Any]]:
        """A door through which a run was started, and the answer to that."""
        door = self.door()
        return door, door.ask(self.request(*argv, **more))

    def done(self, *argv: str, **more: Any) -> Story:
        """A run from its start to its end."""
        door, answer = self.run(*argv, **more)
        assert "started" in answer, answer
        return door.story()

    def ranks(self, np: int, script: str, **more: Any) -> tuple[Door, dict[str, Any]]:
        """As `run`, with `np` ranks of this shell script."""
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
        """What the head calls as ssh: shell text with $address and $run; its words are the guard's, on this machine."""
        guards = self.argv("guard", **{"guard_FOLDERS": ["GUARDS"], **values})
        # Nodes are told apart by their folders alone: all share this machine's processes.
        command = shlex.join(guards).replace("GUARDS", f"{self.folder}/guards/'\"$address\"'")
        file = self.folder / "bin" / "ssh"
        file.write_text(
            '#!/bin/bash\nwhile [ "$1" != -- ]; do shift; done\naddress=$2; for run; do :; done\n'
            f'set -- {command} "$run"\n{text}\n'
        )
        file.chmod(file.stat().st_mode | stat.S_IXUSR)

    def reached_by_ssh(self, before: str = ":") -> str:
        """A folder for kit's PATH: its ssh runs the remote command here, and docker exec the launcher.

        `before` is shell text that each ssh begins with; $count in it says which one this is, from 1 on, and cut_after
        passes so many bytes on before the connection breaks.
        """
        folder = self.folder / "kit-bin"
        folder.mkdir(exist_ok=True)
        texts = {
            "ssh": f"for last; do :; done\necho x >>{self.folder}/dialled\n"
            f"count=$(grep -c x {self.folder}/dialled)\n"
            'cut_after() { sh -c "$last" | dd bs=1 count="$1" status=none; }\n'
            f'{before}\nexec sh -c "$last"',
            "docker": f'echo "$*" >>{self.folder}/docker-told\nPATH={self.path}\nexec {shlex.join(self.argv())}',
        }
        for name, text in texts.items():
            (folder / name).write_text(f"#!/bin/bash\n{text}\n")
            (folder / name).chmod(0o755)
        return str(folder)

    def ahead(self, seconds: float, whose: str = "launch") -> None:
        """From now on the clock of this head's supervisors (or `guard`s) is so far ahead."""
        new = self.folder / "clock.new"
        new.write_text(str(seconds))
        new.rename(self.record.with_name(f"clock-{whose}"))

    def log(self) -> bytes:
        """Of the latest run that was started through a door."""
        return (self.runs / self.ids[-1] / "log").read_bytes()

    def with_mpirun(self) -> None:
        """What the head calls as mpirun: the fake one, with the ranks' number and command of kit's own words."""
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
        """Launchers, supervisors and guards of this head."""
        found = []
        for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if f'"{self.runs}"'.encode() in cmdline.read_bytes():
                    found.append(int(cmdline.parent.name))
        return found

    def supervisor(self) -> int:
        """The process that watches over the one run that lives: the parent of its mpirun."""
        found: set[int] = set()

        def one() -> bool:
            # A process that is just becoming another program shows neither its mark nor its command.
            found.clear()
            found.update({parent(pid) for pid in self.left()} & set(self.processes()))
            return len(found) == 1

        until(one)
        return found.pop()

    def close(self) -> None:
        for pid in (*self.processes(), *self.left()):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        for door in self.doors:
            door.close()

    def nothing_left(self) -> None:
        """No process of any run, no supervisor, no guard."""
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
    """What a run's log said."""

    def __init__(self, entries: list[Entry]) -> None:
        self.entries = entries

    def lines(self, *kinds: str) -> list[str]:
        return [line.decode() for each in self.entries if each.kind in kinds for line in each.lines]

    @property
    def mpirun(self) -> list[str]:
        return self.lines("mpirun")

    @property
    def out(self) -> list[str]:
        return self.lines("out")

    def events(self, name: str) -> list[Mapping[str, Any]]:
        return [each.fields for each in self.entries if each.kind == "event" and each.fields.get("event") == name]

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
        limit = ["prlimit", f"--fsize={head.limit_files}"] if head.limit_files is not None else []
        self.process = subprocess.Popen(
            [*limit, *head.argv()],
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
        self._told: list[Entry] = []

    def send(self, value: object) -> None:
        self.stdin.write(json.dumps(value).encode() + b"\n")
        self.stdin.flush()

    def ask(self, value: object) -> dict[str, Any]:
        self.send(value)
        return self.answer()

    def answer(self) -> dict[str, Any]:
        line = self.stdout.readline()
        assert line, self.end()
        found: dict[str, Any] = json.loads(line)
        return found

    def read_until(self, text: str) -> None:
        """Take from the log until a line of it is this."""
        while text not in Story(self._told).lines("out", "err", "mpirun"):
            data = self.stdout.read1(65536)  # type: ignore[attr-defined]  # a BufferedReader
            assert data, self._told
            self._told += self._log.feed(data)

    def story(self) -> Story:
        """All of the log, to the end of the stream."""
        self._told += self._log.feed(self.stdout.read())
        self._told += self._log.end()
        return Story(self._told)

    def stop(self, **more: Any) -> None:
        self.send({"stop": {"why": "Ctrl-C", "grace": 5.0, "by": "me", **more}})

    def hang_up(self) -> None:
        self.stdin.close()

    def end(self) -> tuple[int, bytes, bytes]:
        """(exit code, the rest of standard output, standard error)"""
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
