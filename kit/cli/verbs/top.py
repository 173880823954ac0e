"""kit top: what the hosts, their GPUs and the ranks of a run do now."""

# Each handler imports its own flow, so that no verb and no --help pays for another's.
# ruff: noqa: PLC0415
from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from kit.cli import candidates
from kit.cli.verbs.grammar import Operand, Option, Verb
from kit.cli.verbs.options import CLUSTER, FAILED, HOSTS, WORK
from kit.errors import HostsFailed, InputError
from kit.model.names import LATEST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kit.cli.session import Session
    from kit.flows.watch import Watching
    from kit.model.watch import Seen
    from kit.plan.watch.rows import History, Tables

# The width of a text that is not for a terminal.
WIDTH = 200
PAUSE_S = 1.0


def top(session: Session) -> int:
    from kit.flows.watch import watching

    args = session.args
    live = not (args.once or session.json)
    if live and not (session.terminal.is_terminal(session.terminal.out) and session.terminal.interactive):
        raise InputError("kit top needs a terminal", hint="print the figures once: kit top --once, or as JSON: --json")
    run = "" if args.run == LATEST else args.run
    count = 1 if args.once else 0
    with watching(session.context(), hosts=args.hosts, run=run, count=count) as watched:
        if args.once:
            return _once(session, watched)
        if session.json:
            return _stream(session, watched)
        session.close()
        _live(session, watched)
    return 0


def _once(session: Session, watched: Watching) -> int:
    from kit.cli.text import top as text
    from kit.cli.text.top_cells import text_of
    from kit.plan.watch.rows import History

    seen = watched.once()
    session.close()
    if session.json:
        session.emit("top", _value(watched, seen))
    else:
        history = History()
        history.add(seen)
        tables = _tables(watched, seen, history)
        terminal = session.terminal
        lines = text.whole(_head(watched), tables, terminal.width or WIDTH, ascii_only=_ascii(session))
        session.show("top", None, text_of(lines, lambda piece, style: terminal.paint(piece, style, terminal.out)))
    failures = [one.error for one in seen if one.error is not None]
    return HostsFailed("", failures).exit_code if failures else 0


def _stream(session: Session, watched: Watching) -> int:
    """Print an object a second until Ctrl-C, or the end of the run."""
    watched.wait()
    while True:
        session.emit("top", _value(watched, watched.now()))
        if watched.over:
            return 0
        time.sleep(PAUSE_S)


def _live(session: Session, watched: Watching) -> None:
    from kit.cli.screen.top import show
    from kit.cli.text import top as text
    from kit.plan.watch.rows import History
    from kit.plan.watch.state import Choice

    history = History()
    held: list[tuple[text.Head, Tables]] = []

    def draw(choice: Choice, size: tuple[int, int]) -> Any:
        seen = watched.now()
        history.add(seen)
        if not (choice.paused and held):
            held[:] = [(_head(watched), _tables(watched, seen, history))]
        head, tables = held[0]
        return text.page(head, tables, choice, size, ascii_only=_ascii(session))

    show(session.terminal, draw)


def _tables(watched: Watching, seen: Sequence[Seen], history: History) -> Tables:
    from kit.plan.watch.rows import tables

    return tables(seen, history, run=watched.run.id if watched.run else "", last=watched.last())


def _head(watched: Watching) -> Any:
    from kit.cli.text.top import Head

    note = ""
    if watched.run is not None:
        state = "has ended" if watched.over else f"{watched.run.np} ranks"
        note = f"run {watched.run.id}: {state}"
    return Head(cluster=watched.cluster, clock=time.strftime("%H:%M:%S"), note=note)


def _ascii(session: Session) -> bool:
    """Return whether the output cannot show the blocks of a sparkline."""
    return "utf" not in (getattr(session.terminal.out, "encoding", None) or "").lower()


def _value(watched: Watching, seen: Sequence[Seen]) -> dict[str, Any]:
    """Return the figures for JSON: the readings as they came, and the run's last lines."""
    from kit.cli.screen import jsonout
    from kit.plan.watch.rows import certain, trouble

    last = certain(watched.last(), seen, watched.run.id) if watched.run else {}
    hosts = []
    for one in seen:
        reading = jsonout.encode(one.reading)
        for rank in reading["ranks"] if reading else ():
            rank["last"] = last.get(rank["rank"]) if watched.run and rank["run"] == watched.run.id else None
        error = jsonout.error(one.error) if one.error is not None else None
        hosts.append({"host": one.host, "trouble": trouble(one) or None, "error": error, "reading": reading})
    return {
        "cluster": watched.cluster,
        "run": watched.run.id if watched.run else None,
        "over": watched.over,
        "hosts": hosts,
    }


VERBS = (
    Verb(
        words=("top",),
        purpose="Show what hosts, GPUs and the ranks of a run do now, on a live screen",
        handler=top,
        group=WORK,
        operands=(
            Operand(
                name="run",
                help="Show this run's hosts and ranks, with the last line of each: an id, its beginning, or latest",
                optional=True,
                complete=candidates.run,
            ),
        ),
        options=(
            HOSTS,
            Option(flags=("--once",), help="Print the figures once, without a screen"),
            *CLUSTER,
        ),
        notes="The keys are those of htop: q quits, Tab goes to the next table, P, M, T and N sort, < and > choose the "
        "column, \\ filters, h shows all keys. N/A is a value that a host does not have. kit top installs nothing: a "
        "small program runs on each VM while you watch. With --json, kit prints an object each second.",
        examples=("kit top", "kit top latest", "kit top --once -H gpu1", "kit top --once --json"),
        exits=FAILED,
    ),
)
