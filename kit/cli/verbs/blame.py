"""kit blame: name the rank, the host and the reason that slow a run."""

# Each handler imports its own flow, so that no verb and no --help pays for another's.
# ruff: noqa: PLC0415
from __future__ import annotations

from typing import TYPE_CHECKING

from kit.cli.verbs.grammar import Option, Verb
from kit.cli.verbs.options import CLUSTER, MEASURE, RUN
from kit.cli.verbs.values import span
from kit.model.names import LATEST

if TYPE_CHECKING:
    from kit.cli.session import Session

BLAMED = 3


def blame(session: Session) -> int:
    from kit.cli.text import blame as text
    from kit.flows.blame import blame

    args = session.args
    word = None if args.run == LATEST else args.run
    result = blame(session.context(), word, for_s=getattr(args, "for"))
    session.remember([result.run])
    session.show("blame", result, lambda value: text.text(value, width=session.width, verbose=args.verbose))
    return BLAMED if result.culprit is not None else 0


VERBS = (
    Verb(
        words=("blame",),
        purpose="Name the rank, the host and the reason that slow a run, and what it costs",
        handler=blame,
        group=MEASURE,
        operands=(RUN,),
        options=(
            Option(
                flags=("--for",),
                value="TIME",
                kind=span,
                help="Watch the run for this time (default: 10s, and up to 1m if its steps are long)",
            ),
            *CLUSTER,
        ),
        notes="The rank that the others wait for is the one that waits least. kit reads that from Horovod on each "
        "rank, and the reason from its host: cores, steal, CPU limits, GPUs, disks, connections. Nobody is blamed "
        "unless the same one is late again and again, and costs the others 5 % of their time. Without Horovod, kit "
        "compares the hosts alone. It changes nothing.",
        examples=("kit blame", "kit blame 20261121-10 --for 30s", "kit blame --json"),
        exits=(
            ("0", "nobody slows the run, or kit cannot tell"),
            ("2", "a flag, hosts or kit.yaml is wrong"),
            ("3", "somebody slows the run, or a host cannot be reached"),
            ("4", "a step failed on a host"),
            ("5", "the run does not run"),
        ),
    ),
)
