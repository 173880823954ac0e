"""kit local."""

# Each handler imports its own flow, so that no verb and no --help pays for another's.
# ruff: noqa: PLC0415
from __future__ import annotations

from typing import TYPE_CHECKING

from kit.cli.verbs.grammar import Option, Verb
from kit.cli.verbs.options import (
    CODE,
    DRY_RUN,
    GPUS_PER_RANK,
    JOB,
    RAW,
    REPORT_BINDINGS,
    TAG_OUTPUT,
    WORK,
    WORKDIR,
    X,
)
from kit.cli.verbs.outcome import job_ended
from kit.cli.verbs.run import gpus_per_rank, hint_at_flag, piped_input
from kit.cli.verbs.values import count, gpus

if TYPE_CHECKING:
    from kit.cli.session import Session

_NP = Option(
    flags=("-n", "-np", "--np"), value="N", kind=count, help="Start N ranks (default: slots in kit.yaml, or 1)"
)


def local(session: Session) -> int:
    from kit.cli.text import launch as text
    from kit.config.command import check_command
    from kit.flows.run.local import local
    from kit.model.launch import RunRequest

    args = session.args
    check_command(args.command, verb="kit local")
    # Many programs have a flag --gpus.
    hint_at_flag(session, (_NP, *GPUS_PER_RANK))
    request = RunRequest(
        np=args.np,
        env=tuple(args.env),
        gpus=args.gpus,
        gpus_per_rank=gpus_per_rank(args),
        report_bindings=args.report_bindings,
        tag_output=args.tag_output,
        dry_run=args.dry_run,
        code=args.code,
        workdir=args.workdir or "",
        stdin=None if args.dry_run else piped_input(session),
        command=args.command,
    )
    result = local(session.spec(), session.folder, request, reporter=session.reporter)
    session.show("local", result, text.local if args.dry_run else "")
    return 0 if args.dry_run else job_ended(session, result.exit_code)


VERBS = (
    Verb(
        words=("local",),
        purpose="Run a command on this machine's engine alone, without a cluster",
        handler=local,
        group=WORK,
        command="rest",
        options=(
            _NP,
            Option(
                flags=("--gpus",),
                value="WHICH",
                kind=gpus,
                help="Use these GPUs of this machine: all (default), none, a number, or device=0,1 or a UUID",
            ),
            *GPUS_PER_RANK,
            REPORT_BINDINGS,
            X,
            CODE,
            WORKDIR,
            TAG_OUTPUT,
            RAW,
            DRY_RUN,
        ),
        notes="The container gets the image, volumes, env, shm_size and ulimits of kit.yaml, and this machine's GPUs. "
        "kit removes it when the command ends, or on Ctrl-C. With code, the ranks start in a copy of it, and what they "
        "make stays in .kit/runs. They get no standard input.",
        examples=(
            "kit local --np 2",
            "kit local -- python train.py",
            "kit local --gpus 2 --gpu-per-rank -- python train.py",
            "kit local --gpus device=1 -- python train.py",
            "kit local --np 2 -- tf_benchmark --model resnet50 --batch-size 4",
        ),
        exits=JOB,
    ),
)
