"""Stagers (images/bin/kit-data) as real processes of this machine, each with its own address, folder and socket.

A stager may run with a hook: a line of Python before it begins, to break something inside it on purpose.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import tempfile
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kit.remote.data.feed import listing_id
from kit.remote.ship.certificate import certificate
from tests.fakes.head import until
from tests.fakes.launcher import LIB, PYTHON, load
from tests.sockets import own_addresses

relay = load("kitdata.relay")

WAIT_S = 60.0
_PROGRAM = """
import sys
sys.path.insert(0, {lib!r})
{hook}
from kitdata import {module}
sys.exit({module}.main({arguments!r}))
"""

# Nobody reads what is behind this place of a file of the source until there is a file that opens the gate.
_HOLD = """
import os, time
from kitdata import folder
read = folder.Folder.read
def held(self, entry, offset, length):
    while offset >= {after} and not os.path.exists({gate!r}):
        time.sleep(0.01)
    return read(self, entry, offset, length)
folder.Folder.read = held
"""


def _python(hook: str, *arguments: str) -> list[str]:
    module = "relay" if arguments[0] == "order" else "orders"
    program = _PROGRAM.format(lib=str(LIB), hook=hook, module=module, arguments=list(arguments))
    return [*PYTHON, "-c", program]


class Order:
    """An order and its answers, by `kit-data order` as a process."""

    def __init__(self, stager: Stager, **words: Any) -> None:
        self.process = subprocess.Popen(
            _python("", "order"), env=stager.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.answers: list[dict[str, Any]] = []
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(words).encode() + b"\n")
        self.process.stdin.flush()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the answers as they come."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            answer = json.loads(line)
            self.answers.append(answer)
            yield answer

    def until(self, key: str) -> Any:
        """Return the value of the next answer with this key."""
        for answer in self:
            if key in answer:
                return answer[key]
        raise AssertionError(f"no {key}: {self.answers}")

    def end(self) -> dict[str, Any]:
        """Return the last answer."""
        for _ in self:
            pass
        return self.answers[-1]

    def all(self, key: str) -> list[Any]:
        return [answer[key] for answer in self.answers if key in answer]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


class Stager:
    def __init__(self, host: str, address: str, folder: Path, runtime: Path) -> None:
        self.host = host
        self.address = address
        self.folder = folder
        self.files = folder / "files"
        self.hook = ""
        self.process: subprocess.Popen[bytes] | None = None
        self._runtime = runtime
        self.env = {
            "PATH": os.environ["PATH"],
            "KIT_DATA_FOLDER": str(folder),
            "KIT_DATA_SOCKET": str(runtime / "socket"),
        }
        folder.mkdir(exist_ok=True)

    def start(self) -> None:
        """Start the stager if it does not run, and wait until it takes orders."""
        if self.process is not None and self.process.poll() is None:
            return
        (self._runtime / "socket").unlink(missing_ok=True)
        self._runtime.mkdir(exist_ok=True, mode=0o700)
        self.process = subprocess.Popen(_python(self.hook, "serve"), env=self.env)
        until(self._greets)

    def _greets(self) -> bool:
        """Return whether the stager answers, without a process that would take the core on which it starts."""
        assert self.process is not None
        assert self.process.poll() is None, f"the stager of {self.host} ended"
        return (self._runtime / "socket").exists() and self.hello() is not None

    def hello(self) -> dict[str, Any] | None:
        """Return what the stager answers to a hello; None if it has ended."""
        line = relay.hello(self.env["KIT_DATA_SOCKET"])
        return None if line is None else json.loads(line)["hello"]

    def wait_until_free(self) -> None:
        """Wait until the stager is not busy with a staging."""

        def is_free() -> bool:
            state = self.hello()
            assert state is not None, f"the stager of {self.host} ended"
            return state["staging"] is None

        until(is_free)

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()

    def tree(self) -> dict[str, bytes]:
        """Return the files that nodes see, by path."""
        return tree(self.files)

    def summary(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads((self.folder / "staged.json").read_text())
        return value


def tree(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder, by path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Stagers:
    """Some hosts gpu1, gpu2, … and the orders that kit gives them. The source is a folder unless a test says else."""

    def __init__(self, count: int, folder: Path) -> None:
        self.source = folder / "source"
        self.source.mkdir()
        self._short = Path(tempfile.mkdtemp(prefix="kit-data-"))  # the path of a socket has at most 107 bytes
        self.all = [
            Stager(f"gpu{number + 1}", address, folder / f"host{number + 1}", self._short / str(number))
            for number, address in enumerate(own_addresses(count))
        ]
        self.orders: list[Order] = []
        self.id = ""
        self.gate = folder / "gate"

    def close(self) -> None:
        for order in self.orders:
            order.close()
        for stager in self.all:
            stager.kill()
        for path in sorted(self._short.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        self._short.rmdir()

    def hold(self, after: int) -> None:
        """Let nobody read what is behind this place of a file, until `release`. Call before the start."""
        for stager in self.all:
            stager.hook += _HOLD.format(after=after, gate=str(self.gate))

    def release(self) -> None:
        self.gate.touch()

    def order(self, stager: Stager, **words: Any) -> Order:
        order = Order(stager, **words)
        self.orders.append(order)
        return order

    def folder(self, **more: Any) -> dict[str, Any]:
        return {"kind": "folder", "path": str(self.source), "label": "./source", "readers": None, **more}

    def join(self, hosts: Sequence[Stager] = ()) -> list[dict[str, Any]]:
        """Start and join the hosts; return the members of a request."""
        cert, key = certificate()
        self.id = secrets.token_hex(4)
        members = []
        for stager in hosts or self.all:
            stager.start()
            words = {"id": self.id, "address": stager.address, "certificate": cert, "key": key.reveal().decode()}
            joined = self.order(stager, op="join", **words).until("joined")
            members.append({"host": stager.host, "address": stager.address, "port": joined["port"]})
        return members

    def stage(self, hosts: Sequence[Stager] = (), **request: Any) -> Order:
        """Join the hosts and begin a staging, led by the first one."""
        hosts = hosts or self.all
        full = {
            "data": "set", "cluster": "c", "stage": "disk", "split": "none", "size": None, "limit": 0,
            "source": self.folder(), "members": self.join(hosts), **request,
        }  # fmt: skip
        return self.order(hosts[0], op="stage", id=self.id, request=full)

    def staged(self, hosts: Sequence[Stager] = (), **request: Any) -> Order:
        """Stage to the end, which must be good."""
        order = self.stage(hosts, **request)
        assert "done" in order.end(), order.answers
        return order

    def stage_when_free(self, **request: Any) -> Order:
        """Begin a staging as soon as no host is busy with an earlier one."""
        for stager in self.all:
            stager.start()
            stager.wait_until_free()
        return self.stage(**request)

    def staged_when_free(self, **request: Any) -> Order:
        """Stage to the end, as soon as no host is busy with an earlier staging."""
        order = self.stage_when_free(**request)
        assert "done" in order.end(), order.answers
        return order


class Feeder:
    """The operator's end of a feed: answers questions about a folder in memory, until it is closed."""

    # Whether it is a kit that packs its list, and one that knows the version of its folder.
    packs = knows = True

    def __init__(self, order: Order, files: dict[str, bytes], answer: Callable[[dict[str, Any]], Any] = id) -> None:
        self._order = order
        self._files = files
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.questions: list[dict[str, Any]] = []
        self._answer = answer
        self._thread.start()

    def _run(self) -> None:
        reading, writing = self._order.process.stdout, self._order.process.stdin
        assert reading is not None
        assert writing is not None
        with contextlib.suppress(OSError, ValueError):
            while head := reading.read(4):
                question = json.loads(reading.read(int.from_bytes(head, "big")))
                self.questions.append(question)
                self._answer(question)
                header, data = self._reply(question)
                text = json.dumps(header).encode()
                writing.write(len(text).to_bytes(4, "big") + text + data)
                writing.flush()

    def _list(self, how: int) -> tuple[dict[str, Any], bytes]:
        rows = [(path, len(data), 10**18) for path, data in sorted(self._files.items())]
        if how == 3 and self.knows:
            return {"version": [listing_id(rows), len(rows), sum(size for _, size, _ in rows)]}, b""
        if not self.packs:
            return {"entries": rows, "more": False}, b""
        packed = zlib.compress(json.dumps(rows).encode())
        return {"packed": 1, "more": False, "bytes": len(packed)}, packed

    def _reply(self, question: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        if "list" in question:
            return self._list(question["list"])
        if "files" in question:
            wanted = [path for path, _, _ in question["files"]]
            gone = [path for path in wanted if path not in self._files]
            if gone:
                return {"n": question["n"], "error": f"{gone[0]} is gone", "kind": "source-changed"}, b""
            together = b"".join(self._files[path] for path in wanted)
            return {"n": question["n"], "bytes": len(together)}, together
        path = question.get("read") or question["entry"]
        if path not in self._files:
            return {"n": question["n"], "error": f"{path} is gone", "kind": "source-changed"}, b""
        data = self._files[path]
        if "entry" in question:
            return {"n": question["n"], "entry": [path, len(data), 10**18]}, b""
        part = data[question["offset"] : question["offset"] + question["length"]]
        return {"n": question["n"], "bytes": len(part)}, part
