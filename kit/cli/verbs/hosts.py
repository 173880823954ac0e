"""kit hosts: the cluster's hosts, and on which of them no new run is placed."""

# Each handler imports its own flow, so that no verb and no --help pays for another's.
# ruff: noqa: PLC0415
from __future__ import annotations

from typing import TYPE_CHECKING

from kit.cli import candidates
from kit.cli.verbs.grammar import Operand, Option, Verb
from kit.cli.verbs.options import CLUSTER, CLUSTERS, FAILED
from kit.cli.verbs.values import words
from kit.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.cli.session import Session
    from kit.model.queue import HostRows

WHICH = Operand(name="hosts", help="Hosts: gpu1,gpu3, gpu[1-4], head, or addresses", complete=candidates.hosts)
EXITS = (*FAILED, ("5", "not ready: nothing is deployed, or the image knows no queue"))


def _dialled(session: Session, act: Callable[..., HostRows]) -> HostRows:
    from kit.flows.run.dial import dialled

    context = session.context()
    with dialled(context) as door:
        return act(context, door=door)


def show(session: Session) -> int:
    from kit.cli.text import queue as text
    from kit.flows.queue.cordon import rows

    session.show("hosts", _dialled(session, rows), session.fitted(text.hosts))
    return 0


def cordon(session: Session) -> int:
    from kit.cli.text import queue as text
    from kit.flows.queue.cordon import cordon

    args = session.args
    if args.why is None:
        raise InputError(
            "kit hosts cordon needs a reason, for the others", hint=f"add --why 'its GPU 3 fails' after {args.hosts}"
        )
    result = _dialled(session, lambda context, door: cordon(context, args.hosts, args.why, door=door))
    session.show("hosts", result, session.fitted(text.hosts))
    return 0


def uncordon(session: Session) -> int:
    from kit.cli.text import queue as text
    from kit.flows.queue.cordon import uncordon

    result = _dialled(session, lambda context, door: uncordon(context, session.args.hosts, door=door))
    session.show("hosts", result, session.fitted(text.hosts))
    return 0


_LIST = Verb(
    words=("hosts",),
    purpose="Show the hosts, and on which of them no new run is placed",
    handler=show,
    group=CLUSTERS,
    options=CLUSTER,
    notes="For containers, GPUs and ranks, see kit ps.",
    examples=("kit hosts", "kit hosts --json"),
    exits=EXITS,
)

VERBS = (
    _LIST,
    _LIST._replace(
        words=("hosts", "list"),
        purpose="Show the hosts, as kit hosts does",
        notes="",
        examples=("kit hosts list",),
    ),
    Verb(
        words=("hosts", "cordon"),
        purpose="Place no new run on hosts; runs that are there go on",
        handler=cordon,
        group=CLUSTERS,
        operands=(WHICH,),
        options=(
            Option(flags=("--why",), value="TEXT", kind=words, help="Say why, for the others. Required"),
            *CLUSTER,
        ),
        notes="kit run leaves the hosts out, and refuses them if -H names them. Runs in line wait for other hosts. kit "
        "deploy keeps the list; kit doctor --cordon adds hosts with a finding that breaks runs.",
        examples=("kit hosts cordon gpu3 --why 'its GPU 1 has errors'", "kit hosts cordon 'gpu[3-4]' --why moved"),
        exits=EXITS,
    ),
    Verb(
        words=("hosts", "uncordon"),
        purpose="Place new runs on hosts again",
        handler=uncordon,
        group=CLUSTERS,
        operands=(WHICH,),
        options=CLUSTER,
        examples=("kit hosts uncordon gpu3",),
        exits=EXITS,
    ),
)
