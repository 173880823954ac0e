"""kit pull: the files that a run wrote into the folder of --checkpoint-dir, which hosts and other runs may share.

The folder is one of the nodes, so kit reads it there. A link leads only where the run's ranks could go, too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import closing

from msgspec import Struct, field

from kit.errors import Interrupted, KitError, NotReadyError
from kit.events import Phase, Warned
from kit.flows.context import Context
from kit.flows.run.bring import bring, in_container, kept_apart
from kit.model import names
from kit.model.answer import answer_of
from kit.model.host import Host
from kit.model.results import Clock, Entry, OtherFiles, Pulled, SharedListing
from kit.model.run import RunRecord
from kit.model.values import replace
from kit.plan.run import pulling
from kit.plan.run.hosts import recorded_hosts, run_hosts
from kit.plan.run.records import shared_checkpoints, stored_record
from kit.remote.results import far
from kit.remote.results.store import Store
from kit.remote.scripts import script
from kit.remote.ssh import fanout
from kit.remote.ssh.transport import Transport

_TAKEN = "the run has a file of this name in its own folder, too"
# What a host says of a folder that root may not read, as on NFS with root_squash: it may be of other people.
_DENIED = "Permission denied"


class Folder(Struct, frozen=True, kw_only=True):
    """The folder of --checkpoint-dir of a run: HOST:PATH, and the hosts that may have files of the run there.

    `clock` is the time of the head, which wrote when the run began and ended.
    """

    run: RunRecord
    place: str
    hosts: tuple[str, ...]
    clock: Clock

    @property
    def path(self) -> str:
        return self.place.partition(":")[2]


class Brought(Struct, frozen=True, kw_only=True):
    """What came from the folder of --checkpoint-dir, what did not, and what kit left there."""

    pulled: Mapping[str, Pulled] = field(default_factory=dict)
    missed: Mapping[str, KitError] = field(default_factory=dict)
    others: tuple[OtherFiles, ...] = ()


class RunHosts(Struct, frozen=True, kw_only=True):
    """The hosts in the record of a run. `final`: no other host has taken part, or will."""

    names: tuple[str, ...]
    final: bool


def folder_of(context: Context, run: str, missed: Collection[str]) -> Folder | None:
    """Return the folder that --checkpoint-dir named. Return None without that option, or if the head does not say.

    The run's own files come without its record. So what is wrong with that is no reason to fail.
    """
    head = context.inventory.head
    if head.name in missed:
        return None
    try:
        with closing(context.connect(head)) as transport:
            record = _file(context, transport, run, "record.json")
            with answer_of(head.name, "the record of a run"):
                place = shared_checkpoints(*stored_record(run, record, None, live=True))
                if not place:
                    return None
                # Missing until the run ends.
                end = _file(context, transport, run, "end.json")
                stored, fields = stored_record(run, record, end, live=not end)
            clock = far.clock(transport)
    except Interrupted:
        raise
    except KitError:
        return None
    hosts = run_hosts(stored, fields, context.inventory)
    known = [name for name in context.inventory.names if hosts is None or name in hosts]
    return Folder(run=stored, place=place, hosts=tuple(name for name in known if name not in missed), clock=clock)


def hosts_of(context: Context, run: str) -> RunHosts | None:
    """Return the hosts of a run as its record has them. Return None if the head does not say."""
    try:
        with closing(context.connect(context.inventory.head)) as transport:
            record, end = (_file(context, transport, run, name) for name in ("record.json", "end.json"))
        with answer_of(context.inventory.head.name, "the record of a run"):
            stored, fields = stored_record(run, record, end or None, live=not end)
    except Interrupted:
        raise
    except KitError:
        return None
    # A new attempt may run on other hosts.
    final = stored.attempt <= 1 and bool(end) and run_hosts(stored, fields, context.inventory) is not None
    return RunHosts(names=tuple(recorded_hosts(stored, fields, context.inventory)), final=final)


def _file(context: Context, transport: Transport, run: str, name: str) -> str:
    argv = script("runs", names.folder(context.spec.name), "read", run, name)
    return transport.run(argv, timeout_s=30).stdout.decode(errors="replace")


def bring_checkpoints(
    context: Context,
    folder: Folder,
    patterns: Sequence[str],
    store: Store,
    *,
    taken: Collection[str],
    private: bool,
    all_files: bool,
) -> Brought:
    """Fetch the files that changed during the run, or with `all_files` every file. See `bring`.

    `taken` are the names at home that the run's own files have.
    """
    context.reporter.report(Phase(name="checkpoints", hosts=folder.hosts))
    commands = {name: in_container(context, context.host(name)) for name in folder.hosts}

    def look(host: Host) -> SharedListing:
        with closing(context.connect(host)) as transport:
            changed = pulling.ALWAYS
            if not all_files:
                offset = pulling.clock_offset(folder.clock, far.clock(transport))
                changed = pulling.during(folder.run, offset)
            return far.shared_files(
                transport, folder.path, changed, commands[host.name], prefix=f"{names.CHECKPOINTS}/"
            )

    outcome = fanout.each([context.host(name) for name in folder.hosts], look)
    missed = dict(outcome.failures)
    entries: dict[str, tuple[Entry, ...]] = {}
    skipped: dict[str, dict[str, str]] = {}
    failed: dict[str, Mapping[str, str]] = {}
    for host, listed in pulling.once(outcome.results).items():
        one = pulling.sorted_out(listed, patterns, (names.CHECKPOINTS,))
        closed = {path: why for path, why in one.failed.items() if why == _DENIED}
        own = {entry.path: _TAKEN for entry in one.entries if entry.path in taken}
        skipped[host] = {**one.skipped, **closed, **own}
        failed[host] = {path: why for path, why in one.failed.items() if path not in closed}
        entries[host] = tuple(entry for entry in one.entries if entry.path not in taken)
        if not outcome.results[host].exists:
            skipped[host][names.CHECKPOINTS] = f"the node has no folder {folder.path}"
    if any(entries.values()):
        # What is here counts, so no other pull may write now.
        store.take()
    kept = {
        # Below the name of a host, there may be files of the run's own folder, too.
        host: {path for path in paths if pulling.apart(host, path) not in taken}
        for host, paths in kept_apart(store, entries).items()
    }
    wanted = {host: files for host, files in pulling.layout(entries, kept).items() if files}
    listings = {host: listed.listing for host, listed in outcome.results.items()}
    pulled, failures = bring(context, store, listings, wanted, private=private, commands=commands)
    missed |= failures
    for host, error in missed.items():
        hint = "run: kit deploy; then run the same again" if isinstance(error, NotReadyError) else ""
        text = f"{host}: {folder.path} (--checkpoint-dir): {error.message}"
        context.reporter.report(Warned(text=text, hint=hint or "run the same again to fetch the rest"))
    came = dict(pulled)
    for host, left_out in skipped.items():
        if left_out or failed[host]:
            files = pulled.get(host, Pulled(host=host))
            came[host] = replace(files, skipped={**left_out, **files.skipped}, failed={**failed[host], **files.failed})
    return Brought(pulled=came, missed=missed, others=pulling.others(outcome.results))
