"""The command `kit`: reads the words, runs the verb, and turns every error into text and an exit code."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import TYPE_CHECKING

from kit.cli.screen.terminal import Terminal
from kit.errors import EXIT_BUG, HostsFailed, InputErrors, Interrupted, KitError
from kit.model.text import hanging

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import FrameType, SimpleNamespace

    from kit.cli.session import Session
    from kit.cli.verbs.grammar import Verb

EXIT_PIPE = 141
"""The reader of our output went away: a shell reports SIGPIPE like this."""


def handle(verb: Verb, session: Session) -> int:
    return verb.handler(session)


def main(
    argv: Sequence[str] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    handle: Callable[[Verb, Session], int] = handle,
) -> int:
    """Run one command line. Return the exit code, and raise nothing. Tests pass their own `handle`."""
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
        except KeyboardInterrupt:  # a second Ctrl-C, or the reader's end, while kit reported the first
            code = Interrupted.exit_code
        return _pipe_ended(terminal) if terminal.broken else code


def _run(
    words: Sequence[str], terminal: Terminal, handle: Callable[[Verb, Session], int], *, last: bool = False
) -> int:
    """Run the words. `last`: this program ends after them."""
    session: Session | None = None
    json = False
    try:
        if words[:1] == ["__complete"]:
            return _complete(words[1:], terminal)
        from kit.cli import parser  # noqa: PLC0415

        json = _wants_json(words)
        terminal.no_color = "--no-color" in words and "--no-color" in parser.own(words)
        invocation = parser.parse(words)
        terminal.no_color = invocation.args.no_color
        terminal.raw = getattr(invocation.args, "raw", False)
        json = invocation.args.output == "json"
        if invocation.verb is None:
            from kit.cli import help as help_page  # noqa: PLC0415

            terminal.say(help_page.text(invocation.path))
            return 0
        session = _session(invocation.args, terminal)
        return handle(invocation.verb, session)
    except KeyboardInterrupt:
        _close(session)
        return _failed(Interrupted("interrupted"), terminal, json=json)
    except KitError as error:
        if last and isinstance(error, Interrupted):
            # kit has handled the Ctrl-C and reports its result: a second one must not cut that short.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        _close(session)
        return _failed(error, terminal, json=json)
    except Exception as error:  # the last line of defense: nobody sees a traceback
        _close(session)
        return _bug(error, words, terminal, json=json)
    finally:
        _close(session)


def _complete(words: Sequence[str], terminal: Terminal) -> int:
    """Print what the shell named first can offer for the other words."""
    from kit.cli.complete import answer  # noqa: PLC0415

    lines = answer(words[0] if words else "", words[1:], terminal.environ)
    if lines:
        terminal.say(lines)
    return 0


def _session(args: SimpleNamespace, terminal: Terminal) -> Session:
    from kit.cli.screen import choose  # noqa: PLC0415
    from kit.cli.session import Session  # noqa: PLC0415

    reporter = choose.reporter(terminal, "quiet" if args.quiet else args.progress or "auto", verbose=args.verbose)
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

        terminal.say(jsonout.line("error", jsonout.error(error), escaped=not terminal.writes_unicode))
    else:
        terminal.tell(_error_text(error, terminal))
    return error.exit_code


def _error_text(error: KitError, terminal: Terminal) -> str:
    """Return `kit: error: host: message` and `  → hint`, then each problem of a file, and each failed host."""
    if isinstance(error, InputErrors):
        return "\n".join(_error_text(problem, terminal) for problem in error.problems)
    kind = "" if isinstance(error, Interrupted) else terminal.paint("error:", "red", terminal.err) + " "
    lines = [f"kit: {kind}{hanging(str(error))}", *_hint(error)]
    if isinstance(error, HostsFailed):
        lines += [f"  {line}" for line in _failures(error)]
    return "\n".join(lines)


def _failures(error: HostsFailed) -> list[str]:
    """Return the lines of the failed hosts. Failures that differ only in the host share a line."""
    from kit.model.failures import alike  # noqa: PLC0415

    lines = []
    for failure in alike(error.failures):
        lines.append(hanging(str(failure)))
        if failure.hint:
            lines.append(f"  → {hanging(failure.hint)}")
    return lines


def _hint(error: KitError) -> list[str]:
    return [f"  → {hanging(error.hint)}"] if error.hint else []


def _bug(error: Exception, words: Sequence[str], terminal: Terminal, *, json: bool) -> int:
    from kit.cli import bugs  # noqa: PLC0415

    where = bugs.write(error, words, terminal.environ)
    problem = KitError(
        f"this is a bug in kit: {type(error).__name__}: {' '.join(str(error).split())}",
        hint=f"details are in {where}; please send it with what you did" if where else None,
    )
    if json:
        from kit.cli.screen import jsonout  # noqa: PLC0415

        fields = jsonout.error(problem) | {"exit_code": EXIT_BUG}
        terminal.say(jsonout.line("error", fields, escaped=not terminal.writes_unicode))
    else:
        terminal.tell("\n".join([f"kit: {problem}", *_hint(problem)]))
    return EXIT_BUG


def _wants_json(words: Sequence[str]) -> bool:
    """Return whether errors are objects, even if kit cannot read the words."""
    if not any("json" in word for word in words):
        return False
    from kit.cli import parser  # noqa: PLC0415

    own = parser.own(words)
    return "--json" in own or "--output=json" in own or ("--output", "json") in pairwise(own)


def _pipe_ended(terminal: Terminal) -> int:
    if not terminal.quietly and not sys.stderr.closed:
        # stderr may be a terminal whose window was closed.
        with suppress(OSError):
            sys.stderr.write("kit: error: cannot write the output: the disk is full, or the output is closed\n")
    # Python flushes stdout again when it exits, and must not complain then.
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
    """Handle SIGTERM and a closed terminal like Ctrl-C, so that verbs clean up. nohup keeps its effect."""

    interrupted = False

    def interrupt(number: int, _frame: FrameType | None) -> None:
        nonlocal interrupted
        # SIGHUP counts only as the first signal: see kit.cli.screen.terminal.
        again, interrupted = interrupted and number == signal.SIGHUP, True
        if not again:
            raise KeyboardInterrupt

    before = {}
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL, signal.SIGHUP: signal.SIG_DFL}
    for number, handler in usual.items():
        if signal.getsignal(number) is handler:
            before[number] = signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            # `_run` may have ignored SIGINT until the end of the process.
            if signal.getsignal(number) is interrupt:
                signal.signal(number, handler)


if __name__ == "__main__":
    raise SystemExit(main())
