"""kit run and kit local, and what you do with runs: runs, attach, wait, stop."""

# Each handler imports its own flow, so that no verb and no --help pays for another's.
# ruff: noqa: PLC0415
from __future__ import annotations

from typing import TYPE_CHECKING

from kit.cli.verbs.grammar import Option, Verb
from kit.cli.verbs.options import (
    CLUSTER,
    CODE,
    DRY_RUN,
    FAILED,
    HOSTS,
    JOB,
    LAUNCHER,
    LIMITS,
    NP,
    OVERSUBSCRIBE,
    RANK,
    RUN,
    SINCE,
    TAG_OUTPUT,
    TAIL,
    WORK,
    X,
)
from kit.cli.verbs.values import count, span
from kit.errors import Interrupted, NotReadyError

if TYPE_CHECKING:
    from kit.cli.session import Session
    from kit.model.launch import RunPolicy
    from kit.model.result import RunResult
    from kit.model.run import RunRecord


def run(session: Session) -> int:
    from kit.config.command import check_command
    from kit.model.launch import RunRequest
    from kit.remote.run.feed import piped

    args = session.args
    check_command(args.command, verb="kit run")
    request = RunRequest(
        np=args.np,
        npernode=args.npernode,
        env=tuple(args.env),
        hosts=args.hosts,
        oversubscribe=args.oversubscribe,
        tag_output=args.tag_output,
        dry_run=args.dry_run,
        as_deployed=args.as_deployed,
        detach=args.detach,
        wait=args.wait,
        launcher=args.launcher or "mpi",
        servers=args.servers,
        policy=_policy(session),
        code=args.code,
        stdin=None if args.detach or args.dry_run else piped(session.terminal.inp),
        command=args.command,
    )
    if args.dry_run:
        from kit.cli.text import launch as launchtext
        from kit.flows.run.planning import dry_run

        session.show("launch", dry_run(session.context(), request).plan, launchtext.launch)
        return 0
    from kit.flows.run.dial import dialled

    context = session.context()
    with dialled(context) as door:
        from kit.flows.run.run import run

        result = run(context, request, door=door)
    session.remember([result.plan.run_id])
    if args.detach:
        _show(session, result.record, result, text=result.plan.run_id)
        return 0
    from kit.cli.text import run as text

    _show(session, result.record, result)
    return _job_ended(session, result.exit_code, text.ended(result))


def _policy(session: Session) -> RunPolicy:
    from kit.model.launch import RunPolicy

    args = session.args
    given = {
        "operator": None if args.detach else "keep" if args.keep else "stop",
        "share": args.oversubscribe,
        "start_timeout": args.start_timeout,
        "timeout": args.timeout,
        "stall_timeout": args.stall_timeout,
        "retries": args.retries,
        "retry_on": args.retry_on,
        "min_np": args.min_np,
        "checkpoints": args.checkpoint_dir,
    }
    return RunPolicy(**{k: v for k, v in given.items() if v is not None or k == "operator"})


def local(session: Session) -> int:
    from kit.cli.text import launch as text
    from kit.config.command import check_command
    from kit.flows.run.local import local
    from kit.model.launch import RunRequest

    args = session.args
    check_command(args.command, verb="kit local")
    request = RunRequest(
        np=args.np,
        env=tuple(args.env),
        tag_output=args.tag_output,
        dry_run=args.dry_run,
        command=args.command,
    )
    result = local(session.spec(), session.folder, request, reporter=session.reporter)
    session.show("local", result, text.local if args.dry_run else "")
    return 0 if args.dry_run else _job_ended(session, result.exit_code)


def runs(session: Session) -> int:
    from kit.cli.text import run as text
    from kit.flows.run.listing import listing

    result = listing(session.context())
    session.remember(run.id for run in result.runs)
    session.show("runs", result, session.fitted(text.runs))
    return 0


def attach(session: Session) -> int:
    from kit.flows.run.dial import dialled

    context = session.context()
    with dialled(context) as door:
        from kit.flows.run.attach import attach

        args = session.args
        part = {"rank": args.rank, "since_s": args.since, "tail": args.tail, "tagged": args.tag_output}
        record = attach(context, args.run, **part, door=door)
    return _show_record(session, record)


def wait(session: Session) -> int:
    from kit.flows.run.dial import dialled

    context = session.context()
    with dialled(context) as door:
        from kit.flows.run.attach import wait

        record = wait(context, session.args.run, door=door)
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
        _show(session, record, text=text.stop(record))
        return 0
    with dialled(context) as door:
        from kit.cli.text import run as text
        from kit.flows.run.stop import stop

        record = stop(context, session.args.run, grace_s=session.args.grace, door=door)
    _show(session, record, text=text.stop(record))
    return 0


