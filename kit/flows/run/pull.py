"""kit pull: bring what a run made home from all its hosts, and its log."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from kit.errors import Interrupted, KitError
from kit.events import HostDone, HostStep, Phase, Warned
from kit.flows.context import Context
from kit.flows.run.listing import no_such_run
from kit.model import names
from kit.model.answer import answer_of
from kit.model.host import Host
from kit.model.results import LOG, MADE, Entry, Listing, Pulled, PullResult, Wanted
from kit.model.text import files as files_text
from kit.model.text import size
from kit.plan.run import folders, pulling
from kit.plan.run.records import shared_checkpoints, stored_record
from kit.remote.results import far, log
from kit.remote.results.fetch import Header, fetch
from kit.remote.results.store import HomeError, Store
from kit.remote.scripts import script
from kit.remote.ssh import fanout

# How long to wait until the hosts of a run that has just ended have settled its working folder.
SETTLE_S, SETTLE_EVERY_S = 3.0, 0.3


def pull(context: Context, words: Sequence[str], *, here: Path) -> PullResult:
    """Bring home what kit pull's words select. Relative folders start at `here`.

    A host that cannot be reached is in `missed`; the others come. Raises an error if no host can be reached, or if this
    machine cannot store the files.
    """
    request = pulling.request(words)
    context.reporter.report(Phase(name="look", hosts=context.inventory.names))
    run, missed = _run(context, request.run)
    listings, failures = _listings(context, run, [host for host in context.inventory.names if host not in missed])
    missed = {**missed, **failures}
    live = any(listing.live for listing in listings.values())
    if not live:
        listings = _settled(context, run, listings)
    unsettled = [host for host, listing in listings.items() if listing.unsettled]
    if pulling.names_work(request.patterns):
        unsettled = []
    entries: dict[str, tuple[Entry, ...]] = {}
    skipped: dict[str, Mapping[str, str]] = {}
    for host, listing in listings.items():
        known = [entry for entry in listing.entries if host not in unsettled or not _is_work(entry)]
        entries[host], skipped[host] = pulling.sorted_out(known, request.patterns, (*MADE, LOG))
    store = Store(here / (request.folder or f"kit-{run}"))
    wanted = {host: files for host, files in pulling.layout(entries).items() if files}
    pulled, failures = bring(context, store, listings, wanted, private=request.folder is None)
    missed = {**missed, **failures}
    for host, error in missed.items():
        context.reporter.report(Warned(text=f"{host}: {error.message}", hint="run the same again to fetch the rest"))
    if not missed:
        store.finish()
    hosts = tuple(
        replace(pulled.get(host, Pulled(host=host)), skipped={**skipped[host], **_skipped(pulled.get(host))})
        for host in listings
        if host in pulled or skipped[host]
    )
    return PullResult(
        run=run,
        folder=str(store.folder),
        hosts=hosts,
        missed={host: error.message for host, error in missed.items()},
        live=live,
        without_work=tuple(unsettled) if not request.patterns else (),
        checkpoints=_checkpoints(context, run, missed) if pulling.may_name_checkpoints(request.patterns) else "",
    )


def _checkpoints(context: Context, run: str, missed: Collection[str]) -> str:
    """Return HOST:PATH of the run's shared folder for checkpoints. Return '' if it has none, or the head does not say.

    The files came without the run's record. So what is wrong with that is no reason to fail.
    """
    head = context.inventory.head
    if head.name in missed:
        return ""
    argv = script("runs", names.folder(context.spec.name), "read", run, "record.json")
    try:
        with closing(context.connect(head)) as transport:
            done = transport.run(argv, timeout_s=30)
        with answer_of(head.name, "the record of a run"):
            record, fields = stored_record(run, done.stdout.decode(errors="replace"), None, live=False)
    except Interrupted:
        raise
    except KitError:
        return ""
    return shared_checkpoints(record, fields)


def _is_work(entry: Entry) -> bool:
    return entry.path.partition("/")[0] == names.WORK


def _settled(context: Context, run: str, listings: Mapping[str, Listing]) -> Mapping[str, Listing]:
    """List the files again on hosts that are about to settle the run's working folder. That takes a moment."""
    deadline = time.monotonic() + SETTLE_S
    while (
        pending := [host for host, listing in listings.items() if listing.unsettled]
    ) and time.monotonic() < deadline:
        time.sleep(SETTLE_EVERY_S)
        again, _ = _listings(context, run, pending)
        listings = {**listings, **again}
    return listings


def _skipped(pulled: Pulled | None) -> Mapping[str, str]:
    return pulled.skipped if pulled else {}


