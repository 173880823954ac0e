"""What you do with runs: runs, runs show, attach, wait, stop."""

# Each handler imports its own flow, so that no verb and no --help pays for another's.
# ruff: noqa: PLC0415
from __future__ import annotations

from typing import TYPE_CHECKING

from kit.cli.verbs.grammar import Option, Verb
from kit.cli.verbs.options import CLUSTER, FAILED, JOB, RANK, RAW, RUN, SINCE, TAG_OUTPUT, TAIL, WORK
from kit.cli.verbs.outcome import job_ended, show_run
from kit.cli.verbs.values import span
from kit.errors import ArrayMeant, Interrupted, NotReadyError
from kit.model import names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kit.cli.session import Session
    from kit.model.run import RunRecord


def runs(session: Session) -> int:
    from kit.cli.text import run as text
    from kit.flows.run.listing import listing

    result = listing(session.context())
    session.remember(run.id for run in result.runs)
    session.show("runs", result, session.fitted(text.runs))
    return 0


def show(session: Session) -> int:
    from kit.cli.screen import jsonout
    from kit.cli.text import shown as text
    from kit.flows.run.listing import show

    args = session.args
    result = show(session.context(), _word(session))
    session.remember([result.record.id])
    if session.json:
        session.show("run", jsonout.shown_run(result))
    elif args.diff:
        if result.diff_cut:
            from kit.events import Warned

            why = "the difference is longer than kit keeps, so git apply cannot restore all of it"
            hint = "take from it what you need by hand"
            if not result.diff:
                why = "git could not compare the code with its commit when the run began, so there is no difference"
                hint = "see why: git diff in the folder of the code"
            session.reporter.report(Warned(text=why, hint=hint))
        # Unchanged in a file or pipe, for git apply.
        session.close()
        if patch := text.diff(result):
            session.terminal.pass_on(patch, "stdout")
    else:
        session.show("run", result, text.shown)
    return 0


def attach(session: Session) -> int:
    from kit.flows.run.dial import dialled

    context = session.context()
    with dialled(context) as door:
        from kit.flows.run.attach import attach

        args = session.args
        part = {"rank": args.rank, "since_s": args.since, "tail": args.tail, "tagged": args.tag_output}
        record = attach(context, _word(session), **part, door=door)
    return _show_record(session, record)


def wait(session: Session) -> int:
    from kit.flows.run.dial import dialled

    context = session.context()
    array = ""
    with dialled(context) as door:
        from kit.flows.run.attach import wait

        try:
            record = wait(context, _word(session), door=door)
        except ArrayMeant as meant:
            array = meant.array
    if array:
        from kit.flows.queue.arrays import wait_for_all

        return _show_array(session, array, wait_for_all(context, array))
    # You wait for the end: a run that has not ended is no success.
    return _show_record(session, record, still_running=Interrupted.exit_code)


def stop(session: Session) -> int:
    from kit.flows.run.by_hand import is_by_hand
    from kit.flows.run.dial import dialled

    context = session.context()
    if is_by_hand(session.args.run):
        from kit.cli.text import run as text
        from kit.flows.run.by_hand import stop_by_hand

        record = stop_by_hand(context, session.args.run)
        show_run(session, record, text=text.stop(record))
        return 0
    with dialled(context) as door:
        from kit.cli.text import run as text
        from kit.flows.run.stop import stop_all

        records = stop_all(context, _word(session), grace_s=session.args.grace, door=door)
    _show_each(session, records, text.stopped(records))
    return 0


def _show_each(session: Session, records: Sequence[RunRecord], text: str) -> None:
    """Print runs: as JSON with an object for each, or this text."""
    if not session.json:
        session.show("run", None, text)
        return
    for record in records:
        show_run(session, record)


def _show_array(session: Session, array: str, records: Sequence[RunRecord]) -> int:
    """Print how the runs of an array are now. Return the exit code of the first one that did not succeed.

    If all of these succeeded, and there were others, nobody knows whether the array did.
    """
    from kit.cli.text import run as text
    from kit.model.result import RunsResult

    session.remember(record.id for record in records)
    table = RunsResult(cluster=session.context().spec.name, runs=tuple(records))
    _show_each(session, records, session.fitted(text.runs)(table))
    session.terminal.tell(text.array_ended(array, records))
    codes = {"lost": NotReadyError.exit_code, "running": Interrupted.exit_code}
    size = max((record.array.size for record in records if record.array), default=0)
    unknown = NotReadyError.exit_code if len(records) < size else 0
    return next((code for record in records if (code := codes.get(record.state, record.exit_code or 0))), unknown)


