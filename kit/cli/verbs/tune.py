"""kit tune: measure the cluster, and write the settings that make it faster."""

# Each handler imports its own flow, so that no verb and no --help pays for another's.
# ruff: noqa: PLC0415
from __future__ import annotations

from typing import TYPE_CHECKING

from kit.cli.verbs.grammar import Option, Verb
from kit.cli.verbs.options import CLUSTER, FAILED, MEASURE, NOW
from kit.cli.verbs.values import minutes

if TYPE_CHECKING:
    from kit.cli.session import Session

MINUTES = 5.0


def tune(session: Session) -> int:
    from kit.cli.text import tune as text
    from kit.config.paths import CONFIG_VARIABLE, expanded
    from kit.flows.tune.tune import TuneRequest, tune

    args = session.args
    named = args.config_file or session.environ_of_files.get(CONFIG_VARIABLE, "")
    file = expanded(named) if named else session.folder / "kit.yaml"
    request = TuneRequest(
        file=file, minutes=args.minutes or MINUTES, dry_run=args.dry_run, force=args.force, fp16=args.fp16, now=args.now
    )
    session.show("tune", tune(session.context(), request), session.fitted(text.text))
    return 0


VERBS = (
    Verb(
        words=("tune",),
        purpose="Measure the cluster, and write faster settings into kit.yaml, each with its reason",
        handler=tune,
        group=MEASURE,
        options=(
            Option(flags=("--dry-run",), help="Measure, show the settings, and write nothing"),
            Option(flags=("-f", "--force"), help="Replace settings that you wrote by hand, too"),
            Option(
                flags=("--fp16",),
                help="Allow half precision for gradients on the wire, which changes the numbers",
            ),
            Option(flags=("--minutes",), value="N", kind=minutes, help="Measure for at most N minutes (default: 5)"),
            NOW,
            *CLUSTER,
        ),
        notes="kit tune needs all slots of the hosts. It writes '# kit tune:' above each setting, and may change that "
        "setting later. Remove the comment to keep the setting.",
        examples=("kit tune --dry-run", "kit tune --minutes 10", "kit tune --fp16", "kit tune --output json"),
        exits=(
            *FAILED,
            ("5", "the cluster is not deployed, or its slots are in use"),
            ("130", "interrupted; kit.yaml is unchanged"),
        ),
    ),
)
