"""kit bench and kit bench list: measure the cluster, and list what was measured."""

# Each handler imports its own flow, so that no verb and no --help pays for another's.
# ruff: noqa: PLC0415
from __future__ import annotations

from typing import TYPE_CHECKING

from kit.cli import candidates
from kit.cli.verbs.grammar import Option, Verb
from kit.cli.verbs.options import CLUSTER, DRY_RUN, FAILED, MEASURE, NOW
from kit.cli.verbs.values import count, milliseconds, names, numbers, span, words
from kit.errors import InputError

if TYPE_CHECKING:
    from kit.cli.session import Session
    from kit.flows.bench.measure import BenchResult
    from kit.plan.bench.cases import BenchOptions

FAILED_CASES = 1


def bench(session: Session) -> int:
    from kit.cli.text import bench as text
    from kit.config.paths import expanded
    from kit.flows.bench.measure import BenchRequest, bench, bench_plan

    args = session.args
    options = _options(session)
    if args.resume or args.session:
        _check_resume(session, options)
    if args.dry_run:
        session.show("bench-plan", bench_plan(session.context(), options), session.fitted(text.plan))
        return 0
    request = BenchRequest(
        options=options,
        resume=(args.session or "") if args.resume or args.session else None,
        folder=expanded(args.dir) if args.dir else None,
        force=args.force,
        show=args.verbose,
        now=args.now,
    )
    result = bench(session.context(), request, on_sample=lambda sample: session.emit("sample", sample))
    written = _show_result(session, result)
    return FAILED_CASES if result.failed or not written else 0


def _check_resume(session: Session, options: BenchOptions) -> None:
    """Refuse words that a resumed session would ignore: it has its cases already."""
    from kit.plan.bench.cases import BenchOptions

    if options != BenchOptions():
        raise InputError(
            "a resumed session keeps the cases that it began with",
            hint="kit bench --resume without other options; or leave --resume out to begin a new session",
        )
    if session.args.dir:
        raise InputError("--dir is the folder of a new session", hint="write --session DIR to resume the one there")
    if session.args.dry_run:
        raise InputError("--dry-run shows the plan of a new session", hint="kit bench list shows what is left")


def _show_result(session: Session, result: BenchResult) -> bool:
    """Print the session's table and files. Return whether the files could be written."""
    from kit.cli.text.bench_summary import summary_text
    from kit.flows.bench.report import write

    report = write(result.folder, session.reporter)
    shown = {"session": result.session.id, "folder": result.folder, "seconds": result.seconds,
             "failed": result.failed, "files": report.files, "summary": report.summary}  # fmt: skip
    session.show("bench", shown, lambda _: summary_text(report.summary, width=session.width))
    if not session.json:
        for path in report.files:
            session.terminal.tell(str(path))
        for sample in result.failed:
            session.terminal.tell(f"kit: error: {sample.case}: {sample.failure}")
    return bool(report.files)


def listing(session: Session) -> int:
    from kit.cli.text import bench as text
    from kit.events import Warned
    from kit.flows.bench.listing import sessions

    rows, errors = sessions(session.folder)
    for error in errors:
        session.reporter.report(Warned(text=str(error), hint=error.hint))
    session.show("bench-sessions", rows, session.fitted(text.sessions))
    return errors[0].exit_code if errors else 0


def _options(session: Session) -> BenchOptions:
    from kit.plan.bench.cases import BenchOptions

    args = session.args
    given = {
        "preset": args.preset,
        "workload": args.workload,
        "model": args.model,
        "batch_size": args.batch_size,
        "image_size": args.image_size,
        "num_warmup": args.num_warmup,
        "num_iters": args.num_iters,
        "num_batches": args.num_batches_per_iter,
        "ranks": args.ranks,
        "networks": args.networks,
        "stores": args.stores,
        "data": args.data,
        "paced": args.paced,
        "step_ms": args.step_ms,
        "repeats": args.repeats,
        "timeout_s": args.case_timeout,
    }
    return BenchOptions(**{name: value for name, value in given.items() if value is not None})


PRESET = Option(
    flags=("--preset",),
    value="NAME",
    kind=words,
    complete=candidates.preset,
    help="Measure a table instead of the ladder: egs, networks, kvstore, compression or tuning",
)

