"""The line of waiting runs on this machine: a real kit-launch and keeper, hosts that answer, and a fake mpirun."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.fakes.head import Door, Head, until

# Each host has its own address of this machine, and all have one port, as sshd of a cluster.
ADDRESSES = {"gpu1": "127.0.0.1", "gpu2": "127.0.0.2", "gpu3": "127.0.0.3"}


class Line:
    """A head with three hosts of two slots each. The ranks of `steady` runs live until `let_go`."""

    def __init__(self, head: Head, port: int) -> None:
        self.head = head
        head.with_mpirun()
        head.ssh()
        self.deployed(*ADDRESSES, port=port)

    def deployed(self, *hosts: str, port: int) -> None:
        self.head.record.write_text(json.dumps({"ssh_port": port, "nodes": [{"name": host} for host in hosts]}))

    def entry(self, *counts: int, script: str = "", hosts: tuple[str, ...] = tuple(ADDRESSES), **more: Any) -> Any:
        """What kit puts in line: ranks on as many hosts as there are counts. They live until `let_go`."""
        run = self.head.new_id()
        gate = self.head.folder / "gates" / run
        gate.parent.mkdir(exist_ok=True)
        np = sum(counts)
        command = ["mpirun", "-np", str(np), "python3", "-IS", "/opt/kit/bin/kit-rank"]
        # A rank that begins while the test ends finds the file `over`. Nobody would kill it.
        waits = f"until [ -e {gate} ]; do [ ! -e {self.head.over} ] || exit 9; sleep 0.05; done"
        command += ["sh", "-c", script or f"echo up; {waits}; exit $(cat {gate})"]
        policy = {"operator": None, **more.pop("policy", {})}
        return {
            "id": run,
            "request": self.head.request(*command, id=run, policy=policy),
            "need": {"counts": list(counts), "hosts": list(hosts)},
            "nodes": {name: {"address": at, "slots": 2, "gpus": 0, "cores": 4} for name, at in ADDRESSES.items()},
            "np": np,
            **more,
        }

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        door = self.head.door()
        answer = door.ask({"op": op, **fields})
        assert door.end() == (0, b"", b""), answer
        return answer

    def queue(self, *entries: Any, **more: Any) -> tuple[str, ...]:
        ids = tuple(entry["id"] for entry in entries)
        answer = self.ask("queue", entries=list(entries), **more)
        assert answer == {"queued": list(ids), "ahead": answer.get("ahead")}, answer
        return ids

    def array(self, size: int, *counts: int, **more: Any) -> tuple[str, list[Any]]:
        """Return the id of an array, and its entries."""
        of = self.head.new_id()
        arrays = [{"of": of, "index": index, "size": size} for index in range(size)]
        return of, [self.entry(*counts, array=array, **more) for array in arrays]

    def waits(self, run: str, kind: str) -> dict[str, Any]:
        """Wait until the run waits for this reason, and return the reason."""
        found: dict[str, Any] = {}

        def there() -> bool:
            found.clear()
            found.update((self.ask("line")["state"].get("reasons") or {}).get(run) or {})
            return found.get("kind") == kind

        until(there)
        return found

    def record(self, run: str) -> dict[str, Any]:
        """Wait until the run has started, and return its record."""
        file = self.head.runs / run / "record.json"
        until(file.exists)
        return dict(json.loads(file.read_text()))

    def hosts_of(self, run: str) -> dict[str, list[int]]:
        """Wait until the run has started, and return its slots by host."""
        return {one["node"]: one["slots"] for one in self.record(run)["places"]}

    def attached(self, run: str) -> Door:
        door = self.head.door()
        assert "attached" in door.ask({"op": "attach", "id": run})
        return door

    def let_go(self, run: str, code: int = 0) -> None:
        """Let the run's ranks end with this exit code, and wait until it has ended."""
        self.hosts_of(run)
        door = self.attached(run)
        door.read_until("up")
        fresh = self.head.folder / "gates" / "fresh"
        fresh.write_text(str(code))
        fresh.rename(fresh.with_name(run))
        assert door.story().code == code

    @property
    def waiting(self) -> list[str]:
        return [entry["id"] for entry in self.ask("line")["line"]]

    @contextlib.contextmanager
    def no_start(self) -> Iterator[Callable[[], bool]]:
        """Let no run start meanwhile. Yield a function that says whether a process is about to start one."""
        self.head.runs.mkdir(exist_ok=True)
        with (self.head.runs / ".starting").open("w") as gate:
            fcntl.flock(gate, fcntl.LOCK_EX)
            yield lambda: any("->" in words for words in locks(gate.fileno()))

    def keeper(self) -> int:
        """Return the process that holds the keeper's lock."""
        with (self.head.runs / ".queue" / ".keeper").open() as lock:
            return next((int(words[4]) for words in locks(lock.fileno()) if words[1] == "FLOCK"), 0)


def locks(file: int) -> list[list[str]]:
    """Return the words of the lines of /proc/locks about a file. In one of a process that waits, `->` comes second."""
    number = str(os.fstat(file).st_ino)
    lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return [words for words in lines if "FLOCK" in words and words[-3].rpartition(":")[2] == number]
