"""What you do with what runs made, and with other files on hosts: pull, cp, runs rm."""

# Each handler imports its own flow, so that no verb and no --help pays for another's.
# ruff: noqa: PLC0415
from __future__ import annotations

from typing import TYPE_CHECKING

from kit.cli import candidates
from kit.cli.verbs.grammar import Operand, Option, Verb
from kit.cli.verbs.options import CLUSTER, DRY_RUN, FAILED, MUST_YES, WORK
from kit.cli.verbs.values import age
from kit.errors import ArrayMeant, InputError, StepError

if TYPE_CHECKING:
    from kit.cli.session import Session
    from kit.model.results import PullResult, RunSize


def remove(session: Session) -> int:
    from kit.cli.text import results as text
    from kit.flows.run.folders import remove_runs

    args = session.args
    if not args.run and args.older_than is None:
        raise InputError("the id of a run is missing", hint="list the runs: kit runs; or say which by: --older-than 7d")
    if not args.dry_run:
        session.needs_yes()

    def agreed(runs: tuple[RunSize, ...]) -> bool:
        session.close()
        session.terminal.tell(text.run_sizes(runs, width=session.told_width))
        return session.confirms(f"Delete {text.counted(runs)} and what they made from every host?")

    result = remove_runs(session.context(), args.run, older_s=args.older_than, dry_run=args.dry_run, confirm=agreed)
    if result is None:
        session.terminal.tell("Nothing was removed.")
        return 0
    session.show("runs-rm", result, session.fitted(text.removed))
    return 0


def pull(session: Session) -> int:
    from pathlib import Path

    from kit.flows.run.pull import pull

    args, context = session.args, session.context()
    try:
        return _brought(session, pull(context, args.what, here=Path(), all_checkpoints=args.all_checkpoints))
    except ArrayMeant as meant:
        from kit.flows.run.pull import words_of_each

        requests = words_of_each(meant.runs, args.what)
    results = (pull(context, words, here=Path(), all_checkpoints=args.all_checkpoints) for words in requests)
    return max([_brought(session, result) for result in results])


def _brought(session: Session, result: PullResult, kind: str = "pull") -> int:
    """Print what came home. Return a failure if a host or a file is missing."""
    from kit.cli.text import results as text

    session.show(kind, result, text.pulled)
    notes = text.pull_notes(result)
    if notes:
        session.terminal.tell(notes)
    return StepError.exit_code if result.missed or any(host.failed for host in result.hosts) else 0


def copy(session: Session) -> int:
    from pathlib import Path

    from kit.flows.cluster.copy import copy
    from kit.model.results import PullResult

    args = session.args
    result = copy(session.context(), args.source, args.dest, vm=args.vm, here=Path())
    if isinstance(result, PullResult):
        return _brought(session, result, kind="cp")
    from kit.cli.text import results as text

    session.show("cp", result, text.copied)
    return 0


VERBS = (
    Verb(
        words=("pull",),
        purpose="Bring home what a run made on all its hosts: outputs, checkpoints, working folder, log",
        handler=pull,
        group=WORK,
        operands=(
            Operand(
                name="what",
                help="A run, paths in its folder, and a folder at home: RUN [PATH…] [DEST]",
                optional=True,
                complete=candidates.run,
                many=True,
            ),
        ),
        options=(
            Option(
                flags=("--all-checkpoints",),
                help="Of the folder of --checkpoint-dir, bring files that did not change during the run, too",
            ),
            *CLUSTER,
        ),
        notes="RUN is an id, the beginning of one, or latest, and is only optional without other words. A PATH begins "
        "with output, checkpoints, work or log, and may be a pattern: 'output/*.keras', '**/best'. Any other last word "
        "is the folder at home (default: kit-RUN). With the id of an array, kit brings each of its runs, into "
        "DEST/kit-RUN if there is a DEST. Files keep their names. Where two hosts have the same name, both go "
        "into folders with the hosts' names. A second pull fetches only what is missing or has changed, and continues "
        "files that came in part. Of the folder that kit run --checkpoint-dir named, kit brings the files that changed "
        "during the run, and names how many others there are.",
        examples=(
            "kit pull",
            "kit pull 20261121-10 output",
            "kit pull latest 'checkpoints/*.keras' log ./results",
        ),
        exits=(
            ("2", "a flag, hosts or kit.yaml is wrong"),
            ("3", "no host can be reached"),
            ("4", "a host or a file failed, and the others came; or this machine cannot store the files"),
        ),
    ),
    Verb(
        words=("cp",),
        purpose="Copy files or folders from containers to this machine, or from here into them",
        handler=copy,
        group=WORK,
        operands=(
            Operand(
                name="source", help="A path of this machine, or HOST:PATH; HOST may be gpu[1-4], head", optional=False
            ),
            Operand(name="dest", help="The other one of the two"),
        ),
        options=(Option(flags=("--vm",), help="Use the file system of the VM, instead of its container's"), *CLUSTER),
        notes="Folders are copied with all that is in them. As with docker cp, an existing folder gets the copy "
        "inside; otherwise DEST is the new name. As with cp, a copy replaces a file of the same name, and kit does not "
        "ask. From several hosts, each gets a folder with its name in DEST. PATH is a whole path. A path of this "
        "machine that has a colon must begin with ./",
        examples=(
            "kit cp gpu1:/data/model.keras .",
            "kit cp 'gpu[1-4]:/var/log/nvidia.log' logs --vm",
            "kit cp vocabulary.txt 'gpu[1-4]:/data/'",
        ),
        exits=FAILED,
    ),
    Verb(
        words=("runs", "rm"),
        purpose="Delete runs with all that they made: records, logs, outputs, checkpoints",
        handler=remove,
        group=WORK,
        operands=(
            Operand(
                name="run",
                help="Ids of runs, or the beginnings of ids",
                optional=True,
                complete=candidates.run,
                many=True,
            ),
        ),
        options=(
            Option(
                flags=("--older-than",), value="TIME", kind=age, help="Also all runs that began before that: 7d, 12h"
            ),
            DRY_RUN,
            MUST_YES,
            *CLUSTER,
        ),
        notes="kit shows the sizes, names the owners of other people's runs, and asks. It removes nothing if a run "
        "that you named is active, or if it cannot reach a host.",
        examples=("kit runs rm 20261121-101500-3fa2", "kit runs rm --older-than 7d --dry-run"),
        exits=(*FAILED, ("5", "one of the runs is active")),
    ),
)