VERBS = (
    Verb(
        words=("bench",),
        purpose="Measure the cluster: rung by rung up to training, or one of the well-known tables",
        handler=bench,
        group=MEASURE,
        options=(
            PRESET,
            Option(
                flags=("--workload",),
                value="WHAT",
                kind=words,
                complete=candidates.workload,
                help="Train with mxnet (default, if the image has it), tf or torch",
            ),
            Option(
                flags=("--model",), value="NAME", kind=words, help="Train this model (default: a small one on CPUs)"
            ),
            Option(flags=("--batch-size",), value="N", kind=count, help="Set images per rank and step"),
            Option(flags=("--image-size",), value="N", kind=count, help="Set pixels per side"),
            Option(flags=("--num-warmup",), value="N", kind=count, help="Run N steps before the clock starts"),
            Option(flags=("--num-iters",), value="N", kind=count, help="Take N measurements per launch"),
            Option(flags=("--num-batches-per-iter",), value="N", kind=count, help="Run N steps per measurement"),
            Option(
                flags=("--ranks",),
                value="N,…",
                kind=numbers,
                joins=True,
                help="Use these numbers of ranks (default: 1, 2, 4 … all)",
            ),
            Option(
                flags=("--networks",),
                value="NAME,…",
                kind=names,
                joins=True,
                help="Compare these of bare, host, bridge, overlay",
            ),
            Option(
                flags=("--stores",),
                value="NAME,…",
                kind=names,
                joins=True,
                help="Compare these key-value stores, such as dist_sync",
            ),
            Option(
                flags=("--data",),
                value="NAME",
                kind=words,
                complete=candidates.data,
                help="Train on the images of this data set too, beside synthetic ones",
            ),
            Option(
                flags=("--paced",),
                value="MODEL",
                kind=words,
                complete=candidates.model,
                help="Simulate: sleep instead of computing, and exchange this model's gradients",
            ),
            Option(
                flags=("--step-ms",),
                value="TIME",
                kind=milliseconds,
                help="Set the step to 290ms, 1.5s (default: 200)",
            ),
            Option(flags=("--repeats",), value="N", kind=count, help="Launch each case N times (default: 3)"),
            Option(
                flags=("--case-timeout",), value="TIME", kind=span, help="End a launch after this time (default: 10m)"
            ),
            Option(
                flags=("--dir",),
                value="DIR",
                kind=words,
                complete=candidates.folders,
                help="Write the session to this folder (default: bench/ID)",
            ),
            Option(
                flags=("--resume",),
                help="Resume the latest session; another one: --session ID",
                valued="--resume --session",
            ),
            Option(
                flags=("--session",),
                value="ID",
                kind=words,
                complete=candidates.session,
                help="Resume this session: its id, the beginning of the id, or its folder",
            ),
            Option(
                flags=("--force",),
                help="Run even if the cluster is busy or has changed since this session began",
            ),
            NOW,
            DRY_RUN,
            *CLUSTER,
        ),
        notes="The ladder has five rungs: reach, hello, ring, collectives, training. It stops at the first rung that "
        "fails, and reports what that rung proves. kit writes each sample to bench/ID at once, so that --resume can "
        "continue an interrupted session. Make sure that nobody else uses the hosts meanwhile; kit marks samples that "
        "were disturbed.",
        examples=(
            "kit bench",
            "kit bench --preset egs",
            "kit bench --preset egs --workload tf --model resnet50 --batch-size 64",
            "kit bench --preset egs --data imagenet",
            "kit bench --preset networks --dry-run",
            "kit bench --resume",
            "kit bench --resume --session 20261121-101500-egs",
        ),
        exits=(
            ("1", "a rung or a case failed, or the report cannot be written; kit keeps what was measured"),
            *FAILED[:2],
            ("5", "not ready: nothing is deployed, or other runs use the cluster"),
            ("130", "interrupted; kit keeps what was measured"),
        ),
    ),
    Verb(
        words=("bench", "list"),
        purpose="List the sessions of kit bench in this folder, the latest last",
        handler=listing,
        group=MEASURE,
        examples=("kit bench list",),
        exits=(("2", "a session's files cannot be read"),),
    ),
)
