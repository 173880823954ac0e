"""kit lock and kit audit: who changes the cluster, and who changed it."""

# Each handler imports its own flow, so that no verb and no --help pays for another's.
# ruff: noqa: PLC0415
from __future__ import annotations

from typing import TYPE_CHECKING

from kit.cli.verbs.grammar import Option, Verb
from kit.cli.verbs.options import CLUSTER, CLUSTERS, FAILED, YES
from kit.cli.verbs.values import count

if TYPE_CHECKING:
    from kit.cli.session import Session

AUDIT_LINES = 20


def lock_status(session: Session) -> int:
    from kit.cli.text import lock as text
    from kit.flows.cluster.lock import lock_status

    session.show("lock", lock_status(session.context()), text.lock)
    return 0


def lock_release(session: Session) -> int:
    from kit.cli.text import lock as text
    from kit.flows.cluster.lock import lock_release, lock_status

    context = session.context()
    status = lock_status(context)
    if status.state == "held" and not session.confirms(f"{text.lock(status)}\nTake the lock away?"):
        session.terminal.tell("Nothing was changed.")
        return 0
    lock_release(context, status)
    session.show("lock-released", status, text.lock_released)
    return 0


def audit(session: Session) -> int:
    from kit.cli.text import lock as text
    from kit.flows.cluster.audit import read_audit

    result = read_audit(session.context(), session.args.last or AUDIT_LINES)
    session.close()
    if not session.json:
        session.terminal.say(text.audit(result, width=session.width))
    for entry in result.entries:
        session.emit("audit", entry)
    return 0


VERBS = (
    Verb(
        words=("lock", "status"),
        purpose="Show who is changing the cluster: deploy and down hold its lock",
        handler=lock_status,
        group=CLUSTERS,
        options=CLUSTER,
        examples=("kit lock status", "kit lock status --output json"),
        exits=FAILED,
    ),
    Verb(
        words=("lock", "release"),
        purpose="Take the lock from its holder, whose deploy or down stops before its next step",
        handler=lock_release,
        group=CLUSTERS,
        options=(YES, *CLUSTER),
        notes="You do not need this after a kit that was killed or lost its connection: that lock expires within 30 s.",
        examples=("kit lock release", "kit lock release --yes"),
        exits=(*FAILED, ("5", "the lock has another holder by now")),
    ),
    Verb(
        words=("audit",),
        purpose="Show who changed the cluster, when and how: deploys, released locks, and what kit setup did",
        handler=audit,
        group=CLUSTERS,
        options=(
            Option(flags=("-n", "--last"), value="N", kind=count, help="Show only the last N changes (default: 20)"),
            *CLUSTER,
        ),
        notes="The audit is a file on the head's VM, and each VM has one of kit setup. kit down keeps them.",
        examples=("kit audit", "kit audit -n 5 --output json"),
        exits=FAILED,
    ),
)
