"""kit logs of nodes: the logs of their containers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing

from kit.config.selection import select_hosts
from kit.errors import Interrupted, KitError
from kit.events import Stream, Warned
from kit.flows.cluster.exec import check_node
from kit.flows.context import Context
from kit.model import names
from kit.model.host import Host
from kit.remote.engine.live import Held
from kit.remote.run.lines import output_line
from kit.remote.scripts import node_logs
from kit.remote.ssh import fanout
from kit.remote.ssh.logins import Logins
from kit.remote.ssh.transport import Lasting, Live, LiveTransport

# A longer line comes in pieces: nothing that a host prints may fill kit's memory.
MOST_LINE = 1 << 20


def logs(context: Context, hosts: str | None, *, tail: int | None, since_s: float | None = None, live: bool) -> int:
    """Print the logs of the nodes' containers on stdout, on these hosts or on all. Return 0, or the code that failed.

    If there are several, each line begins with its host, and a host that fails is a warning, with the exit code of its
    error. Raises the error of an only host.
    """
    chosen = select_hosts(context.inventory, hosts).hosts if hosts else context.inventory.hosts
    head = context.inventory.head.name
    commands = {}
    for one in chosen:
        container = names.container(context.spec.name, names.HEAD if one.name == head else names.NODE)
        options = ["--tail", str(tail)] if tail is not None else []
        options += ["--since", f"{since_s:.0f}s"] if since_s is not None else []
        options += ["--follow"] if live else []
        commands[one.name] = node_logs(container, *options)
    work = _Work(context, commands, several=len(chosen) > 1, follow=live)
    try:
        # A log that is followed does not end, so all hosts have a thread.
        outcome = fanout.each(chosen, work, width=len(chosen))
    except Interrupted:
        # Ctrl-C is how a person ends it: no host is left to finish.
        raise KeyboardInterrupt from None
    finally:
        work.end()
    if len(chosen) == 1:
        outcome.or_raise("kit logs")
    return max([*outcome.results.values(), *(error.exit_code for error in outcome.failures.values())], default=0)


class _Work:
    """The command on each host."""

    def __init__(self, context: Context, commands: Mapping[str, Sequence[str]], *, several: bool, follow: bool) -> None:
        self._context, self._commands, self._several = context, commands, several
        # A log that is followed ends with its input: a quiet one would not notice that nobody reads it any more.
        self._stdin = Lasting if follow else None
        self._logins = Logins()
        self._transports: list[LiveTransport] = []
        self._over = threading.Event()

    def __call__(self, host: Host) -> int:
        try:
            return self._follow(host)
        except KitError as error:
            error.host = error.host or host.name
            # The other logs may go on for ever.
            if self._several and not self._over.is_set():
                self._context.reporter.report(Warned(text=str(error), hint=error.hint))
            raise

    def _follow(self, host: Host) -> int:
        out, err = self._lines(host, "stdout"), self._lines(host, "stderr")
        turn = self._logins.turn()

        def begin() -> bool:
            turn.end()
            return not self._over.is_set()

        try:
            with turn, closing(self._context.connect(host)) as transport:
                self._transports.append(transport)
                held = Held(Live(out=out.add, err=err.add))
                live = Live(out=held.sink("out"), err=held.sink("err"), stdin=self._stdin, begin=begin)
                code = transport.stream(self._commands[host.name], live)
                check_node(held.held(code))
                held.release()
                return code
        finally:
            out.end()
            err.end()

    def _lines(self, host: Host, stream: Stream) -> _Lines:
        source = host.name if self._several else ""
        report = self._context.reporter.report
        return _Lines(lambda line: report(output_line(line, stream=stream, source=source)))

    def end(self) -> None:
        """End what still runs."""
        self._over.set()
        for transport in self._transports:
            transport.close()


class _Lines:
    """Passes on whole lines of a stream, and at the end what has no newline."""

    def __init__(self, sink: Callable[[bytes], None]) -> None:
        self._sink = sink
        self._rest = b""

    def add(self, data: bytes) -> None:
        *whole, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MOST_LINE:
            whole, self._rest = [*whole, self._rest], b""
        for line in whole:
            self._sink(line.rstrip(b"\r"))

    def end(self) -> None:
        if self._rest:
            self.add(b"\n")
