"""kit doctor: what is wrong with the hosts, their GPUs and the network between them."""

# Each handler imports its own flow, so that no verb and no --help pays for another's.
# ruff: noqa: PLC0415
from __future__ import annotations

from typing import TYPE_CHECKING

from kit.cli import candidates
from kit.cli.verbs.grammar import Option, Verb
from kit.cli.verbs.options import CLUSTER, CLUSTERS, HOSTS
from kit.cli.verbs.values import words
from kit.errors import InputError

if TYPE_CHECKING:
    from kit.cli.screen.terminal import Style
    from kit.cli.session import Session


def doctor(session: Session) -> int:
    if session.args.explain is not None:
        return _explain(session, session.args.explain)
    from kit.cli.text import doctor as text
    from kit.flows.doctor.doctor import doctor

    context = session.context()
    result = doctor(context, hosts=session.args.hosts, pairing=session.args.pairs)
    terminal = session.terminal

    def paint(text: str, style: Style) -> str:
        return terminal.paint(text, style, terminal.out)

    session.show("doctor", result, lambda value: text.findings(value, verbose=session.args.verbose, paint=paint))
    if session.args.cordon:
        from kit.cli.text.queue import hosts
        from kit.flows.queue.cordon import cordon_broken

        session.show("hosts", cordon_broken(context, result), session.fitted(hosts))
    return result.exit_code


def _explain(session: Session, word: str) -> int:
    """Print the page of one check. It contacts no host and reads no file."""
    from kit.cli.text import doctor as text
    from kit.config.words import listed, near, shown
    from kit.plan.doctor.checks import CHECKS

    check = next((check for check in CHECKS if check.id == word.strip().lower()), None)
    if check is None:
        ids = [check.id for check in CHECKS]
        similar = near(word, ids)
        hint = f"did you mean {listed(similar)}?" if similar else f"checks: {', '.join(ids)}"
        raise InputError(f"kit doctor has no check {shown(word)}", hint=hint)
    value = {name: getattr(check, name) for name in text.EXPLAINED}
    session.show("doctor-check", value, text.page(check))
    return 0


VERBS = (
    Verb(
        words=("doctor",),
        purpose="Name what is wrong with the hosts, their GPUs and their network, and what to type",
        handler=doctor,
        group=CLUSTERS,
        options=(
            HOSTS,
            Option(
                flags=("--pairs",),
                value="WHICH",
                choices=("all", "quick", "none"),
                help="Measure between all pairs of hosts, between a few (quick) or not at all "
                "(default: all up to 16 hosts, then quick)",
            ),
            Option(
                flags=("--cordon",),
                help="Then cordon hosts with a finding that breaks runs, so that no new run is placed there",
            ),
            Option(
                flags=("--explain",),
                value="ID",
                kind=words,
                complete=candidates.check,
                help="Print what a check finds, what it leads to and what to type, without contacting hosts",
            ),
            *CLUSTER,
        ),
        notes="Without --cordon, kit doctor only reads. It needs no engine and no deployed cluster; where a cluster "
        "runs, it looks into its nodes, too. A finding breaks runs, slows them, or is to watch. A host that cannot be "
        "examined is a finding that breaks, and hides no other host.",
        examples=(
            "kit doctor",
            "kit doctor -H 'gpu[1-4]' --pairs none",
            "kit doctor --pairs none --cordon",
            "kit doctor --explain own-name",
            "kit doctor --json",
        ),
        exits=(
            ("0", "nothing was found, or only something to watch"),
            ("2", "a flag, hosts or kit.yaml is wrong"),
            ("3", "something slows runs"),
            ("4", "something breaks runs, a host cannot be examined, or a check failed because of a bug in kit"),
        ),
    ),
)
