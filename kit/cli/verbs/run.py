"""The verbs of runs: run, local, runs, attach, wait and stop, and what they do."""

# Flows are imported by the verb that needs them; --help needs none.
# ruff: noqa: PLC0415
from __future__ import annotations

from typing import TYPE_CHECKING

from kit.cli.verbs.grammar import Option, Verb, count, span, words
from kit.cli.verbs.options import (
    CLUSTER,
    DRY_RUN,
    FAILED,
    JOB,
    LAUNCHER,
    LIMITS,
    NP,
    OVERSUBSCRIBE,
    RUN,
    TAG_OUTPUT,
    WORK,
    X,
)
from kit.errors import Interrupted, NotReadyError
from kit.events import Note

if TYPE_CHECKING:
    from kit.cli.session import Session
    from kit.model.launch import RunPolicy
    from kit.model.run import RunRecord
    from kit.remote.run.door import Door

VERBS = (
    Verb(
        words=("run",),
        purpose="Run a command on the cluster's ranks with mpirun; its exit code is kit's.",
        handler="run.run",
        group=WORK,
        command="rest",
        options=(
            NP,
            Option(
                flags=("-npernode", "--npernode"),
                value="N",
                kind=count,
                help="Ranks on each host (default: its slots).",
            ),
            X,
            Option(
                flags=("-H", "--host"),
                value="HOST,…",
                kind=words,
                to="hosts",
                help="Only these hosts, such as gpu1 or gpu[1-4].",
            ),
            OVERSUBSCRIBE,
            TAG_OUTPUT,
            Option(flags=("-d", "--detach"), help="Start it, print its id, and leave it running."),
            Option(flags=("--keep",), help="Let it go on when this kit is killed or cut off (default: it is ended)."),
            Option(flags=("--wait",), help="Wait for slots that other runs hold."),
            *LAUNCHER,
            *LIMITS,
            DRY_RUN,
            *CLUSTER,
        ),
        notes="The command is everything from the first plain word or -- on, with its own flags. Without one, "
        "kit.yaml's command is run. Ctrl-C ends every rank on every host before kit returns. A limit that is "
        "reached tells what each rank was doing, and ends the run with exit code 124.",
        examples=(
            "kit run --np 8 --npernode 2",
            "kit run -np 4 -x NCCL_DEBUG=INFO python train.py --lr 0.1",
            "kit run -H 'gpu[1-2]' --dry-run -- tf_benchmark --model resnet50",
            "kit run -d --timeout 8h --retries 3 -- python train.py",
            "kit run --launcher ps --servers 4 -- mxnet_train --kv-store dist_sync",
        ),
        exits=JOB,
    ),
    Verb(
        words=("local",),
        purpose="Run a command on this machine's engine alone, with nothing deployed.",
        handler="run.local",
        group=WORK,
        command="rest",
        options=(
            Option(
                flags=("-n", "-np", "--np"), value="N", kind=count, help="Ranks (default: slots in kit.yaml, or 1)."
            ),
            X,
            TAG_OUTPUT,
            DRY_RUN,
        ),
        notes="The container has the image, volumes, env, shm_size and ulimits of kit.yaml, and this machine's GPUs. "
        "It is removed when the command ends, or on Ctrl-C.",
        examples=("kit local --np 2", "kit local --np 2 -- tf_benchmark --model resnet50 --batch-size 4"),
        exits=JOB,
    ),
    Verb(
        words=("runs",),
        purpose="Show the cluster's runs, those that ended too.",
        handler="run.runs",
        group=WORK,
        options=CLUSTER,
        examples=("kit runs", "kit runs --output json"),
        exits=FAILED,
    ),
    Verb(
        words=("attach",),
        purpose="Show all that a run has printed, then what it prints; Ctrl-C leaves it running.",
        handler="run.attach",
        group=WORK,
        operands=(RUN,),
        options=(TAG_OUTPUT, *CLUSTER),
        examples=("kit attach", "kit attach 20261121-101500-3fa2"),
        exits=JOB,
    ),
    Verb(
        words=("wait",),
        purpose="Wait for the end of a run; its exit code is kit's.",
        handler="run.wait",
        group=WORK,
        operands=(RUN,),
        options=CLUSTER,
        examples=("kit wait && kit run -- python evaluate.py",),
        exits=JOB,
    ),
    Verb(
        words=("stop",),
        purpose="End a run: every rank on every host, and nothing else.",
        handler="run.stop",
        group=WORK,
        operands=(RUN,),
        options=(
            Option(
                flags=("--grace",),
                value="TIME",
                kind=span,
                help="What ranks have between TERM and KILL (default: 10s).",
            ),
            *CLUSTER,
        ),
        examples=("kit stop", "kit stop 20261121-101500-3fa2 --grace 2m"),
        exits=FAILED,
    ),
)


