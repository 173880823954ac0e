"""The command `kit`: reads the words, runs the verb, and is the one place where errors become text and exit codes."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import pairwise
from types import FrameType

from kit.cli import help as help_page
from kit.cli import parser
from kit.cli.screen import choose
from kit.cli.screen.terminal import Terminal
from kit.cli.session import Session
from kit.cli.text.fold import fold
from kit.cli.verbs.grammar import Verb
from kit.errors import EXIT_BUG, HostsFailed, InputErrors, Interrupted, KitError

EXIT_PIPE = 141
"""The reader of our output went away: what a shell makes of SIGPIPE."""


def handle(verb: Verb, session: Session) -> int:
    module, _, name = verb.handler.rpartition(".")
    found: Callable[[Session], int] = getattr(import_module(f"kit.cli.verbs.{module or 'cluster'}"), name)
    return found(session)


def main(
    argv: Sequence[str] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    handle: Callable[[Verb, Session], int] = handle,
) -> int:
    """Run one command line; returns the exit code and raises nothing. Tests bring their own `handle`."""
    words = sys.argv[1:] if argv is None else list(argv)
    with open(os.devnull, "w") as nowhere, _signals():  # noqa: PTH123
        terminal = Terminal(
            out=sys.stdout or nowhere,
            err=sys.stderr or nowhere,
            inp=sys.stdin,
            environ=os.environ if environ is None else environ,
        )
        try:
            code = _run(words, terminal, handle, last=argv is None)
        except KeyboardInterrupt:  # a second Ctrl-C, or the reader's end, while the first was told of
            code = Interrupted.exit_code
        return _pipe_ended(terminal) if terminal.broken else code


def _run(
    words: Sequence[str], terminal: Terminal, handle: Callable[[Verb, Session], int], *, last: bool = False
) -> int:
    """`last`: this program ends after it."""
    json = _wants_json(words)
    session: Session | None = None
    try:
        asked = parser.parse(words)
        terminal.no_color = asked.args.no_color
        json = asked.args.output == "json"
        if asked.verb is None:
            terminal.say(help_page.text(asked.path))
            return 0
        session = _session(asked.args, terminal)
        return handle(asked.verb, session)
    except KeyboardInterrupt:
        _close(session)
        return _failed(Interrupted("interrupted"), terminal, json=json)
    except KitError as error:
        if last and isinstance(error, Interrupted):
            # It was heard, and what came of it is told: one Ctrl-C more must not cut that short.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        _close(session)
        return _failed(error, terminal, json=json)
    except Exception as error:  # the last line: no traceback ever reaches a person
        _close(session)
        return _bug(error, words, terminal, json=json)
    finally:
        _close(session)


def _session(args: argparse.Namespace, terminal: Terminal) -> Session:
    how = "quiet" if args.quiet else args.progress or "auto"
    reporter = choose.reporter(terminal, how, verbose=args.verbose)
    if args.output == "json":
        from kit.cli.screen.jsonout import JsonLines  # noqa: PLC0415

        reporter = JsonLines(terminal, reporter)
    return Session(args=args, terminal=terminal, reporter=reporter, environ=terminal.environ)


def _close(session: Session | None) -> None:
    if session is not None:
        session.close()


def _failed(error: KitError, terminal: Terminal, *, json: bool) -> int:
    if json:
        from kit.cli.screen import jsonout  # noqa: PLC0415

        terminal.say(jsonout.line("error", jsonout.error(error)))
    else:
        terminal.tell(_told(error, terminal))
    return error.exit_code


def _told(error: KitError, terminal: Terminal) -> str:
    """`kit: error: host: message` and `  → hint`; each problem of a file, and each failed host, below it."""
    if isinstance(error, InputErrors):
        return "\n".join(_told(each, terminal) for each in error.problems)
    kind = "" if isinstance(error, Interrupted) else terminal.paint("error:", "red", terminal.err) + " "
    lines = [f"kit: {kind}{error}", *_hint(error)]
    if isinstance(error, HostsFailed):
        lines += [f"  {line}" for line in _failures(error)]
    return "\n".join(lines)


def _failures(error: HostsFailed) -> list[str]:
    """Hosts that failed alike are told of together: a hundred of them are one line."""
    alike: dict[tuple[str, str | None], list[KitError]] = {}
    for each in error.failures:
        alike.setdefault((each.message, each.hint), []).append(each)
    lines = []
    for (message, _), group in alike.items():
        hosts = fold(each.host for each in group if each.host)
        lines += [f"{hosts}: {message}" if hosts else message, *_hint(group[0])]
    return lines


def _hint(error: KitError) -> list[str]:
    return [f"  → {error.hint}"] if error.hint else []


def _bug(error: Exception, words: Sequence[str], terminal: Terminal, *, json: bool) -> int:
    from kit.cli import bugs  # noqa: PLC0415

    where = bugs.write(error, words, terminal.environ)
    problem = KitError(
        f"this is a bug in kit: {type(error).__name__}: {' '.join(str(error).split())}",
        hint=f"details are in {where}; please send it with what you did" if where else None,
    )
    if json:
        from kit.cli.screen import jsonout  # noqa: PLC0415

        terminal.say(jsonout.line("error", jsonout.error(problem) | {"exit_code": EXIT_BUG}))
    else:
        terminal.tell("\n".join([f"kit: {problem}", *_hint(problem)]))
    return EXIT_BUG


def _wants_json(words: Sequence[str]) -> bool:
    """Whether errors are objects, known even where the words cannot be read."""
    own = parser.own(words)
    return "--json" in own or "--output=json" in own or ("--output", "json") in pairwise(own)


def _pipe_ended(terminal: Terminal) -> int:
    if not terminal.quietly and not sys.stderr.closed:
        sys.stderr.write("kit: error: the output cannot be written (disk full, or closed)\n")
    # Python flushes stdout once more at its end, and must not complain then.
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
    return EXIT_PIPE if terminal.quietly else KitError.exit_code


@contextmanager
def _signals() -> Iterator[None]:
    """SIGTERM and a terminal that closes are taken as Ctrl-C, so that what runs is cleaned up. nohup is respected."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {}
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            before[number] = signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    raise SystemExit(main())
