"""What you do with what runs made: runs rm."""

# Each handler imports its own flow, so that no verb and no --help pays for another's.
# ruff: noqa: PLC0415
from __future__ import annotations

from typing import TYPE_CHECKING

from kit.cli import candidates
from kit.cli.verbs.grammar import Operand, Option, Verb
from kit.cli.verbs.options import CLUSTER, DRY_RUN, FAILED, MUST_YES, WORK
from kit.cli.verbs.values import span
from kit.errors import InputError

if TYPE_CHECKING:
    from kit.cli.session import Session
    from kit.model.results import RunSize


def remove(session: Session) -> int:
    from kit.cli.text import results as text
    from kit.flows.run.folders import remove_runs

    args = session.args
    if not args.run and args.older_than is None:
        raise InputError("the id of a run is missing", hint="list the runs: kit runs; or say which by: --older-than 7d")
    if not args.dry_run:
        session.needs_yes()

    def agreed(runs: tuple[RunSize, ...]) -> bool:
        session.close()
        session.terminal.tell(text.run_sizes(runs))
        return session.confirms(f"Delete {text.counted(runs)} and what they made from every host?")

    result = remove_runs(session.context(), args.run, older_s=args.older_than, dry_run=args.dry_run, confirm=agreed)
    if result is None:
        session.terminal.tell("Nothing was removed.")
        return 0
    session.show("runs-rm", result, text.removed)
    return 0


VERBS = (
    Verb(
        words=("runs", "rm"),
        purpose="Delete runs with all that they made: records, logs, outputs, checkpoints",
        handler=remove,
        group=WORK,
        operands=(
            Operand(
                name="run",
                help="Ids of runs, or the beginnings of ids",
                optional=True,
                complete=candidates.run,
                many=True,
            ),
        ),
        options=(
            Option(
                flags=("--older-than",), value="TIME", kind=span, help="Also all runs that began before that: 7d, 12h"
            ),
            DRY_RUN,
            MUST_YES,
            *CLUSTER,
        ),
        notes="kit shows the sizes, and asks. It removes nothing if a run that you named is active, or if it cannot "
        "reach a host.",
        examples=("kit runs rm 20261121-101500-3fa2", "kit runs rm --older-than 7d --dry-run"),
        exits=(*FAILED, ("5", "one of the runs is active")),
    ),
)
