"""kit exec: one command in the containers of many hosts. It passes on output as it comes; Ctrl-C ends the command."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from typing import Protocol

from kit.config.selection import select_host, select_hosts
from kit.errors import AnswerError, Interrupted, KitError, NotReadyError, StepError, UnreachableError
from kit.events import Note, Stream
from kit.flows.context import Context
from kit.model import names
from kit.model import text as words
from kit.model.failures import SharedFailure, alike
from kit.model.host import Host
from kit.model.result import ExecResult, OutputGroup
from kit.model.values import replace
from kit.remote.engine.live import end_in_node, new_mark, stream_in_node
from kit.remote.machine.stdin import Input
from kit.remote.scripts import in_node
from kit.remote.ssh import fanout
from kit.remote.ssh.login_text import without_warnings
from kit.remote.ssh.logins import Logins, Turn
from kit.remote.ssh.openssh import SSH_FAILED, container_terminal_argv
from kit.remote.ssh.starting import starting
from kit.remote.ssh.stream import run_in_terminal
from kit.remote.ssh.transport import MOST_OUTPUT, Completed, Live, Reader, as_root

# After the end of the command, its last output may still be on its way.
LAST_OUTPUT_S = 3.0
# docker exec's exit code without such a container. A command may have it, too.
_REFUSED = 1
STREAMS: tuple[Stream, ...] = ("stdout", "stderr")


class Output(Protocol):
    """Gets the output of the hosts, from several threads. A host has several chunks, of one thread."""

    def begin(self, hosts: Sequence[str]) -> None:
        """The command is about to begin on these hosts."""

    def write(self, host: str, stream: Stream, data: bytes) -> None: ...

    def end(self, host: str) -> None:
        """The host has no more output."""


class Collected:
    """Output that is kept until the end. `write` raises AnswerError beyond `most` bytes of all hosts together."""

    def __init__(self, most: int = MOST_OUTPUT) -> None:
        self.texts: dict[tuple[str, Stream], bytearray] = {}
        self._left = most
        self._lock = threading.Lock()

    def begin(self, hosts: Sequence[str]) -> None:
        self.texts = {(host, stream): bytearray() for host in hosts for stream in STREAMS}

    def write(self, host: str, stream: Stream, data: bytes) -> None:
        with self._lock:
            if len(data) > self._left:
                raise AnswerError(
                    f"kit ended the command: it keeps at most {MOST_OUTPUT >> 20} MiB of all hosts for JSON",
                    hint="leave out --json, or write to a file on the hosts and copy that: kit cp",
                )
            self._left -= len(data)
        self.texts[host, stream] += data

    def end(self, host: str) -> None:
        """Do nothing."""

    def completed(self, host: str, code: int) -> Completed:
        """Return all that the host wrote, with its exit code."""
        return Completed(code=code, stdout=bytes(self.texts[host, "stdout"]), stderr=bytes(self.texts[host, "stderr"]))


def exec_hosts(
    context: Context,
    hosts: str | None,
    command: Sequence[str],
    *,
    output: Output | None = None,
    stdin: int | None = None,
) -> ExecResult:
    """Run `command` in the nodes' containers, side by side.

    The result has the output only if `output` is None. `stdin` is a descriptor whose content each host gets. A host
    that failed while others did not has its error as its output. Raises an error if the command ran on no host, and
    Interrupted after Ctrl-C, when the command has ended everywhere.
    """
    chosen = select_hosts(context.inventory, hosts).hosts if hosts else context.inventory.hosts
    collected = Collected()
    source = Input(stdin, hosts=len(chosen)) if stdin is not None else None
    work = _Work(context, command, output or collected, source.reader if source else None)
    (output or collected).begin([host.name for host in chosen])
    try:
        # A command that does not end must not keep the next host from its turn. Only the logins take turns.
        outcome = fanout.each(chosen, work, width=len(chosen))
    except Interrupted as interrupted:
        raise work.end(interrupted.message) from None
    if source is not None and source.error is not None:
        raise source.error
    if not outcome.results:
        outcome.or_raise("kit exec")
    ended = {
        host: Completed(code=code, stdout=b"", stderr=b"") if output else collected.completed(host, code)
        for host, code in outcome.results.items()
    }
    return ExecResult(groups=(*fold(ended), *map(_failed, alike(outcome.failures.values()))))


def exec_in_terminal(context: Context, host: str | None, command: Sequence[str]) -> int:
    """Run a command in a node with kit's terminal as its own. Return its exit code.

    If the connection breaks or the terminal is closed, end what is left of the command. Raises UnreachableError if the
    host cannot be reached, and NotReadyError if it has no node.
    """
    target = select_host(context.inventory, host or "head")
    mark = new_mark()
    container = _container(context, target)
    words_there = in_node(container, command, interactive=True, terminal=True, mark=mark)
    try:
        with starting(target.name):
            code = run_in_terminal([*container_terminal_argv(context.login(target)), as_root(words_there)])
    except KeyboardInterrupt:
        with suppress(KitError), closing(context.connect(target)) as transport:
            end_in_node(transport, mark)
        raise
    if code == SSH_FAILED:
        with closing(context.connect(target)) as transport:
            end_in_node(transport, mark)
    if code == _REFUSED:
        # The terminal has docker's words for it. They may as well be the command's. Only in_node finds a task of Swarm.
        # If the host does not answer any more, the exit code is the command's.
        with suppress(UnreachableError, StepError), closing(context.connect(target)) as transport:
            check_node(transport.run(in_node(container, ("true",))), target.name)
    return code


def _container(context: Context, host: Host) -> str:
    role = names.HEAD if host.name == context.inventory.head.name else names.NODE
    return names.container(context.spec.name, role)


class _Work:
    """The command on every host, and the hosts where it runs now."""

    def __init__(
        self, context: Context, command: Sequence[str], output: Output, stdin: Callable[[], Reader] | None
    ) -> None:
        self._context = context
        self._command = command
        self._output = output
        self._stdin = stdin
        self._mark = new_mark()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._running: dict[str, Host] = {}
        self._logins = Logins()

    def __call__(self, host: Host) -> int:
        turn = self._logins.turn()
        live = Live(
            out=lambda data: self._output.write(host.name, "stdout", data),
            err=lambda data: self._output.write(host.name, "stderr", data),
            stdin=self._stdin,
            begin=lambda: self._begins(host, turn),
            stop=self._stop,
        )
        container = _container(self._context, host)
        try:
            if self._stop.is_set():
                raise Interrupted("interrupted before the command began", host=host.name)
            with closing(self._context.connect(host)) as transport:
                return stream_in_node(transport, container, self._command, live, mark=self._mark, answered=check_node)
        except AnswerError:
            # Nobody reads its output any more, and a command does not always notice that.
            with suppress(KitError):
                self._end_on(host)
            raise
        except UnreachableError as error:
            if host.name in self._running:
                error.hint = f"the command may still run there. When the host answers: kit exec {host.name} -- ps aux"
            raise
        finally:
            turn.end()
            # After Ctrl-C or a broken connection, too: the last line may be what the command waited with.
            self._output.end(host.name)
            with self._lock:
                self._running.pop(host.name, None)

    def _begins(self, host: Host, turn: Turn) -> bool:
        """Note that the command begins on the host. Return False if it must not begin any more."""
        turn.end()
        with self._lock:
            if self._stop.is_set():
                return False
            self._running[host.name] = host
            return True

    def end(self, text: str) -> Interrupted:
        """End the command wherever it runs. Return what to report: the text, and what was ended."""
        with self._lock:
            self._stop.set()
            running = list(self._running.values())
        where = words.fold(host.name for host in running)
        if not running:
            return Interrupted(f"{text}; the command runs on no host")
        try:
            ending = fanout.start(running, self._end_on)
            # This waits for what reads kit's output, such as less, which keeps running after Ctrl-C.
            self._context.reporter.report(Note(text=f"ending the command on {where}; press Ctrl-C again to leave it"))
            outcome = ending.outcome()
            self._wait_for_output()
        except (Interrupted, KeyboardInterrupt):
            return Interrupted(text, hint=f"the command may still run on {where}: kit exec HOST -- ps aux")
        ended = {host: count for host, (count, _) in outcome.results.items() if count}
        left = {host: count for host, (_, count) in outcome.results.items() if count}
        text += f"; ended {_processes(ended)}"
        if left:
            text += f"; {_processes(left)} did not end"
        if outcome.failures:
            text += f"; cannot tell what is left on {words.fold(outcome.failures)}"
        unclear = left or outcome.failures
        return Interrupted(text, hint="look for them: kit exec HOST -- ps aux" if unclear else None)

    def _end_on(self, host: Host) -> tuple[int, int]:
        with closing(self._context.connect(host)) as transport:
            return end_in_node(transport, self._mark)

    def _wait_for_output(self) -> None:
        end = time.monotonic() + LAST_OUTPUT_S
        while self._running and time.monotonic() < end:
            time.sleep(0.02)


def _processes(counts: Mapping[str, int]) -> str:
    """Return `3 processes on gpu[1-3]`."""
    count = sum(counts.values())
    return f"{count} process{'' if count == 1 else 'es'}" + (f" on {words.fold(counts)}" if counts else "")


def check_node(done: Completed, host: str | None = None) -> None:
    """Raise NotReadyError, with this `host`, if the engine answered that the VM has no node."""
    # The engine's own words, not the command's: a command may well say that something is not running.
    errors = without_warnings(done.error_text)
    engine = errors.startswith(("Error response from daemon:", "Error: No such container"))
    missing = "o such container" in errors or "is not running" in errors
    if done.code == _REFUSED and engine and missing:
        hint = f"run: kit deploy. {names.OTHER_HEAD}"
        raise NotReadyError("no node of the cluster runs here", hint=hint, host=host)


def _failed(failure: SharedFailure) -> OutputGroup:
    """Return the group of hosts on which the command did not run. The others still have their output."""
    hint = f"\n  → {failure.hint}" if failure.hint else ""
    return OutputGroup(
        hosts=failure.hosts, exit_code=failure.exit_code, output=f"{failure.message}{hint}\n", failed=True
    )


def fold(results: Mapping[str, Completed]) -> tuple[OutputGroup, ...]:
    """Return a group for each output with its exit code, in the order of the first host of each."""
    groups: dict[tuple[int, str], list[str]] = {}
    for host, done in results.items():
        output = done.text + (done.stderr.decode(errors="replace") if done.stderr else "")
        groups.setdefault((done.code, output), []).append(host)
    return tuple(
        OutputGroup(hosts=tuple(hosts), exit_code=code, output=output) for (code, output), hosts in groups.items()
    )


def folded(result: ExecResult, held: Callable[[str, Stream], bytes]) -> ExecResult:
    """Return the result of a command whose output somebody else kept: equal output and exit code are one group.

    A host that failed has what it printed before that, and then its error.
    """
    ended = {
        host: Completed(code=group.exit_code, stdout=held(host, "stdout"), stderr=held(host, "stderr"))
        for group in result.groups
        if not group.failed
        for host in group.hosts
    }
    failed = (part for group in result.groups if group.failed for part in _with_output(group, held))
    return ExecResult(groups=(*fold(ended), *failed))


def _with_output(group: OutputGroup, held: Callable[[str, Stream], bytes]) -> Iterator[OutputGroup]:
    """Yield a group of hosts that failed, or its parts with the output that each host had before."""
    outputs: dict[str, list[str]] = {}
    for host in group.hosts:
        output = b"".join(held(host, stream) for stream in STREAMS).decode(errors="replace")
        outputs.setdefault(output, []).append(host)
    for output, hosts in outputs.items():
        end = "\n" if output and not output.endswith("\n") else ""
        yield replace(group, hosts=tuple(hosts), output=f"{output}{end}{group.output}")
