"""kit run."""

# Each handler imports its own flow, so that no verb and no --help pays for another's.
# ruff: noqa: PLC0415
from __future__ import annotations

from typing import TYPE_CHECKING

from kit.cli import candidates
from kit.cli.verbs.grammar import Option, Verb
from kit.cli.verbs.options import (
    AGAIN,
    CLUSTER,
    CODE,
    DRY_RUN,
    GPUS_PER_RANK,
    HOSTS,
    HOSTS_FILE,
    JOB,
    LAUNCHER,
    LIMITS,
    NCCL_REQUIRE,
    NP,
    OVERSUBSCRIBE,
    RAW,
    REPORT_BINDINGS,
    SHARES,
    TAG_OUTPUT,
    WORK,
    WORKDIR,
    X,
)
from kit.cli.verbs.outcome import job_ended, show_run
from kit.cli.verbs.queue import QUEUE, run_later, turn
from kit.cli.verbs.tty import check_terminal
from kit.cli.verbs.values import count, words
from kit.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import SimpleNamespace

    from kit.cli.session import Session
    from kit.model.launch import RunPolicy, RunRequest


NPERNODE = Option(
    flags=("-npernode", "--npernode"), value="N", kind=count, help="Start N ranks on each host (default: its slots)"
)
# Few programs have flags with these names. After the program, people most likely meant kit's.
_MISPLACED = (HOSTS_FILE, NP, NPERNODE, OVERSUBSCRIBE, *GPUS_PER_RANK)


def run(session: Session) -> int:
    from kit.config.command import check_command

    args = session.args
    check_command(args.command, verb="kit run")
    hint_at_flag(session, _MISPLACED)
    in_line = turn(args)
    if args.tty:
        check_terminal(session, "-it", otherwise="write: kit run --np 1 -- COMMAND; rank 0 then reads standard input")
    request = _request(session)
    if args.dry_run:
        from kit.cli.text import launch as launchtext
        from kit.flows.run.planning import dry_run

        plan = dry_run(session.context(), request, waits=in_line is not None)
        session.show("launch", plan, launchtext.launch)
        return 0
    from kit.flows.run.dial import dialled

    context = session.context()
    with dialled(context) as door:
        if in_line is not None:
            return run_later(session, request, in_line, door)
        from kit.flows.run.run import run

        result = run(context, request, door=door)
    session.remember([result.plan.run_id])
    if args.detach:
        show_run(session, result.record, result, text=result.plan.run_id)
        return 0
    from kit.cli.text import run as text

    show_run(session, result.record, result)
    if args.tty and (result.failure is None or result.failure.kind == "rank") and not result.stopped:
        # You saw in your terminal how it ended.
        return result.exit_code or 0
    return job_ended(session, result.exit_code, text.ended(result))


def _request(session: Session) -> RunRequest:
    from kit.model.launch import RunRequest

    args = session.args
    return RunRequest(
        np=args.np,
        npernode=args.npernode,
        env=tuple(args.env),
        hosts=args.hosts,
        oversubscribe=args.oversubscribe,
        gpus_per_rank=gpus_per_rank(args),
        cpus=args.cpus,
        nccl_require=args.nccl_require,
        report_bindings=args.report_bindings,
        ignore_busy_gpus=args.ignore_busy_gpus,
        tag_output=args.tag_output,
        dry_run=args.dry_run,
        as_deployed=args.as_deployed,
        detach=args.detach,
        wait=args.wait,
        now=args.now,
        launcher=args.launcher or "mpi",
        servers=args.servers,
        max_restarts=args.max_restarts,
        policy=_policy(session),
        code=args.code,
        workdir=args.workdir or "",
        data=tuple(dict.fromkeys(args.data)),
        again=args.again,
        given=_given(session) if args.again or args.retry_on or args.min_np else frozenset(),
        terminal=args.tty,
        stdin=None if args.detach or args.dry_run or args.queue else piped_input(session),
        command=args.command,
    )


def hint_at_flag(session: Session, options: Iterable[Option]) -> None:
    """Report one of these options that goes to the program, unless -- or the same flag before it shows intent."""
    from kit.config.command import flag_among
    from kit.events import Note

    args = session.args
    unset = [option for option in options if getattr(args, option.dest) == option.default]
    flag = flag_among(args.command, {flag for option in unset for flag in option.flags if len(flag) > 2})
    if flag is not None and not args.dashes:
        text = f"{flag} goes to your program, because it follows {args.command[0]}; kit's own flags go before that"
        session.reporter.report(Note(text=f"{text} (to hide this line, write -- before the program)"))