def _show(session: Session, record: RunRecord | None, result: RunResult | None = None, text: str = "") -> None:
    """Print a run: as JSON in one shape for all verbs, or this text."""
    if not session.json or record is None:
        session.show("run", result, text)
        return
    from kit.cli.screen.jsonout import run

    session.show("run", run(record, result))


def _show_record(session: Session, record: RunRecord, *, still_running: int = 0) -> int:
    """Print how the run is now, and return the exit code that this gives kit."""
    from kit.cli.text import run as text

    session.remember([record.id])
    _show(session, record)
    if record.state == "lost":
        session.terminal.tell(text.story(record))
        return NotReadyError.exit_code
    if record.state != "running":
        return _job_ended(session, record.exit_code, text.story(record))
    session.terminal.tell(
        f"run {record.id} goes on; kit attach {record.id} shows it again, kit stop {record.id} ends it"
    )
    return still_running


def _job_ended(session: Session, code: int | None, story: str = "") -> int:
    from kit.events import Note

    if story:
        session.terminal.tell(story)
    elif code:
        session.reporter.report(Note(text=f"kit: the job ended with exit code {code}"))
    return code or 0


VERBS = (
    Verb(
        words=("run",),
        purpose="Run a command on the cluster's ranks with mpirun, and exit with its exit code",
        handler=run,
        group=WORK,
        command="rest",
        options=(
            NP,
            Option(
                flags=("-npernode", "--npernode"),
                value="N",
                kind=count,
                help="Start N ranks on each host (default: its slots)",
            ),
            X,
            HOSTS,
            OVERSUBSCRIBE,
            TAG_OUTPUT,
            Option(flags=("-d", "--detach"), help="Start the run, print its id, and leave it running"),
            Option(flags=("--keep",), help="Keep the run alive if this kit is killed or loses its connection"),
            CODE,
            Option(flags=("--wait",), help="Wait for slots that other runs hold"),
            Option(flags=("--as-deployed",), help="Run even if kit.yaml has other settings than the last deploy"),
            *LAUNCHER,
            *LIMITS,
            DRY_RUN,
            *CLUSTER,
        ),
        notes="The command is everything from the first plain word or -- on, with its own flags. Without a command, "
        "kit runs the one in kit.yaml. If env:, volumes: or another setting that takes effect with a deploy has "
        "changed, kit names it and starts nothing. Ctrl-C ends every rank on every host before kit returns. When a "
        "run reaches a time limit, kit reports what each rank was doing, and exits with code 124. As with mpirun, rank "
        "0 gets standard input, if that is a pipe or a file. In a loop that reads lines, add </dev/null, or the run "
        "takes them. -d reads none.",
        examples=(
            "kit run --np 8 --npernode 2",
            "kit run -np 4 -x NCCL_DEBUG=INFO python train.py --lr 0.1",
            "kit run -H 'gpu[1-2]' --dry-run -- tf_benchmark --model resnet50",
            "kit run -d --timeout 8h --retries 3 -- python train.py",
            "kit run --np 1 -- tar xf - -C /data <data.tar",
            "kit run --launcher ps --servers 4 -- mxnet_train --kv-store dist_sync",
        ),
        exits=JOB,
    ),
    Verb(
        words=("local",),
        purpose="Run a command on this machine's engine alone, without a cluster",
        handler=local,
        group=WORK,
        command="rest",
        options=(
            Option(
                flags=("-n", "-np", "--np"),
                value="N",
                kind=count,
                help="Start N ranks (default: slots in kit.yaml, or 1)",
            ),
            X,
            TAG_OUTPUT,
            DRY_RUN,
        ),
        notes="The container gets the image, volumes, env, shm_size and ulimits of kit.yaml, and this machine's GPUs. "
        "kit removes it when the command ends, or on Ctrl-C.",
        examples=("kit local --np 2", "kit local --np 2 -- tf_benchmark --model resnet50 --batch-size 4"),
        exits=JOB,
    ),
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
        words=("attach",),
        purpose="Print a run's output so far, then follow it; Ctrl-C leaves the run running",
        handler=attach,
        group=WORK,
        operands=(RUN,),
        options=(TAIL, SINCE, RANK, TAG_OUTPUT, *CLUSTER),
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
        examples=("kit wait && kit run -- python evaluate.py",),
        exits=JOB,
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
        notes="kit ps shows ranks that somebody started in the head's shell with hvd-distribute.sh as by-hand-NUMBER. "
        "kit stop by-hand ends all of them.",
        examples=("kit stop", "kit stop 20261121-101500-3fa2 --grace 2m", "kit stop by-hand"),
        exits=FAILED,
    ),
)
