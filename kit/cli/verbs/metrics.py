"""kit metrics: what hosts do, for Prometheus."""

# Each handler imports its own flow, so that no verb and no --help pays for another's.
# ruff: noqa: PLC0415
from __future__ import annotations

from typing import TYPE_CHECKING

from kit.cli import candidates
from kit.cli.verbs.grammar import Option, Verb
from kit.cli.verbs.lasting import until_interrupted
from kit.cli.verbs.options import CLUSTER, FAILED, WORK
from kit.cli.verbs.values import interval, listen, words
from kit.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kit.cli.session import Session
    from kit.model.metrics import Exported

EVERY_S = 5.0


def metrics(session: Session) -> int:
    from kit.cli.text import metrics as text
    from kit.config.paths import expanded
    from kit.flows import metrics as flow

    args = session.args
    _check(session)
    context = session.context()
    every = args.every or EVERY_S
    if args.listen is None and args.textfile is None:
        shown = flow.text(context)
        session.show("metrics", {"text": shown}, shown.rstrip())
        return 0

    def written(value: Exported) -> None:
        session.show("metrics", value, text.exported)

    if args.once:
        flow.write(context, expanded(args.textfile), every=every, once=True, ready=written)
        return 0

    def work(ready: Callable[[Any], None]) -> None:
        if args.listen is not None:
            flow.serve(context, args.listen, every=every, anywhere=args.all_addresses, ready=ready)
        else:
            flow.write(context, expanded(args.textfile), every=every, once=False, ready=ready)

    return until_interrupted(session, "metrics", work, text.exported)


def _check(session: Session) -> None:
    args = session.args
    if args.listen is not None and args.textfile is not None:
        raise InputError("--listen and --textfile exclude each other", hint="start kit metrics twice")
    if args.once and args.textfile is None:
        raise InputError("--once needs --textfile", hint="kit metrics without flags prints the metrics once")
    if args.all_addresses and args.listen is None:
        raise InputError("--all-addresses needs --listen", hint="write: --listen 0.0.0.0:9400 --all-addresses")


VERBS = (
    Verb(
        words=("metrics",),
        purpose="Give Prometheus what hosts, GPUs and ranks do",
        handler=metrics,
        group=WORK,
        options=(
            Option(
                flags=("--listen",),
                value="ADDRESS:PORT",
                kind=listen,
                help="Serve the metrics there until Ctrl-C: 127.0.0.1:9400, or 9400 for the loopback",
            ),
            Option(
                flags=("--all-addresses",),
                help="Allow --listen 0.0.0.0:PORT: everybody who can reach this machine can read the metrics",
            ),
            Option(
                flags=("--textfile",),
                value="FILE",
                kind=words,
                complete=candidates.files,
                help="Write the metrics into this file until Ctrl-C, for node_exporter's textfile collector: kit.prom",
            ),
            Option(flags=("--once",), help="Write the file once"),
            Option(flags=("--every",), value="TIME", kind=interval, help="Read the hosts this often (default: 5s)"),
            *CLUSTER,
        ),
        notes="Without --listen and --textfile, kit prints the metrics once. kit reads each host over one kept "
        "connection, and needs no agent there. A host that fails has kit_host_up 0, and is tried again. A value that a "
        "host does not have is missing. docs/metrics.md lists all metrics; docs/grafana/kit.json is a dashboard.",
        examples=(
            "kit metrics --listen 127.0.0.1:9400",
            "kit metrics --textfile /var/lib/node_exporter/kit.prom --every 15s",
            "kit metrics",
        ),
        exits=FAILED,
    ),
)
