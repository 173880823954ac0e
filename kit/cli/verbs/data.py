"""kit data: stage data sets on all hosts or mount them, list, verify and remove them."""

# Each handler imports its own flow, so that no verb and no --help pays for another's.
# ruff: noqa: PLC0415
from __future__ import annotations

from typing import TYPE_CHECKING

from kit.cli import candidates
from kit.cli.verbs.grammar import Operand, Option, Verb
from kit.cli.verbs.options import CLUSTER, DRY_RUN, MUST_YES, WORK
from kit.cli.verbs.values import bytes_per_second
from kit.errors import StepError

if TYPE_CHECKING:
    from kit.cli.session import Session
    from kit.model.datasets import MountResult, RemovedData, StageResult, VerifyResult


def stage(session: Session) -> int:
    from kit.cli.text import data as text
    from kit.flows.data import stage as flow

    args = session.args
    if args.dry_run:
        sets = flow.preview(session.context(), args.data)
        session.show("data-plan", sets, text.previews)
        missed = sets[0].missed
        if missed:
            session.terminal.tell(text.missed(missed))
        return StepError.exit_code if missed else 0

    def show(result: StageResult) -> None:
        session.close()
        session.emit("data-staged", result)
        if not session.json:
            session.terminal.say(text.staged(result))

    flow.stage(session.context(), args.data, limit=args.limit or 0, detach=args.detach, on_result=show)
    return 0


def mount(session: Session) -> int:
    from kit.cli.text import data as text
    from kit.flows.data.mount import mount as flow

    def show(result: MountResult) -> None:
        session.close()
        session.emit("data-mounted", result)
        if not session.json and (result.hosts or result.restarted):
            session.terminal.say(text.mounted(result))

    flow(session.context(), session.args.data, on_result=show)
    return 0


def listing(session: Session) -> int:
    from kit.cli.text import data as text
    from kit.flows.data.listing import listing

    result = listing(session.context())
    session.show("data", result, session.fitted(text.listing))
    if result.missed:
        session.terminal.tell(text.missed(result.missed))
    return StepError.exit_code if result.missed else 0


def verify(session: Session) -> int:
    from kit.cli.text import data as text
    from kit.flows.data.verify import verify

    def show(result: VerifyResult) -> None:
        session.close()
        session.emit("data-verified", result)
        if not session.json:
            session.terminal.say(text.verified(result))

    results = verify(session.context(), session.args.data, on_result=show)
    return StepError.exit_code if any(result.wrong or result.missed for result in results) else 0


def remove(session: Session) -> int:
    from kit.cli.text import data as text
    from kit.flows.data.remove import remove_data

    args = session.args
    if not args.dry_run:
        session.needs_yes()

    def agreed(sets: tuple[RemovedData, ...]) -> bool:
        session.close()
        session.terminal.tell(text.removable(sets, width=session.told_width))
        return session.confirms(text.question(sets))

    result = remove_data(session.context(), args.data, dry_run=args.dry_run, confirm=agreed)
    if result is None:
        session.terminal.tell("Nothing was removed.")
        return 0
    session.show("data-rm", result, session.fitted(text.removed))
    return 0


def stop(session: Session) -> int:
    from kit.cli.text import data as text
    from kit.flows.data.remove import stop

    session.show("data-stop", stop(session.context(), session.args.data), text.stopped)
    return 0


_EXITS = (
    ("2", "a flag, hosts or kit.yaml is wrong"),
    ("3", "a host cannot be reached"),
)
_NOT_DEPLOYED = ("5", "not ready: nothing is deployed, or not with this data set")
_NAMES = Operand(
    name="data",
    help="Names of data sets in kit.yaml (default: all that are staged)",
    optional=True,
    complete=candidates.data,
    many=True,
)