def piped_input(session: Session) -> int | None:
    """Return the descriptor of a pipe or file that is kit's standard input, or None."""
    from kit.remote.run.feed import piped

    return piped(session.terminal.inp)


def _given(session: Session) -> frozenset[str]:
    """Return the fields of a request that the command line sets, for those that an earlier run has, too."""
    from kit.plan.run.again import FIELDS

    args = session.args
    values = {**vars(args), "checkpoints": args.checkpoint_dir, "gpus_per_rank": gpus_per_rank(args)}
    return frozenset(name for name in FIELDS if values[name] not in (None, []) and values[name] is not False)


def gpus_per_rank(args: SimpleNamespace) -> int | None:
    """Return the number of GPUs for each rank, or None if kit.yaml says it. Raises InputError for two numbers."""
    count: int | None = args.gpus_per_rank
    if not args.gpu_per_rank:
        return count
    if count not in (None, 1):
        raise InputError(
            f"--gpu-per-rank means --gpus-per-rank 1, and --gpus-per-rank {count} is another number",
            hint="remove --gpu-per-rank",
        )
    return 1


def _policy(session: Session) -> RunPolicy:
    from kit.model.launch import RunPolicy

    args = session.args
    given = {
        "operator": None if args.detach else "keep" if args.keep else "stop",
        "share": args.oversubscribe,
        "start_timeout": args.start_timeout,
        "timeout": args.timeout,
        "stall_timeout": args.stall_timeout,
        "idle_gpu": args.idle_gpu,
        "retries": args.retries,
        "retry_on": args.retry_on,
        "min_np": args.min_np,
        "max_np": args.max_np,
        "memory": args.memory,
        "checkpoints": args.checkpoint_dir,
    }
    return RunPolicy(**{k: v for k, v in given.items() if v is not None or k == "operator"})


VERBS = (
    Verb(
        words=("run",),
        purpose="Run a command on the cluster's ranks with mpirun, and exit with its exit code",
        handler=run,
        group=WORK,
        command="rest",
        options=(
            NP,
            NPERNODE,
            X,
            HOSTS,
            OVERSUBSCRIBE,
            *GPUS_PER_RANK,
            *SHARES,
            NCCL_REQUIRE,
            REPORT_BINDINGS,
            Option(flags=("--ignore-busy-gpus",), help="Run even if programs that kit did not start use the GPUs"),
            TAG_OUTPUT,
            RAW,
            Option(
                flags=("-it", "-ti", "-t", "--tty"),
                help="Give the command a terminal in its container, as a run of one rank",
            ),
            Option(flags=("-d", "--detach"), help="Start the run, print its id, and leave it running"),
            Option(flags=("--keep",), help="Keep the run alive if this kit is killed or loses its connection"),
            CODE,
            WORKDIR,
            AGAIN,
            Option(
                flags=("--data",),
                value="NAME",
                kind=words,
                many=True,
                complete=candidates.data,
                help="Stage this data set first where hosts lack it. Repeatable",
            ),
            Option(flags=("--wait",), help="Wait for slots that other runs hold"),
            Option(flags=("--as-deployed",), help="Run even if kit.yaml has other settings than the last deploy"),
            *QUEUE,
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
        "takes them. -d and --elastic read none.",
        examples=(
            "kit run --np 8 --npernode 2",
            "kit run -np 4 -x NCCL_DEBUG=INFO python train.py --lr 0.1",
            "kit run -H 'gpu[1-2]' --dry-run -- tf_benchmark --model resnet50",
            "kit run -d --timeout 8h --retries 3 -- python train.py",
            "kit run --np 1 -- tar xf - -C /data <data.tar",
            "kit run -it --np 1 -- bash",
            "kit run --gpu-per-rank --report-bindings -- python train.py",
            "kit run --again latest",
            "kit run --again 20261121-10 --code . -x LR=0.2",
            "kit run --launcher torchrun --max-restarts 3 -- python train.py",
            "kit run --data imagenet -- python train.py",
            "kit run --elastic --min-np 4 --max-np 8 -- python train.py",
            "kit run --queue --timeout 8h -- python train.py",
            "kit run --queue --after latest,ok --np 1 -- python evaluate.py",
            "kit run --queue --array 0-9 -- python search.py",
            "kit run --launcher ps --servers 4 -- mxnet_train --kv-store dist_sync",
        ),
        exits=JOB,
    ),
)
