"""kit hosts add and kit hosts drop: the hosts of a living elastic run."""

# Each handler imports its own flow, so that no verb and no --help pays for another's.
# ruff: noqa: PLC0415
from __future__ import annotations

from typing import TYPE_CHECKING

from kit.cli import candidates
from kit.cli.verbs.grammar import Option, Verb
from kit.cli.verbs.hosts import WHICH
from kit.cli.verbs.options import CLUSTER, FAILED, WORK
from kit.cli.verbs.values import words

if TYPE_CHECKING:
    from kit.cli.session import Session

_RUN = Option(
    flags=("--run",),
    value="RUN",
    kind=words,
    complete=candidates.run,
    help="Change this run: its id, or the beginning of it (default: the latest, if you started it)",
)
_EXITS = (*FAILED[:2], ("5", "the run has ended or is not elastic, or other runs hold the slots"))


def add(session: Session) -> int:
    from kit.cli.text import run as text
    from kit.flows.run.hosts import add_hosts

    record = add_hosts(session.context(), session.args.run, session.args.hosts)
    session.show("run", record, text.places)
    return 0


def drop(session: Session) -> int:
    from kit.cli.text import run as text
    from kit.config.selection import select_hosts
    from kit.flows.run.hosts import drop_hosts

    context, hosts = session.context(), session.args.hosts
    record = drop_hosts(context, session.args.run, hosts)
    # The run has these hosts until its next commit.
    leaving = select_hosts(context.inventory, hosts).names
    session.show("run", record, lambda run: text.places(run, leaving))
    return 0


VERBS = (
    Verb(
        words=("hosts", "add"),
        purpose="Add hosts to a run that was started with --elastic",
        handler=add,
        group=WORK,
        operands=(WHICH,),
        options=(_RUN, *CLUSTER),
        notes="The run holds all free slots of the hosts from now on. Its ranks start there at its next commit, up to "
        "its --max-np. Without --max-np there is no limit.",
        examples=("kit hosts add gpu5", "kit hosts add 'gpu[5-6]' --run 20261121-10"),
        exits=_EXITS,
    ),
    Verb(
        words=("hosts", "drop"),
        purpose="Take hosts from a run that was started with --elastic",
        handler=drop,
        group=WORK,
        operands=(WHICH,),
        options=(_RUN, *CLUSTER),
        notes="The ranks there end at the run's next commit, and then the run gives the slots back. At least --min-np "
        "slots must stay.",
        examples=("kit hosts drop gpu5",),
        exits=_EXITS,
    ),
)
