"""kit timeline: what each rank of Horovod does, while the run lives."""

# Each handler imports its own flow, so that no verb and no --help pays for another's.
# ruff: noqa: PLC0415
from __future__ import annotations

from typing import TYPE_CHECKING

from kit.cli.verbs.grammar import Option, Verb
from kit.cli.verbs.options import CLUSTER, FAILED, RUN, WORK
from kit.cli.verbs.values import span
from kit.errors import InputError, StepError
from kit.model.names import LATEST

if TYPE_CHECKING:
    from kit.cli.session import Session

# A longer recording would only reach the limit of bytes.
MOST_S = 600.0


def timeline(session: Session) -> int:
    from pathlib import Path

    from kit.cli.text import timeline as text
    from kit.config.paths import expanded
    from kit.flows.timeline import timeline

    args = session.args
    seconds = args.seconds if args.seconds is not None else 20.0
    if not 1.0 <= seconds <= MOST_S:
        raise InputError("--for is not between 1s and 10m", hint="write, for example: --for 20s")
    word = None if args.run == LATEST else args.run
    file = str(expanded(args.file)) if args.file else None
    result = timeline(session.context(), word, seconds=seconds, file=file, here=Path())
    session.remember([result.run])
    session.show("timeline", result, session.fitted(text.timeline))
    if result.missed:
        session.terminal.tell(text.missed(result))
        return StepError.exit_code
    return 0


VERBS = (
    Verb(
        words=("timeline",),
        purpose="Record what each rank of a running Horovod job does for some seconds, on one clock, in one file",
        handler=timeline,
        group=WORK,
        operands=(RUN,),
        options=(
            Option(
                flags=("--for",),
                to="seconds",
                value="TIME",
                kind=span,
                help="How long to record, to 10m (default: 20s)",
            ),
            Option(
                flags=("--file",),
                value="PATH",
                help="The file to write (default: kit-timeline-RUN.json, with -2, -3 … if it exists)",
            ),
            *CLUSTER,
        ),
        notes="RUN is an id, the beginning of one, or latest (the default: the latest run that is running). The script "
        "needs no change, and goes on. The file has a process for each rank: when it waited for other "
        "ranks (WAIT), its operations, and their steps, for each tensor. Perfetto and chrome://tracing open it. The "
        "ranks must use Horovod of kit's image.",
        examples=(
            "kit timeline",
            "kit timeline 20261121-10 --for 60s --file step.json",
        ),
        exits=(*FAILED, ("5", "the run has ended, or none of its ranks uses Horovod of kit's image")),
    ),
)
