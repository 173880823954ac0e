"""kit tune on the command line: its verb, and what it does."""

# ruff: noqa: PLC0415  (a verb's own imports are paid by it alone)
from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from kit.cli.verbs.grammar import Option, Verb
from kit.cli.verbs.options import CLUSTER, FAILED, MEASURE

if TYPE_CHECKING:
    from kit.cli.session import Session

MINUTES = 5.0


def minutes(text: str) -> float:
    """Minutes from 1 to 120."""
    if not re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,2})?", text, re.ASCII) or not 1 <= float(text) <= 120:
        raise ValueError(f"'{text}' is not a number of minutes from 1 to 120")
    return float(text)


VERBS = (
    Verb(
        words=("tune",),
        purpose="Measure the cluster, and write the settings that gain into kit.yaml, each with its reason.",
        handler="tune.tune",
        group=MEASURE,
        options=(
            Option(flags=("--dry-run",), help="Measure and show what would be written, and write nothing."),
            Option(flags=("-f", "--force"), help="Change also what somebody has set by hand."),
            Option(
                flags=("--fp16",),
                help="Half precision for gradients on the wire may be written; it changes the numbers.",
            ),
            Option(flags=("--minutes",), value="N", kind=minutes, help="How long it may measure (default: 5)."),
            *CLUSTER,
        ),
        notes="It needs all slots of the hosts. What it wrote carries '# kit tune:' above it, and it may change that "
        "later; take that line away, and the setting is yours.",
        examples=("kit tune --dry-run", "kit tune --minutes 10", "kit tune --fp16", "kit tune --output json"),
        exits=(
            *FAILED,
            ("5", "the cluster is not deployed, or its slots are in use"),
            ("130", "interrupted; kit.yaml is as it was"),
        ),
    ),
)


def tune(session: Session) -> int:
    from kit.cli.text.tune import text
    from kit.config.settings import CONFIG_VARIABLE
    from kit.flows.tune.tune import TuneRequest, tune

    args = session.args
    named = args.config_file or session.environ.get(CONFIG_VARIABLE, "")
    file = Path(named).expanduser() if named else session.folder / "kit.yaml"
    request = TuneRequest(
        file=file, minutes=args.minutes or MINUTES, dry_run=args.dry_run, force=args.force, fp16=args.fp16
    )
    result = tune(session.context(), request)
    session.close()
    session.show("tune", result, "" if session.json else text(result))
    return 0