def _run(context: Context, word: str | None) -> tuple[str, Mapping[str, KitError]]:
    """Return the id of the run that `word` means on any host, and the hosts that could not be asked."""

    def look(host: Host) -> Mapping[str, bool]:
        with closing(context.connect(host)) as transport:
            return far.living(transport, context.spec.name)

    outcome = fanout.each(context.inventory.hosts, look)
    if not outcome.results:
        outcome.or_raise("kit pull")
    runs = {run: None for ids in outcome.results.values() for run in ids}
    if not runs:
        raise no_such_run(word)
    if word is not None:
        return folders.named(word, runs), outcome.failures
    # Only the head knows that a run lives.
    living = [run for ids in outcome.results.values() for run, live in ids.items() if live]
    return max(living or runs), outcome.failures


def _listings(context: Context, run: str, hosts: Sequence[str]) -> tuple[Mapping[str, Listing], Mapping[str, KitError]]:
    def look(host: Host) -> Listing:
        with closing(context.connect(host)) as transport:
            return far.run_files(transport, context.spec.name, run)

    outcome = fanout.each([context.host(name) for name in hosts], look)
    return outcome.results, outcome.failures


def bring(
    context: Context,
    store: Store,
    listings: Mapping[str, Listing],
    wanted: Mapping[str, Sequence[Wanted]],
    *,
    private: bool,
) -> tuple[Mapping[str, Pulled], Mapping[str, KitError]]:
    """Fetch the files of each host that are not here yet. Return what came, and the hosts that failed.

    Raises HomeError if this machine cannot store them.
    """
    missing = {host: _missing(store, files) for host, files in wanted.items()}
    total = sum(file.entry.size for files in missing.values() for file in files)
    if wanted:
        store.prepare(total, private=private)
    if any(missing.values()):
        context.reporter.report(Phase(name="pull", hosts=tuple(missing)))
    return fetch_all(context, store, listings, wanted, missing=missing)


def fetch_all(
    context: Context,
    store: Store,
    listings: Mapping[str, Listing],
    wanted: Mapping[str, Sequence[Wanted]],
    *,
    missing: Mapping[str, Sequence[Wanted]],
    commands: Mapping[str, far.Command] | None = None,
) -> tuple[Mapping[str, Pulled], Mapping[str, KitError]]:
    """Fetch the missing files of each host, and make the wanted links. See `bring`.

    `commands` run reader.py on each host, if not on the VM itself.
    """

    def work(host: Host) -> Pulled:
        name, listing = host.name, listings[host.name]
        links = sum(store.link(file.target, file.entry.text) for file in wanted[name] if file.entry.kind == "l")
        files = [file for file in missing[name] if file.entry.kind == "f"]
        pulled = Pulled(host=name)
        if files:
            with closing(context.connect(host)) as transport:
                pulled = fetch(
                    transport,
                    listing.top,
                    listing.below,
                    files,
                    store,
                    command=(commands or {}).get(name, far.argv),
                    keep=lambda part, file, header: _keep(store, part, file, header),
                    progress=lambda done, all_of_it: context.reporter.report(
                        HostStep(
                            host=name,
                            text=f"fetching {size(all_of_it)}",
                            fraction=min(done / all_of_it, 1.0) if all_of_it else None,
                        )
                    ),
                )
            context.reporter.report(HostDone(host=name, text=f"{files_text(pulled.files)}, {size(pulled.size)}"))
        unchanged = len(wanted[name]) - len(files) - links
        return replace(pulled, files=pulled.files + links, unchanged=unchanged)

    outcome = fanout.each([context.host(name) for name in wanted], work)
    for error in outcome.failures.values():
        if isinstance(error, HomeError):
            # One disk, one error.
            error.host = None
            raise error
    return outcome.results, outcome.failures


def _missing(store: Store, files: Sequence[Wanted]) -> tuple[Wanted, ...]:
    """Return the files that are not here, or changed since. Move those that an earlier pull stored elsewhere."""
    missing = []
    for file in files:
        if file.entry.kind != "f" or _is_here(store, file, file.target):
            continue
        own = pulling.LOG_TEXT if file.entry.path == LOG else file.entry.path
        if own != file.target and _is_here(store, file, own):
            # When it came, no other host had a file with this name.
            store.move(own, file.target)
            continue
        missing.append(file)
    return tuple(missing)


def _is_here(store: Store, file: Wanted, target: str) -> bool:
    state = store.state(target)
    # The text of a log has another size than its records.
    as_text = file.entry.path == LOG
    return state is not None and state[1] == file.entry.time and (as_text or state[0] == file.entry.size)


def _keep(store: Store, part: Path, file: Wanted, header: Header) -> None:
    if file.entry.path != LOG:
        store.keep(part, file.target, time=header.time, executable=header.x)
        return
    text = part.with_suffix(".txt")
    try:
        log.write_text(part, text)
        part.unlink()
    except OSError as error:
        raise store.failed(error) from error
    store.keep(text, file.target, time=header.time, executable=False)