def _word(session: Session) -> str | None:
    """Return the run's id, or the beginning of it, as you wrote it. None for the latest run."""
    word: str | None = session.args.run
    return None if word == names.LATEST else word


def _show_record(session: Session, record: RunRecord, *, still_running: int = 0) -> int:
    """Print how the run is now, and return the exit code that this gives kit."""
    from kit.cli.text import run as text

    session.remember([record.id])
    show_run(session, record)
    if record.state == "lost":
        session.terminal.tell(f"{text.story(record)}\n  → {names.RESTORE}")
        return NotReadyError.exit_code
    if record.state != "running":
        return job_ended(session, record.exit_code, text.story(record))
    session.terminal.tell(
        f"run {record.id} goes on; kit attach {record.id} shows it again, kit stop {record.id} ends it"
    )
    return still_running


VERBS = (
    Verb(
        words=("runs",),
        purpose="Show the cluster's runs, including those that ended",
        handler=runs,
        group=WORK,
        options=CLUSTER,
        examples=("kit runs", "kit runs --output json"),
        exits=FAILED,
    ),
    Verb(
        words=("runs", "list"),
        purpose="Show the cluster's runs, as kit runs does",
        handler=runs,
        group=WORK,
        options=CLUSTER,
        examples=("kit runs list",),
        exits=FAILED,
    ),
    Verb(
        words=("runs", "show"),
        purpose="Show one run: its command, hosts, code and end, and where its files are",
        handler=show,
        group=WORK,
        operands=(RUN,),
        options=(
            Option(flags=("--diff",), help="Print only how its code differed from the commit, for git apply"),
            *CLUSTER,
        ),
        notes="latest is the latest run, too. JSON always has the difference, as diff.",
        examples=("kit runs show", "kit runs show 20261121-10 --output json", "kit runs show --diff >run.patch"),
        exits=FAILED,
    ),
    Verb(
        words=("attach",),
        purpose="Print a run's output so far, then follow it; Ctrl-C leaves the run running",
        handler=attach,
        group=WORK,
        operands=(RUN,),
        options=(TAIL, SINCE, RANK, TAG_OUTPUT, RAW, *CLUSTER),
        examples=("kit attach", "kit attach 20261121-10 --tail 20", "kit attach --rank 0"),
        exits=JOB,
    ),
    Verb(
        words=("wait",),
        purpose="Wait for the end of a run, and exit with its exit code",
        handler=wait,
        group=WORK,
        operands=(RUN,),
        options=CLUSTER,
        notes="With the id of an array, kit waits for the ends of all its runs. The exit code is that of the first of "
        "them that failed, in the order of their indexes. It is 5 if the others succeeded and some left the line, or "
        "were removed before kit saw how they ended.",
        examples=("kit wait && kit run -- python evaluate.py",),
        exits=(
            *(code for code in JOB if code[0] not in {"5", "130"}),
            ("5", "not ready: nothing is deployed; or the run is lost, or nobody knows how a run of the array ended"),
            ("130", "interrupted; the run goes on"),
        ),
    ),
    Verb(
        words=("stop",),
        purpose="Stop a run: every rank on every host, and nothing else",
        handler=stop,
        group=WORK,
        operands=(RUN,),
        options=(
            Option(
                flags=("--grace",),
                value="TIME",
                kind=span,
                help="Give ranks this time between TERM and KILL (default: 10s)",
            ),
            *CLUSTER,
        ),
        notes="With the id of an array, kit stops all of its runs, those in line first. Without an id, kit stops the "
        "latest active run if you started it: user@machine of kit runs show is yours. To stop another person's run, "
        "give its id. kit ps shows ranks that somebody started with mpirun in a shell of the head as by-hand-NUMBER. "
        "kit stop by-hand ends all of them.",
        examples=("kit stop", "kit stop 20261121-101500-3fa2 --grace 2m", "kit stop by-hand"),
        exits=FAILED,
    ),
)
