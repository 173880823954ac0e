"""kit bench: its verbs, what they do, and what they print."""

# Flows bring in fabric and YAML: each verb pays for its own only, and --help for none.
# ruff: noqa: PLC0415
from __future__ import annotations

from typing import TYPE_CHECKING

from kit.cli.verbs.grammar import Option, Verb, count, positive, span, words
from kit.cli.verbs.options import CLUSTER, DRY_RUN, FAILED, MEASURE
from kit.errors import InputError

if TYPE_CHECKING:
    from kit.cli.session import Session
    from kit.flows.bench.measure import BenchResult
    from kit.plan.bench.cases import BenchOptions

FAILED_CASES = 1


def names(text: str) -> tuple[str, ...]:
    """Words between commas."""
    found = tuple(word.strip() for word in text.split(",") if word.strip())
    if not found:
        raise ValueError(f"'{text}' names nothing: write words with commas between them")
    return found


def numbers(text: str) -> tuple[int, ...]:
    """Whole numbers from 1 on, between commas."""
    return tuple(count(word) for word in names(text))


PRESET = Option(
    flags=("--preset",),
    value="NAME",
    kind=words,
    help="A table instead of the ladder: egs, networks, kvstore, compression or tuning.",
)

VERBS = (
    Verb(
        words=("bench",),
        purpose="Measure the cluster: rung by rung up to training, or one of the well-known tables.",
        handler="bench.bench",
        group=MEASURE,
        options=(
            PRESET,
            Option(flags=("--workload",), value="WHAT", kind=words, help="mxnet (default where it is) or tf."),
            Option(flags=("--model",), value="NAME", kind=words, help="Model to train (default: a small one on CPUs)."),
            Option(flags=("--batch-size",), value="N", kind=count, help="Images a rank and step."),
            Option(flags=("--image-size",), value="N", kind=count, help="Pixels a side."),
            Option(flags=("--num-warmup",), value="N", kind=count, help="Steps before the clock runs."),
            Option(flags=("--num-iters",), value="N", kind=count, help="Measurements of a launch."),
            Option(flags=("--num-batches-per-iter",), value="N", kind=count, help="Steps of a measurement."),
            Option(flags=("--ranks",), value="N,…", kind=numbers, help="Numbers of ranks (default: 1, 2, 4 … all)."),
            Option(flags=("--networks",), value="NAME,…", kind=names, help="Of bare, host, bridge, overlay."),
            Option(flags=("--stores",), value="NAME,…", kind=names, help="Key-value stores, such as dist_sync."),
            Option(
                flags=("--paced",),
                value="MODEL",
                kind=words,
                help="Sleep instead of computing, and exchange this model's gradients: simulated.",
            ),
            Option(flags=("--step-ms",), value="MS", kind=positive, help="Length of that step (default: 200)."),
            Option(flags=("--repeats",), value="N", kind=count, help="Launches of each case (default: 3)."),
            Option(flags=("--case-timeout",), value="TIME", kind=span, help="End a launch after this (default: 10m)."),
            Option(flags=("--dir",), value="DIR", kind=words, help="Folder of the session (default: bench/ID)."),
            Option(
                flags=("--resume",),
                help="Go on with the latest session; with another: --session ID.",
                valued="--resume --session",
            ),
            Option(
                flags=("--session",),
                value="ID",
                kind=words,
                help="Go on with this session: its id, the id's beginning, or its folder.",
            ),
            Option(flags=("--force",), help="Though other runs are on it, or it has changed since."),
            DRY_RUN,
            *CLUSTER,
        ),
        notes="The ladder: reach, hello, ring, collectives, training. It stops at the first rung that fails, and says "
        "what that rung proves. Samples are kept as they come, in bench/ID: an interrupted session goes on with "
        "--resume. Make sure that nobody else uses the hosts meanwhile; a sample that was disturbed is marked.",
        examples=(
            "kit bench",
            "kit bench --preset egs",
            "kit bench --preset egs --workload tf --model resnet50 --batch-size 64",
            "kit bench --preset networks --dry-run",
            "kit bench --resume",
            "kit bench --resume --session 20261121-101500-egs",
        ),
        exits=(
            ("1", "a rung or a case failed; what was measured is kept"),
            *FAILED[:2],
            ("5", "not ready: nothing is deployed, or other runs are on the cluster"),
            ("130", "interrupted; what was measured is kept"),
        ),
    ),
    Verb(
        words=("bench", "list"),
        purpose="Show the sessions of kit bench in this folder, the latest last.",
        handler="bench.listing",
        group=MEASURE,
        examples=("kit bench list",),
        exits=(("2", "a session's files cannot be read"),),
    ),
)


def bench(session: Session) -> int:
    from kit.cli.text import bench as benchtext
    from kit.flows.bench.measure import BenchRequest, bench, bench_plan

    args = session.args
    options = _options(session)
    if args.resume or args.session:
        _only_resumed(session, options)
    if args.dry_run:
        planned = bench_plan(session.context(), options)
        session.close()
        session.show("bench-plan", planned, benchtext.plan(planned))
        return 0
    request = BenchRequest(
        options=options,
        resume=(args.session or "") if args.resume or args.session else None,
        folder=session.folder / args.dir if args.dir else None,
        force=args.force,
        show=args.verbose,
    )
    result = bench(session.context(), request, on_sample=lambda sample: session.show("sample", sample, ""))
    session.close()
    _told(session, result)
    return FAILED_CASES if result.failed else 0


def _only_resumed(session: Session, options: BenchOptions) -> None:
    """A session that is gone on with has its cases already: other words would be passed over in silence."""
    from kit.plan.bench.cases import BenchOptions

    if options != BenchOptions():
        raise InputError(
            "a session that is gone on with keeps the cases that it began with",
            hint="kit bench --resume alone; or leave --resume out, for a new session",
        )
    if session.args.dir:
        raise InputError("--dir is where a new session goes", hint="write --session DIR to go on with the one there")
    if session.args.dry_run:
        raise InputError("--dry-run shows the plan of a new session", hint="kit bench list shows how much is left")


def _told(session: Session, result: BenchResult) -> None:
    """The session's table and files. A page that cannot be made takes nothing from what was measured."""
    from kit.cli.text.bench_summary import summary_text
    from kit.cli.verbs.bench_report import width
    from kit.flows.bench.report import write

    made = write(result.folder)
    if session.json:
        told = {"session": result.session.id, "folder": result.folder, "seconds": result.seconds,
                "failed": result.failed, "files": made.files, "summary": made.summary}  # fmt: skip
        session.show("bench", told, "")
        return
    session.terminal.say(summary_text(made.summary, width=width(session)))
    session.terminal.tell("\n".join(str(path) for path in made.files))
    for sample in result.failed:
        session.terminal.tell(f"kit: error: {sample.case}: {sample.failure}")


def listing(session: Session) -> int:
    from kit.cli.text import bench as benchtext
    from kit.flows.bench.listing import sessions

    found = sessions(session.folder)
    session.show("bench-sessions", found, benchtext.sessions(found))
    return 0


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
        "paced": args.paced,
        "step_ms": args.step_ms,
        "repeats": args.repeats,
        "timeout_s": args.case_timeout,
    }
    return BenchOptions(**{name: value for name, value in given.items() if value is not None})
