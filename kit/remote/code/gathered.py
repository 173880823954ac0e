"""The code in a commit of a git repository, fetched by a host of the cluster and not by this machine.

A program on the host (kit.remote.ship.porter.gather) fetches the commit into the store of the host. Here, kit applies
the commit's .kitignore and the limits, as it does for a folder. No byte of a file comes to this machine, but the
manifest does. Your cache keeps which snapshot a commit is, so that kit asks the host once:

    git/<repository>/known/<commit>   the digest of the snapshot, and what is missing from it
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from kit.errors import AnswerError
from kit.model.answer import OddAnswer, decode
from kit.model.code import Snapshot
from kit.model.repository import Repository, without_login
from kit.remote.code import faults, manifests
from kit.remote.code.fetched import Known, Lacks, facts, folder_of, notes_of
from kit.remote.code.gatherer import Listed, Place, Say, Talk, decoded
from kit.remote.code.limits import too_large
from kit.remote.code.listing import chosen
from kit.remote.code.logins import is_on_web, rewritten
from kit.remote.machine.cache import cache, keep_latest, write
from kit.remote.ship.porter import delta as deltas
from kit.remote.ship.porter import manifest
from kit.remote.ship.porter.delta import Delta
from kit.remote.ship.porter.git import ssh_address
from kit.remote.ship.porter.manifest import shown

_KNOWN = 50
_SHORT = 10


def is_for_hosts(source: Repository) -> bool:
    """Return whether a host could fetch from this repository, which is no folder of this machine."""
    url = rewritten(source)
    return is_on_web(url) or ssh_address(url) is not None


def gather(source: Repository, commit: str, place: Place, say: Say) -> Snapshot:
    """Have the host fetch the commit into its store. Return the snapshot there.

    `say` gets a line if that takes long, and at the end. Raises NotGatheredError if the host cannot fetch it,
    InputError if the commit cannot be code, and UnreachableError, AnswerError or NotReadyError for the host itself.
    """
    url = rewritten(source)
    talk = Talk(place, without_login(url), say)
    try:
        listed = talk.fetch(commit, url)
        text, delta = _snapshot(source, listed)
        digest = manifest.digest(text)
        talk.keep(digest, delta)
    except OddAnswer as odd:
        hint = f"another program may answer there; look: kit ssh {place.login.host}"
        text_of = f"kit cannot read what its git program reports: {odd}"
        raise AnswerError(text_of, hint=hint, host=place.login.host) from odd
    finally:
        talk.end()
    manifests.remember(digest, text)
    known = Known(digest=digest, notes=notes_of(Lacks(modules=[shown(os.fsencode(path)) for path in listed.without])))
    _remember(source, commit, known)
    with_login = ", with your login" if talk.login else ", with your SSH keys" if talk.agent else ""
    what = f"commit {commit[:_SHORT]} of {without_login(source.url)}"
    say(f"code: {place.login.host} fetched {what} in {talk.seconds:.1f} s{with_login}")
    return _made(source, commit, text, known.notes, holder=place.login.host)


def recall(source: Repository, commit: str) -> Snapshot | None:
    """Return the snapshot of a commit that a host fetched before, if your cache still has its manifest."""
    file = _known(source, commit)
    try:
        known: Known = decode(file.read_bytes() if file else b"", Known)
    except (OSError, OddAnswer):
        return None
    text = manifests.recall(known.digest)
    return None if text is None else _made(source, commit, text, known.notes, holder="")


def _made(source: Repository, commit: str, text: bytes, notes: Sequence[str], *, holder: str) -> Snapshot:
    files = [line for line in text.split(b"\n") if line.startswith(b"f")]
    return Snapshot(
        folder=Path("/"),
        manifest=text,
        digest=manifest.digest(text),
        files=len(files),
        size=sum(map(manifest.size_of, files)),
        git=facts(source, commit),
        source=source.shown,
        notes=tuple(notes),
        holder=holder,
    )


def _known(source: Repository, commit: str) -> Path | None:
    root = cache(os.environ)
    return root and folder_of(root, source) / "known" / commit


def _remember(source: Repository, commit: str, known: Known) -> None:
    file = _known(source, commit)
    if file:
        write(file, [json.dumps({"digest": known.digest, "notes": known.notes}).encode()])
        keep_latest(file.parent, _KNOWN)


def _snapshot(source: Repository, listed: Listed) -> tuple[bytes, Delta]:
    """Return the manifest of the snapshot, and what turns the list of all files into it. Raises InputError."""
    everything = decoded(listed.lines)
    by_path: dict[bytes, bytes] = {}
    try:
        manifest.check_ends(everything)
        for line in everything.split(b"\n")[1:-1]:
            if not manifest.is_line(line):
                raise OddAnswer("this is not an entry", line)
            by_path[manifest.path_of(line)] = line
        folders = [path for path, line in by_path.items() if line.startswith(b"d")]
        ignore = None if listed.ignore is None else decoded(listed.ignore)
        paths, empty = chosen(source.shown, by_path.keys() - folders, folders, ignore)
        lines = {path: by_path[path] for path in paths} | {path: manifest.folder_line(path) for path in empty}
        _check(source, lines)
        text = manifest.join([lines[path] for path in sorted(lines)])
        manifest.parse(text)
    except KeyError as path:
        # Such as /train.py, which no folder has.
        raise OddAnswer(f"this is not a path below the folder: {path}") from None
    except manifest.BadManifest as error:
        raise OddAnswer(str(error)) from None
    return text, deltas.between(everything, text)


def _check(source: Repository, lines: Mapping[bytes, bytes]) -> None:
    """Raise InputError for code that is too large, or that has a link out of it."""
    sizes = [(shown(path), manifest.size_of(line)) for path, line in lines.items() if line.startswith(b"f")]
    fault = too_large(source.shown, sizes)
    if fault:
        raise fault
    links = {path: manifest.target_of(line) for path, line in lines.items() if line.startswith(b"l")}
    for path, target in links.items():
        if manifest.leads_out(path, target, links):
            raise faults.leads_out(source.shown, shown(path), shown(target))