VERBS = (
    Verb(
        words=("data", "stage"),
        purpose="Bring data sets to the disk or memory of every host; only what is missing or has changed",
        handler=stage,
        group=WORK,
        operands=(_NAMES,),
        options=(
            Option(
                flags=("--limit",),
                value="RATE",
                kind=bytes_per_second,
                help="Use at most this much of each host's link, such as 1gbit, so that runs keep the rest",
            ),
            Option(flags=("-d", "--detach"), help="Return when the hosts have begun, and leave them staging"),
            DRY_RUN,
            *CLUSTER,
        ),
        notes="The hosts read the source once together: each reads another part, and passes it on to the others. kit "
        "shows how far each host is, and Ctrl-C ends the staging. What came is kept: the same command goes on, after "
        "any end. If the data set is already being staged, kit watches that; Ctrl-C then only ends the watching. Keys "
        "of the source come from this machine, and the hosts keep them in memory alone.",
        examples=(
            "kit data stage",
            "kit data stage imagenet --limit 1gbit",
            "kit data stage -d imagenet && kit data ls",
        ),
        exits=(
            *_EXITS,
            ("4", "the source or a host failed; other hosts may be complete"),
            _NOT_DEPLOYED,
            ("130", "interrupted; what came is kept"),
        ),
    ),
    Verb(
        words=("data", "mount"),
        purpose="Mount stores with stage: none on every host; what is mounted stays",
        handler=mount,
        group=WORK,
        operands=(
            Operand(
                name="data",
                help="Names of data sets in kit.yaml (default: all stores with stage: none)",
                optional=True,
                complete=candidates.data,
                many=True,
            ),
        ),
        options=CLUSTER,
        notes="rclone mounts the store on each VM, in a separate container, and nodes write to it only with "
        "write: true. The mount stays until kit data rm, kit down or a reboot. Keys of the source come from this "
        "machine, and each host keeps them in memory alone. A node that started while an earlier mount was there is "
        "restarted, unless a run is active.",
        examples=("kit data mount", "kit data mount imagenet && kit data ls"),
        exits=(*_EXITS, ("4", "the source or a host failed; other hosts may have it"), _NOT_DEPLOYED),
    ),
    Verb(
        words=("data", "ls"),
        purpose="Show data sets: which hosts have them, their size, age and state",
        handler=listing,
        group=WORK,
        options=CLUSTER,
        notes="Data sets that hosts still have, although kit.yaml does not name them any more, are shown too.",
        examples=("kit data ls", "kit data ls --output json"),
        exits=(*_EXITS, ("4", "a host could not be asked, or a step failed on it")),
    ),
    Verb(
        words=("data", "verify"),
        purpose="Read staged files on every host again, and compare them with their checksums",
        handler=verify,
        group=WORK,
        operands=(_NAMES,),
        options=CLUSTER,
        notes="kit names files that are missing, or have another size or other bytes, and files that are not in the "
        "data set. The next kit data stage brings missing and damaged files again. It leaves files that are not in the "
        "data set: to remove them, run kit data rm first.",
        examples=("kit data verify", "kit data verify imagenet"),
        exits=(*_EXITS, ("4", "a file is wrong, or a host failed"), ("5", "not ready: it is not staged")),
    ),
    Verb(
        words=("data", "rm"),
        purpose="Delete what was staged of data sets from every host, or unmount them",
        handler=remove,
        group=WORK,
        operands=(Operand(name="data", help="Names of data sets", complete=candidates.data, many=True),),
        options=(DRY_RUN, MUST_YES, *CLUSTER),
        notes="kit shows what is there, and asks. It removes nothing while the data set is being staged, while a run "
        "is active on the cluster, while a run in line has it in --data, or if it cannot reach a host. It never "
        "touches the source.",
        examples=("kit data rm imagenet", "kit data rm imagenet --dry-run"),
        exits=(
            *_EXITS,
            ("4", "a step failed on a host"),
            ("5", "a run is active or waits for it, or it is being staged"),
        ),
    ),
    Verb(
        words=("data", "stop"),
        purpose="End a staging that was left running; what came is kept",
        handler=stop,
        group=WORK,
        operands=(Operand(name="data", help="The name of a data set", complete=candidates.data),),
        options=CLUSTER,
        examples=("kit data stop imagenet",),
        exits=(*_EXITS, ("4", "a step failed on a host")),
    ),
)