def run(session: Session) -> int:
    args = session.args
    dialled = None if args.dry_run else session.dial()
    try:
        return _run(session, dialled)
    except BaseException:
        if dialled is not None:
            dialled.close()
        raise


def _run(session: Session, dialled: Door | None) -> int:
    from kit.cli.text import launch as launchtext
    from kit.cli.text import run as runtext
    from kit.flows.run.run import run
    from kit.model.launch import RunRequest

    args = session.args
    request = RunRequest(
        np=args.np,
        npernode=args.npernode,
        env=tuple(args.env),
        hosts=args.hosts,
        oversubscribe=args.oversubscribe,
        tag_output=args.tag_output,
        dry_run=args.dry_run,
        detach=args.detach,
        wait=args.wait,
        launcher=args.launcher or "mpi",
        servers=args.servers,
        policy=_policy(session),
        command=args.command,
    )
    result = run(session.context(), request, dialled=dialled)
    session.close()
    if args.dry_run:
        session.show("launch", result.plan, launchtext.launch(result.plan))
        return 0
    if args.detach:
        session.show("run", result, result.plan.run_id)
        return 0
    session.show("run", result, "")
    return _job_ended(session, result.exit_code, runtext.ended(result))


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


def runs(session: Session) -> int:
    from kit.cli.text import run as runtext
    from kit.flows.run.runs import listing

    result = listing(session.context())
    session.close()
    session.show("runs", result, runtext.runs(result))
    return 0


def attach(session: Session) -> int:
    from kit.flows.run.runs import attach

    ended = attach(session.context(), session.args.run, tagged=session.args.tag_output)
    session.close()
    return _run_told(session, ended)


def wait(session: Session) -> int:
    from kit.flows.run.runs import wait

    ended = wait(session.context(), session.args.run)
    session.close()
    # Whoever waits wants to know that it has ended.
    return _run_told(session, ended, still_running=Interrupted.exit_code)


def stop(session: Session) -> int:
    from kit.cli.text import run as runtext
    from kit.flows.run.runs import stop

    result = stop(session.context(), session.args.run, grace_s=session.args.grace)
    session.close()
    session.show("run", result, runtext.stop(result))
    return 0


def _run_told(session: Session, ended: RunRecord, *, still_running: int = 0) -> int:
    from kit.cli.text import run as runtext

    session.show("run", ended, "")
    if ended.state == "lost":
        session.terminal.tell(runtext.story(ended))
        return NotReadyError.exit_code
    if ended.state != "running":
        return _job_ended(session, ended.exit_code, runtext.story(ended))
    session.terminal.tell(f"run {ended.id} goes on; kit attach {ended.id} shows it again, kit stop {ended.id} ends it")
    return still_running


def local(session: Session) -> int:
    from kit.cli.text import launch as launchtext
    from kit.flows.run.local import local
    from kit.model.launch import RunRequest

    args = session.args
    request = RunRequest(
        np=args.np,
        env=tuple(args.env),
        tag_output=args.tag_output,
        dry_run=args.dry_run,
        command=args.command,
    )
    result = local(session.spec(), session.folder, request, reporter=session.reporter)
    session.close()
    session.show("local", result, launchtext.local(result) if args.dry_run else "")
    return 0 if args.dry_run else _job_ended(session, result.exit_code)


def _job_ended(session: Session, code: int | None, story: str = "") -> int:
    if story:
        session.terminal.tell(story)
    elif code:
        session.reporter.report(Note(text=f"kit: the job ended with exit code {code}"))
    return code or 0
