"""One launch through kit-launch in the head's container: an OpenSSH stream whose open standard input keeps it alive."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any

from kit.errors import KitError, NotReadyError, StepError, UnreachableError
from kit.events import OutputLine, Reporter, Stream
from kit.model.host import Host, Login
from kit.model.launch import LaunchPlan
from kit.remote import fanout
from kit.remote.openssh import openssh_argv
from kit.remote.ranklines import RankLine, RankLines
from kit.remote.scripts import script
from kit.remote.transport import Connect, as_root

LAUNCHER = ("python3", "-IS", "/opt/kit/bin/kit-launch")
# The launcher's last line; nothing else that a rank writes may pass for it.
EXIT_MARK = re.compile(rb"\x1ekit-exit (\d{1,3})( stopped)?$")
# mpirun and its child both set the child's process group; whoever is second says this. Nothing is wrong.
READ = 65536
HARMLESS = b"plm:rsh: Warning: setpgid"
# The launcher's own grace, and a little for the way there and back.
STOP_TIMEOUT_S = 20.0


def new_run_id() -> str:
    """Sorts by time, and two operators at the same second still differ."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """How a launch ended: mpirun's exit code, and whether it was stopped from here."""

    exit_code: int
    stopped: bool


class Launch:
    """A connection to the launcher. `record` is the text of the head's cluster.json once `open` returned."""

    def __init__(self, head: Login, container: str, reporter: Reporter) -> None:
        self._head = head
        self._container = container
        self._reporter = reporter
        self._process: subprocess.Popen[bytes] | None = None
        self._exit: Ended | None = None
        self._readers: list[threading.Thread] = []
        self.record = ""

    def leads_to(self, head: Login, container: str) -> bool:
        return self._head == head and self._container == container

    def start(self) -> None:
        """Start the launcher, and wait for nothing."""
        argv = openssh_argv(self._head)
        command = as_root(["docker", "exec", "--interactive", self._container, *LAUNCHER])
        # Ctrl-C must not reach ssh: the launcher is told by the end of its input, and then says how it went.
        self._process = subprocess.Popen(
            [*argv, command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def open(self) -> None:
        """Start the launcher if it is not, and read its first line. Raises UnreachableError or NotReadyError."""
        if self._process is None:
            self.start()
        process = self._running()
        # A login may say something of its own first; the launcher's line tells itself apart.
        for line in _pipe(process.stdout):
            record = _record(line)
            if record is not None:
                self.record = record
                return
        said = _pipe(process.stderr).read().decode(errors="replace").strip()
        raise self._no_launcher(said, process.wait())

    def abandon(self) -> None:
        """Hang up on a launcher that was given nothing to run; it ends by itself."""
        process = self._running()
        process.kill()
        process.wait()

    def run(self, plan: LaunchPlan, *, tagged: bool) -> Ended:
        """Start the launch and report its lines until it ends. KeyboardInterrupt passes through: then `stop`."""
        process = self._running()
        request = {"run_id": plan.run_id, "hostfile": plan.hostfile, "argv": plan.argv, "env": dict(plan.env)}
        stdin = _pipe(process.stdin)
        # Where the launcher is gone already, its last words say why: they are read below.
        with contextlib.suppress(OSError):
            stdin.write(json.dumps(request).encode() + b"\n")
            stdin.flush()
        streams: Sequence[tuple[Any, Stream]] = ((process.stdout, "stdout"), (process.stderr, "stderr"))
        for pipe, stream in streams:
            reader = threading.Thread(target=self._read, args=(pipe, stream, tagged), daemon=True)
            reader.start()
            self._readers.append(reader)
        for reader in self._readers:
            while reader.is_alive():
                reader.join(0.2)
        return self._ended()

    def stop(self) -> Ended | None:
        """End every rank and wait until the launcher says so. None when it said nothing in time."""
        process = self._running()
        if process.stdin and not process.stdin.closed:
            # Where the connection is gone, the launcher sees the end of its input all the same.
            with contextlib.suppress(OSError):
                process.stdin.close()
        for reader in self._readers:
            reader.join(STOP_TIMEOUT_S)
        self.close()
        return self._exit

    def close(self) -> None:
        process = self._running()
        if process.stdin and not process.stdin.closed:
            with contextlib.suppress(OSError):
                process.stdin.close()
        try:
            process.wait(1.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _read(self, pipe: IO[bytes], stream: Stream, tagged: bool) -> None:
        """Standard error has the ranks' lines of both streams, as records; standard output what mpirun itself says."""
        if stream == "stdout":
            for raw in pipe:
                self._report(RankLine(text=raw.rstrip(b"\r\n"), stream=stream, rank=""), tagged)
            return
        lines = RankLines()
        while piece := pipe.read1(READ):  # type: ignore[attr-defined]  # a BufferedReader
            for line in lines.feed(piece):
                self._report(line, tagged)
        for line in lines.end():
            self._report(line, tagged)

    def _report(self, line: RankLine, tagged: bool) -> None:
        text = line.text
        if not line.rank and line.stream == "stderr":
            if mark := EXIT_MARK.search(text):
                self._exit = Ended(exit_code=int(mark.group(1)), stopped=mark.group(2) is not None)
                # What was written before the mark without a newline is still a line.
                text = text[: mark.start()]
                if not text:
                    return
            if HARMLESS in text:
                return
        source = line.rank if tagged else ""
        self._reporter.report(OutputLine(text=text.decode(errors="replace"), stream=line.stream, source=source))

    def _ended(self) -> Ended:
        code = self._running().wait()
        if self._exit is not None:
            return self._exit
        if code == 255:
            raise UnreachableError(
                "the connection to the head broke; the launcher there ends the run",
                hint="is the VM up? kit ps shows whether ranks are left",
                host=self._head.host,
            )
        raise NotReadyError(
            f"the launcher ended without a word (exit {code}): its container was stopped or killed",
            hint=f"kit ps, kit logs {self._head.host}; then: kit deploy",
            host=self._head.host,
        )

    def _no_launcher(self, said: str, code: int) -> KitError:
        last = said.splitlines()[-1] if said else f"exit {code}"
        if code == 255:
            return UnreachableError(
                f"no SSH connection to {self._head.address}: {last}",
                hint=f"does ssh {self._head.address} work from here?",
                host=self._head.host,
            )
        if "sudo" in last:
            hint = "give the user sudo without a password, or set user=root in the hosts file"
            return NotReadyError(f"the login cannot become root: {last}", hint=hint, host=self._head.host)
        if "o such container" in said or "is not running" in said:
            return NotReadyError(f"no cluster runs here: {last}", hint="run: kit deploy", host=self._head.host)
        message = f"the head's launcher did not start: {last}"
        return NotReadyError(message, hint="kit ps; then: kit deploy", host=self._head.host)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the launch was not opened")
        return self._process


def sweep(hosts: Sequence[Host], run_id: str, connect: Connect) -> tuple[dict[str, int], dict[str, KitError]]:
    """End what is left of a run on every host, by its mark, and look again: (processes left by host, failures)."""

    def work(host: Host) -> int:
        transport = connect(host)
        try:
            done = transport.run(script("stop_run", run_id), timeout_s=30)
        finally:
            transport.close()
        if done.code != 0 or not done.text.strip().isdigit():
            raise StepError(
                f"its processes could not be looked at: {done.error_text or f'exit {done.code}'}",
                hint=f"kit ssh {host.name}; then: ps",
                host=host.name,
            )
        return int(done.text)

    outcome = fanout.each(hosts, work)
    return dict(outcome.results), dict(outcome.failures)


def variable(name: str) -> str | None:
    """A variable of kit's own environment, for -x NAME."""
    return os.environ.get(name)


def _record(line: bytes) -> str | None:
    """The record in the launcher's first line; None when this is another line."""
    try:
        hello = json.loads(line)
    except ValueError:
        return None
    return str(hello.get("record", "")) if isinstance(hello, dict) and "kit-launch" in hello else None


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise RuntimeError("the process was started without this pipe")
    return pipe
