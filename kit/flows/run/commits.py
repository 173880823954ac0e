"""Takes the snapshot of a run's code. A commit of a repository on the web is fetched by the head, if it can.

This machine fetches what the head cannot: from a repository that it does not reach, or for which the keys are here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kit.errors import KitError
from kit.events import Note, Reporter
from kit.flows.context import Context
from kit.flows.run.shipping import bring, from_host, lacking_of, raise_first, shipped, store_of, with_head
from kit.model.code import Snapshot
from kit.model.launch import ClusterRecord
from kit.model.repository import PREFIX, Repository, is_repository, repository
from kit.model.values import replace
from kit.remote.run.door import Door

if TYPE_CHECKING:
    from kit.remote.code.gatherer import Place


def snapshot_of(source: str, reporter: Reporter, context: Context | None = None) -> Snapshot:
    """Take the snapshot of a folder, or of git+URL@REF. Report if that takes long, or who fetches.

    `context` is that of a cluster whose head may fetch, or None.
    """
    if not is_repository(source):
        from kit.remote.code.snapshot import take  # noqa: PLC0415  (only where a run has code)

        return take(Path(source))
    from kit.remote.code import fetched, gathered, gatherer  # noqa: PLC0415

    def say(text: str) -> None:
        reporter.report(Note(text=text))

    wanted = repository(source)
    commit = fetched.commit_of(wanted)
    if context is not None and not fetched.is_here(wanted, commit) and gathered.is_for_hosts(wanted):
        known = gathered.recall(wanted, commit)
        if known is not None:
            return known
        try:
            return gathered.gather(wanted, commit, _place(context), say)
        except gatherer.NotGatheredError as error:
            say(f"code: {error.host} {error.message}; this machine fetches it")
    return fetched.here(wanted, commit, say)


def bring_taken(
    context: Context,
    door: Door,
    source: str,
    snapshot: Snapshot,
    *,
    cluster: ClusterRecord,
    hosts: Sequence[str],
    sure: bool = False,
) -> None:
    """Bring the snapshot of `source` to the head and to `hosts`, from where its files are (see `bring`)."""
    if snapshot.holder is not None and snapshot.git is not None:
        wanted = replace(repository(source), ref=snapshot.git.commit)
        if _bring_gathered(context, door, wanted, snapshot, cluster=cluster, hosts=hosts, sure=sure):
            return
        pinned = f"{PREFIX}{wanted.url}@{wanted.ref}"
        mine = snapshot_of(pinned, context.reporter)
        if mine.digest != snapshot.digest:
            raise KitError(
                f"the head and this machine fetched different files of {snapshot.source}",
                hint="clone the repository, and write code: FOLDER",
            )
        snapshot = mine
    bring(context, door, snapshot, cluster, hosts, sure=sure)


def _bring_gathered(
    context: Context,
    door: Door,
    wanted: Repository,
    snapshot: Snapshot,
    *,
    cluster: ClusterRecord,
    hosts: Sequence[str],
    sure: bool,
) -> bool:
    """Bring a snapshot whose files are in the head's store. Return False if the head cannot have it."""
    lacking = with_head(context, hosts) if sure else lacking_of(context, door, snapshot.digest, hosts)
    if not lacking:
        return True
    head = context.inventory.head.name
    if head in lacking and snapshot.holder != head:
        from kit.remote.code import gathered, gatherer  # noqa: PLC0415

        try:
            again = gathered.gather(wanted, wanted.ref, _place(context), lambda _: None)
        except gatherer.NotGatheredError as error:
            context.reporter.report(Note(text=f"code: {error.host} {error.message}; this machine fetches it"))
            return False
        if again.digest != snapshot.digest:
            return False
    if lacking != [head]:
        # The newest snapshot that all of them have.
        others = {name: have for name, have in (door.code or {}).items() if name != snapshot.digest}
        base = next((name for name, have in others.items() if {head, *lacking} <= set(have)), None)
        return from_host(context, snapshot.digest, head, cluster, lacking, base=base, door=door)
    from kit.remote.ship.porter.manifest import EMPTY  # noqa: PLC0415

    # A pack with nothing but the snapshot's name: the head writes down that it has it.
    name = replace(snapshot, manifest=EMPTY)
    failures, without = shipped(context, name, EMPTY, cluster, lacking, door=door)
    raise_first(context, failures, lacking)
    return not without


def _place(context: Context) -> Place:
    from kit.remote.code.gatherer import Place  # noqa: PLC0415

    return Place(login=context.logins[context.inventory.head.name], store=store_of(context.spec.name))
