"""kit queue: the runs that wait in line on the head."""

# Each handler imports its own flow, so that no verb and no --help pays for another's.
# ruff: noqa: PLC0415
from __future__ import annotations

from typing import TYPE_CHECKING

from kit.cli import candidates
from kit.cli.verbs.grammar import Operand, Option, Verb
from kit.cli.verbs.options import CLUSTER, FAILED, NOW, WORK
from kit.cli.verbs.values import after, array, priority
from kit.errors import InputError

if TYPE_CHECKING:
    from types import SimpleNamespace

    from kit.cli.session import Session
    from kit.model.launch import RunRequest
    from kit.model.queue import Change, Turn
    from kit.remote.run.door import Door

RUNS = Operand(
    name="runs", help="Runs in line: their ids, or the beginnings of them", complete=candidates.run, many=True
)
# Of kit run.
QUEUE = (
    Option(
        flags=("--queue",),
        help="Put the run in line, print its id, and let the head start it when it is its turn",
    ),
    Option(
        flags=("--priority",),
        value="N",
        kind=priority,
        help="In line: start before runs with a lower priority, from -100 to 100 (default: 0)",
    ),
    Option(
        flags=("--after",),
        value="RUN[,HOW]",
        kind=after,
        many=True,
        complete=candidates.run,
        help="In line: start after this run has ended, ok (default), failed or any. Repeatable",
    ),
    Option(
        flags=("--array",),
        value="RANGE",
        kind=array,
        joins=True,
        help="In line: put one run for each index in line, as 0-9, with KIT_ARRAY_INDEX set",
    ),
    NOW,
)
NOT_READY = ("5", "not ready: nothing is deployed, or the image knows no queue")


def turn(args: SimpleNamespace) -> Turn | None:
    """Return the options of kit run that are about the line, or None. Raises InputError for one without --queue."""
    others = {"--priority": args.priority is not None, "--after": args.after, "--array": args.array is not None}
    if not args.queue:
        for name, used in others.items():
            if used:
                raise InputError(f"{name} is for a run that waits in line", hint=f"add --queue, or remove {name}")
        return None
    from kit.model.queue import Turn

    return Turn(priority=args.priority or 0, after=tuple(args.after), array=args.array or ())


def run_later(session: Session, request: RunRequest, turn: Turn, door: Door) -> int:
    """Put a run of `kit run --queue` in line, and print its id."""
    from kit.cli.text import queue as text
    from kit.events import Note
    from kit.flows.queue.join import join

    result = join(session.context(), request, turn, door=door)
    # An array may have more runs than completion keeps.
    session.remember([result.array] if result.array else result.runs)
    session.reporter.report(Note(text=text.joined(result)))
    session.show("queued", result, text.queued)
    return 0


def show(session: Session) -> int:
    from kit.flows.run.dial import dialled

    context = session.context()
    with dialled(context) as door:
        from kit.cli.text import queue as text
        from kit.flows.queue.line import look

        result = look(context, door=door)
    session.remember(run.id for run in result.runs)
    session.show("queue", result, session.fitted(text.line))
    return 0


def _change(session: Session, how: Change, runs: tuple[str, ...], priority: int | None = None) -> int:
    from kit.flows.run.dial import dialled

    context = session.context()
    with dialled(context) as door:
        from kit.cli.text import queue as text
        from kit.flows.queue.line import change

        result = change(context, how, runs, priority=priority, door=door)
    session.show("queue-changed", result, text.changed)
    return 0


def move(session: Session) -> int:
    args = session.args
    if (args.where is None) == (args.priority is None):
        raise InputError(
            "kit queue move needs a place or a priority",
            hint=f"write: kit queue move {args.run} first, last, or --priority N",
        )
    return _change(session, args.where or "priority", (args.run,), args.priority)


def hold(session: Session) -> int:
    return _change(session, "hold", session.args.runs)


def release(session: Session) -> int:
    return _change(session, "release", session.args.runs)


def remove(session: Session) -> int:
    return _change(session, "remove", session.args.runs)


_LIST = Verb(
    words=("queue",),
    purpose="Show the runs that wait in line: why each waits, and about when it starts",
    handler=show,
    group=WORK,
    options=CLUSTER,
    notes="The line is in the order of turns: by priority, and first in, first out within one. Cordoned hosts follow.",
    examples=("kit queue", "kit queue --json"),
    exits=(*FAILED, NOT_READY),
)

VERBS = (
    _LIST,
    _LIST._replace(
        words=("queue", "list"),
        purpose="Show the runs that wait in line, as kit queue does",
        notes="",
        examples=("kit queue list",),
    ),
    Verb(
        words=("queue", "move"),
        purpose="Let a waiting run start before the others, after them, or by another priority",
        handler=move,
        group=WORK,
        operands=(
            Operand(name="run", help="A run in line: its id, or the beginning of it", complete=candidates.run),
            Operand(name="where", help="first or last", optional=True, choices=("first", "last")),
        ),
        options=(
            Option(
                flags=("--priority",),
                value="N",
                kind=priority,
                help="Set its priority, from -100 to 100. Higher ones start first",
            ),
            *CLUSTER,
        ),
        notes="A run that moves to the first place gets the highest priority in line, so that it is the first.",
        examples=("kit queue move 20261121-10 first", "kit queue move 20261121-10 --priority 5"),
        exits=(*FAILED, NOT_READY),
    ),
    Verb(
        words=("queue", "hold"),
        purpose="Let waiting runs keep their place in line, and start none of them",
        handler=hold,
        group=WORK,
        operands=(RUNS,),
        options=CLUSTER,
        examples=("kit queue hold 20261121-10",),
        exits=(*FAILED, NOT_READY),
    ),
    Verb(
        words=("queue", "release"),
        purpose="Let held runs start when it is their turn",
        handler=release,
        group=WORK,
        operands=(RUNS,),
        options=CLUSTER,
        examples=("kit queue release 20261121-10",),
        exits=(*FAILED, NOT_READY),
    ),
    Verb(
        words=("queue", "rm"),
        purpose="Take waiting runs out of the line",
        handler=remove,
        group=WORK,
        operands=(RUNS,),
        options=CLUSTER,
        notes="It ends no run: for one that started, use kit stop.",
        examples=("kit queue rm 20261121-10", "kit queue rm 20261121-101500-3fa2 20261121-101501-77ab"),
        exits=(*FAILED, NOT_READY),
    ),
)
