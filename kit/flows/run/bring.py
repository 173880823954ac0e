"""Brings files of hosts home: those that are not here yet, and the rest of those that came in part."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path

from kit.errors import KitError
from kit.events import HostDone, HostStep, Phase
from kit.flows.context import Context
from kit.model import names
from kit.model.host import Host
from kit.model.results import LOG, Entry, Listing, Pulled, Wanted
from kit.model.text import files as files_text
from kit.model.text import size
from kit.model.values import replace
from kit.plan.run import pulling
from kit.remote.results import far, log
from kit.remote.results.fetch import Header, fetch
from kit.remote.results.kept import is_time
from kit.remote.results.store import HomeError, RefusedError, Store
from kit.remote.ssh import fanout


def bring(
    context: Context,
    store: Store,
    listings: Mapping[str, Listing],
    wanted: Mapping[str, Sequence[Wanted]],
    *,
    private: bool,
    commands: Mapping[str, far.Command] | None = None,
) -> tuple[Mapping[str, Pulled], Mapping[str, KitError]]:
    """Fetch the files of each host that are not here yet. Return what came, and the hosts that failed.

    `commands` run the reader on each host, if not on the VM itself. What is in the way of a file at home, or was
    changed there, keeps that file back alone. Raises HomeError if this machine cannot store them.
    """
    if wanted:
        store.take()
    store.claim(file.target for files in wanted.values() for file in files)
    blocked: dict[str, dict[str, str]] = {}
    missing = {host: _missing(store, files) for host, files in wanted.items()}
    for host, files in wanted.items():
        new = {file.target for file in missing[host]}
        for file in files:
            needs_place = file.entry.kind == "l" or file.target in new
            if needs_place and (why := _in_the_way(store, file)):
                blocked.setdefault(host, {})[file.entry.path] = why
    wanted = {host: _without(files, blocked.get(host, {})) for host, files in wanted.items()}
    missing = {host: _without(files, blocked.get(host, {})) for host, files in missing.items()}
    total = sum(_rest(store, host, file) for host, files in missing.items() for file in files)
    for host, files in wanted.items():
        for file in files:
            # Parts of earlier versions may go, also if the file is here by now.
            _part(store, host, file)
    if wanted:
        store.prepare(total, private=private)
        store.replacing(file.target for files in missing.values() for file in files)
    if any(missing.values()):
        context.reporter.report(Phase(name="pull", hosts=tuple(missing)))
    pulled, failures = fetch_all(context, store, listings, wanted, missing=missing, commands=commands)
    for host in blocked.keys() & pulled.keys():
        pulled = {**pulled, host: replace(pulled[host], failed={**pulled[host].failed, **blocked[host]})}
    return pulled, failures


def kept_apart(store: Store, entries: Mapping[str, Sequence[Entry]]) -> Mapping[str, Collection[str]]:
    """Return the paths of each host that an earlier pull stored below the host's name.

    In the run's own folder, any version counts. A folder of yours may have files of other runs, so there only the same
    version does.
    """

    def is_kept(host: str, entry: Entry) -> bool:
        target = pulling.apart(host, entry.path)
        text = store.text(target)
        if store.own:
            return text is not None or store.state(target) is not None
        return text == entry.text if entry.kind == "l" else _is_here(store, entry, target)

    return {host: {entry.path for entry in files if is_kept(host, entry)} for host, files in entries.items()}


def _in_the_way(store: Store, file: Wanted) -> str:
    """Return why this file must not take its place at home; '' if it may."""
    if file.entry.kind == "l":
        return store.obstacle(file.target, link=True)
    return store.obstacle(file.target, link=False) or store.changed(file.target, file.entry.time)


def _without(files: Sequence[Wanted], blocked: Mapping[str, str]) -> tuple[Wanted, ...]:
    return tuple(file for file in files if file.entry.path not in blocked)


def in_container(context: Context, host: Host) -> far.Command:
    """Return what runs the reader in the host's node."""
    service = names.HEAD if host.name == context.inventory.head.name else names.NODE
    return far.in_container(names.container(context.spec.name, service))


def fetch_all(
    context: Context,
    store: Store,
    listings: Mapping[str, Listing],
    wanted: Mapping[str, Sequence[Wanted]],
    *,
    missing: Mapping[str, Sequence[Wanted]],
    commands: Mapping[str, far.Command] | None = None,
) -> tuple[Mapping[str, Pulled], Mapping[str, KitError]]:
    """Fetch the missing files of each host, and make the wanted links. See `bring`."""

    def work(host: Host) -> Pulled:
        name, listing = host.name, listings[host.name]
        links, refused = _links(store, [file for file in wanted[name] if file.entry.kind == "l"])
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
                    prefix=listing.prefix,
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
        unchanged = len(wanted[name]) - len(files) - links - len(refused)
        return replace(pulled, files=pulled.files + links, unchanged=unchanged, failed={**pulled.failed, **refused})

    outcome = fanout.each([context.host(name) for name in wanted], work)
    for error in outcome.failures.values():
        if isinstance(error, HomeError):
            # One disk, one error.
            error.host = None
            raise error
    return outcome.results, outcome.failures


def _links(store: Store, files: Sequence[Wanted]) -> tuple[int, Mapping[str, str]]:
    """Make these links. Return how many were missing, and why some cannot be made, by path."""
    made = 0
    refused: dict[str, str] = {}
    for file in files:
        try:
            made += store.link(file.target, file.entry.text)
        except RefusedError as error:
            refused[file.entry.path] = error.message
    return made, refused


def _missing(store: Store, files: Sequence[Wanted]) -> tuple[Wanted, ...]:
    """Return the files that are not here, or changed since. Move those that an earlier pull stored elsewhere."""
    missing = []
    for file in files:
        if file.entry.kind != "f" or _is_here(store, file.entry, file.target):
            continue
        own = pulling.at_home(file.entry.path)
        if own != file.target and _is_here(store, file.entry, own) and not _in_the_way(store, file):
            # When it came, no other host had a file with this name.
            with suppress(RefusedError):
                store.move(own, file.target)
                continue
        missing.append(file)
    return tuple(missing)


def _rest(store: Store, host: str, file: Wanted) -> int:
    """Return the bytes of the file that an earlier pull has not brought."""
    part = _part(store, host, file)
    return max(0, file.entry.size - (part.stat().st_size if part.is_file() else 0))


def _part(store: Store, host: str, file: Wanted) -> Path:
    return store.part(host, file.entry.path, file.entry.size, file.entry.time)


def _is_here(store: Store, entry: Entry, target: str) -> bool:
    state = store.state(target)
    # The text of a log has another size than its records.
    as_text = entry.path == LOG
    return state is not None and is_time(state[1], entry.time) and (as_text or state[0] == entry.size)


def _keep(store: Store, part: Path, file: Wanted, header: Header) -> None:
    if file.entry.path != LOG:
        store.keep(part, file.target, time=header.time, mode=header.mode)
        return
    text = part.with_suffix(".txt")
    try:
        log.write_text(part, text)
        part.unlink()
    except OSError as error:
        raise store.failed(error) from error
    store.keep(text, file.target, time=header.time, mode=0o644)
