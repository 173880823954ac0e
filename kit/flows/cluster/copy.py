"""kit cp: copy files from the containers of hosts to this machine, or from this machine into them."""

from __future__ import annotations

import os
import posixpath
from contextlib import closing
from pathlib import Path

from msgspec import Struct

from kit.config.selection import select_hosts
from kit.errors import InputError, StepError
from kit.events import HostDone, Phase
from kit.flows.context import Context
from kit.flows.run.bring import fetch_all, in_container
from kit.model.host import Host
from kit.model.results import Copied, Entry, Listing, PullResult, Wanted
from kit.model.text import size
from kit.model.values import replace
from kit.plan.run import pulling
from kit.remote.results import far
from kit.remote.results.give import Source, give
from kit.remote.results.store import RefusedError, Store
from kit.remote.ssh import fanout


class Place(Struct, frozen=True, kw_only=True):
    """A path on some hosts."""

    hosts: tuple[Host, ...]
    path: str


def copy(context: Context, source: str, target: str, *, vm: bool, here: Path) -> PullResult | Copied:
    """Copy between this machine and the containers of hosts, or with `vm` the VMs themselves.

    Relative paths of this machine start at `here`. One error at the end names all hosts that failed.
    """
    origin, goal = _place(context, source), _place(context, target)
    if origin is not None and goal is None:
        return _from_hosts(context, origin, target, vm=vm, here=here)
    if goal is not None and origin is None:
        return _to_hosts(context, Source(here / source), goal, vm=vm)
    raise InputError(
        "one of the two must be HOST:PATH, and the other one a path of this machine",
        hint="kit cp gpu1:/data/model.h5 .   or: kit cp model.h5 'gpu[1-4]:/data/'",
    )


def _place(context: Context, word: str) -> Place | None:
    """Return the place on hosts that a word names, or None for a path of this machine."""
    before, colon, _ = word.partition(":")
    if not colon or not before or "/" in before:
        return None
    # An IPv6 address has colons, too. scp wants brackets around it.
    hosts, colon, path = word.partition(":/")
    if not colon or "/" in hosts:
        raise InputError(
            f"'{word}' has no whole path after the colon",
            hint=f"write {before if word.count(':') == 1 else 'HOST'}:/PATH",
        )
    if ":" in hosts and hosts.startswith("[") and hosts.endswith("]"):
        hosts = hosts[1:-1]
    return Place(hosts=select_hosts(context.inventory, hosts).hosts, path=f"/{path}")


def _command(context: Context, host: Host, *, vm: bool) -> far.Command:
    """Return what runs the reader on the VM, or in its node."""
    return far.argv if vm else in_container(context, host)


def _from_hosts(context: Context, origin: Place, target: str, *, vm: bool, here: Path) -> PullResult:
    called = _typed_name(origin.path)
    commands = {host.name: _command(context, host, vm=vm) for host in origin.hosts}

    def look(host: Host) -> Listing:
        with closing(context.connect(host)) as transport:
            return far.named_files(transport, origin.path, commands[host.name])

    context.reporter.report(Phase(name="copy", hosts=tuple(host.name for host in origin.hosts)))
    listings = fanout.each(origin.hosts, look).or_raise("kit cp")
    folder, name = _home(here / target, target, several=len(origin.hosts) > 1)
    store = Store(folder, parts=f".kit-cp-{os.getpid()}")
    wanted: dict[str, tuple[Wanted, ...]] = {}
    folders: dict[str, tuple[str, Entry]] = {}
    refused: dict[str, dict[str, str]] = {}
    apart: dict[str, pulling.Sorted] = {}
    tops: dict[str, str] = {}
    for host, listing in listings.items():
        top = listing.entries[0].path.partition("/")[0] if listing.entries else ""
        tops[host] = top
        apart[host] = pulling.sorted_out(listing.entries, (), (top,))
        start = f"{host}/{called}" if len(origin.hosts) > 1 else name or called
        wanted[host] = tuple(
            Wanted(entry=entry, target=start + entry.path[len(top) :]) for entry in apart[host].entries
        )
        folders |= {
            start + entry.path[len(top) :]: (host, entry)
            for entry in listing.entries
            if entry.kind == "d" and pulling.is_sound(entry.path, (top,))
        }
    try:
        store.prepare(sum(file.entry.size for files in wanted.values() for file in files), private=False)
        for made, (host, entry) in folders.items():
            try:
                store.make(made, entry.mode)
            except RefusedError as error:
                refused.setdefault(host, {})[entry.path] = error.message
        pulled, failures = fetch_all(context, store, listings, wanted, missing=wanted, commands=commands)
    finally:
        store.finish()
    hosts = {
        host: replace(
            one,
            skipped={**apart[host].skipped, **one.skipped},
            failed={**apart[host].failed, **refused.get(host, {}), **one.failed},
        )
        for host, one in pulled.items()
    }
    # A part of a folder may stay away, but not what you named.
    reasons = {host: {**one.skipped, **one.failed}.get(tops[host]) for host, one in hosts.items()}
    none = {host: StepError(f"{origin.path} was not copied: {why}", host=host) for host, why in reasons.items() if why}
    came = {host: one for host, one in hosts.items() if host not in none}
    fanout.Outcome(results=came, failures={**failures, **none}).or_raise("kit cp")
    return PullResult(run="", folder=str(folder / name if name else folder), hosts=tuple(came.values()))


def _typed_name(path: str) -> str:
    """Return the name that a copy of this path gets at home: that of a link, as with cp. Raises InputError for `/`.

    It comes from the typed words alone. A host, or a rank by a link, could call it .ssh or .bashrc.
    """
    name = posixpath.basename(posixpath.normpath(path))
    if not name:
        raise InputError(f"{path} is the whole disk of a host", hint="name a folder in it, such as HOST:/data")
    return name


def _home(path: Path, text: str, *, several: bool) -> tuple[Path, str]:
    """Return the folder at home, and the name there ('' keeps the name), as cp does."""
    if several or path.is_dir():
        return path, ""
    if text.endswith("/"):
        raise InputError(f"there is no folder {path}", hint="make it, or leave out the slash at the end")
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent}", hint=f"mkdir -p {path.parent}")
    return path.parent, path.name


def _to_hosts(context: Context, source: Source, goal: Place, *, vm: bool) -> Copied:
    context.reporter.report(Phase(name="copy", hosts=tuple(host.name for host in goal.hosts)))

    def work(host: Host) -> str:
        with closing(context.connect(host)) as transport:
            path = give(transport, source, goal.path, _command(context, host, vm=vm))
        context.reporter.report(HostDone(host=host.name, text=size(source.size)))
        return path

    paths = fanout.each(goal.hosts, work).or_raise("kit cp")
    return Copied(path=next(iter(paths.values())), hosts=tuple(paths), files=source.files, size=source.size)
