"""kit pull: bring what a run made home from all its hosts, and its log."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from kit.errors import ArrayMeant, KitError
from kit.events import Note, Phase, Warned
from kit.flows.context import Context
from kit.flows.run.bring import bring, kept_apart
from kit.flows.run.checkpoints import Brought, RunHosts, bring_checkpoints, folder_of, hosts_of
from kit.flows.run.listing import no_such_run, started
from kit.model.failures import alike
from kit.model.host import Host
from kit.model.results import Listing, Pulled, PullResult, RunStart
from kit.model.text import fold
from kit.model.values import replace
from kit.plan.run import folders, pulling
from kit.plan.run.hosts import MOST_HOSTS, not_among
from kit.remote.results import far
from kit.remote.results.store import Store
from kit.remote.ssh import fanout

# How long to wait until the hosts of a run that has just ended have settled its working folder.
SETTLE_S, SETTLE_EVERY_S = 3.0, 0.3


def pull(context: Context, words: Sequence[str], *, here: Path, all_checkpoints: bool = False) -> PullResult:
    """Bring home what kit pull's words select. Relative folders start at `here`.

    `all_checkpoints`: also what other runs wrote into the folder of --checkpoint-dir.

    A host that cannot be reached is in `missed`; the others come. Raises an error if no host can be reached, or if this
    machine cannot store the files, and ArrayMeant for the id of an array.
    """
    request = pulling.request(words)
    context.reporter.report(Phase(name="look", hosts=context.inventory.names))
    run, missed = _run(context, request.run)
    listings, failures = _listings(context, run, [host for host in context.inventory.names if host not in missed])
    missed = {**missed, **failures}
    live = any(listing.live for listing in listings.values())
    if not live:
        listings = _settled(context, run, listings)
    chosen = pulling.chosen(listings, request.patterns)
    entries = chosen.entries
    # Only in the run's own folder, what an earlier pull made gives way.
    made = pulling.stays if request.folder is None else None
    store = Store(here / (request.folder or f"kit-{run}"), made=made, run=run)
    with closing(store):
        if any(entries.values()):
            # What is here counts, so no other pull may write now.
            store.take()
        wanted = {host: files for host, files in pulling.layout(entries, kept_apart(store, entries)).items() if files}
        private = request.folder is None
        pulled, failures = bring(context, store, listings, wanted, private=private)
        missed = {**missed, **failures}
        known = _hosts_of(context, run, request.patterns, missed)
        missed = _of_the_run(context, run, missed, known)
        not_in_hosts = _not_in_hosts(context, run, known)
        folder = folder_of(context, run, missed) if pulling.may_name_checkpoints(request.patterns) else None
        shared = Brought()
        if folder is not None:
            taken = {file.target for files in wanted.values() for file in files}
            shared = bring_checkpoints(
                context, folder, request.patterns, store, taken=taken, private=private, all_files=all_checkpoints
            )
            pulled, missed = _together(pulled, shared.pulled), {**shared.missed, **missed}
        hosts = _with_reasons(listings, pulled, chosen)
        # The next pull continues files of which only a part came.
        if not missed and not any(host.failed for host in hosts):
            stayed = request.patterns or chosen.without_work or not_in_hosts or shared.others
            store.finish(all_files=not stayed)
    return PullResult(
        run=run,
        folder=str(store.folder),
        hosts=hosts,
        missed={host: error.message for host, error in missed.items()},
        live=live,
        patterns=request.patterns,
        without_work=chosen.without_work,
        not_in_hosts=not_in_hosts,
        checkpoints=folder.place if folder else "",
        others=shared.others,
    )


def words_of_each(runs: Sequence[str], words: Sequence[str]) -> list[list[str]]:
    """Return the words of kit pull for each run of an array, whose id is the first of these words."""
    request = pulling.request(words)
    # Path would take off the ./ of ./output, which is a folder at home: without it, it is a path in the run's folder.
    homes = [[f"{request.folder}/kit-{run}"] if request.folder else [] for run in runs]
    return [[run, *request.patterns, *home] for run, home in zip(runs, homes, strict=True)]


def _hosts_of(context: Context, run: str, patterns: Sequence[str], missed: Mapping[str, KitError]) -> RunHosts | None:
    """Return the hosts of the run if the head says, and if that matters: only the head has the log."""
    if context.inventory.head.name in missed or (pulling.selects_only_the_log(patterns) and not missed):
        return None
    return hosts_of(context, run)


def _not_in_hosts(context: Context, run: str, known: RunHosts | None) -> tuple[str, ...]:
    """Return the hosts of the run that are not in the hosts file, and warn of them."""
    missing, source = not_among(known.names if known else (), context.inventory), context.inventory.source
    if missing:
        where = fold(missing, most=MOST_HOSTS)
        text = f"{source} has no {where}, which took part in run {run}: files there did not come"
        hint = f"add these hosts to {source}, unless it has them by other names, and run the same again"
        context.reporter.report(Warned(text=text, hint=hint))
    return missing


def _of_the_run(
    context: Context, run: str, missed: Mapping[str, KitError], known: RunHosts | None
) -> Mapping[str, KitError]:
    """Return those of the hosts that may have files of the run, and warn of them.

    All may, if it is not certain who took part.
    """
    if known is not None and known.final:
        names = frozenset(known.names)
        if others := [host for host in missed if host not in names]:
            text = f"{fold(others)} cannot be asked, and did not take part in run {run}"
            context.reporter.report(Note(text=text))
        missed = {host: error for host, error in missed.items() if host in names}
    for failure in alike(missed.values()):
        context.reporter.report(Warned(text=str(failure), hint="run the same again to fetch the rest"))
    return missed


def _with_reasons(listings: Iterable[str], pulled: Mapping[str, Pulled], chosen: pulling.Chosen) -> tuple[Pulled, ...]:
    """Return what came from each host, with what was left out there before. A host without either is left out."""
    came = []
    for host in listings:
        skipped, failed = chosen.skipped[host], chosen.failed[host]
        if host in pulled or skipped or failed:
            one = pulled.get(host, Pulled(host=host))
            came.append(replace(one, skipped={**skipped, **one.skipped}, failed={**failed, **one.failed}))
    return tuple(came)


def _together(first: Mapping[str, Pulled], second: Mapping[str, Pulled]) -> Mapping[str, Pulled]:
    """Return what came from each host in two steps."""
    sums = dict(first)
    for host, more in second.items():
        one = first.get(host, Pulled(host=host))
        sums[host] = Pulled(
            host=host,
            files=one.files + more.files,
            size=one.size + more.size,
            unchanged=one.unchanged + more.unchanged,
            changed=one.changed + more.changed,
            skipped={**one.skipped, **more.skipped},
            failed={**one.failed, **more.failed},
        )
    return sums


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


def _run(context: Context, word: str | None) -> tuple[str, Mapping[str, KitError]]:
    """Return the id of the run that `word` means on any host, and the hosts that could not be asked."""

    def look(host: Host) -> Mapping[str, RunStart]:
        with closing(context.connect(host)) as transport:
            return far.runs(transport, context.spec.name)

    outcome = fanout.each(context.inventory.hosts, look)
    if not outcome.results:
        outcome.or_raise("kit pull")
    runs = [run for known in outcome.results.values() for run in known]
    if word is not None:
        meant = started(context, [word], runs, "see why: kit queue")
        if meant != (word,):
            raise ArrayMeant(word, meant)
    if not runs:
        raise no_such_run(word)
    if word is not None:
        return folders.named(word, dict.fromkeys(runs)), outcome.failures
    return folders.latest(outcome.results.values()), outcome.failures


def _listings(context: Context, run: str, hosts: Sequence[str]) -> tuple[Mapping[str, Listing], Mapping[str, KitError]]:
    def look(host: Host) -> Listing:
        with closing(context.connect(host)) as transport:
            return far.run_files(transport, context.spec.name, run)

    outcome = fanout.each([context.host(name) for name in hosts], look)
    return outcome.results, outcome.failures
