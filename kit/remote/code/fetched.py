"""The code in a commit of a git repository: kit fetches it to your cache, with your own logins, and takes a snapshot.

The logins stay on this machine: the hosts get the snapshot, as from any folder.

    git/<repository>/repo           a bare repository with the commits that kit fetched, without their history
    git/<repository>/lock           the lock of the kit that fetches into it (turns.py)
    git/<repository>/full/<commit>  the files of a commit and its submodules, in `files`, and in `known` which snapshot
                                    they are, and what is missing from them
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, field

from kit.errors import InputError, KitError, UnreachableError
from kit.model.answer import OddAnswer, decode
from kit.model.code import GitFacts, Snapshot
from kit.model.repository import COMMIT, Repository, without_login
from kit.model.values import replace
from kit.remote.code import hashes, lfs, turns
from kit.remote.code.environment import environment
from kit.remote.code.snapshot import take
from kit.remote.code.turns import Say
from kit.remote.code.your_git import ASK_S, your_git
from kit.remote.machine.cache import cache, make
from kit.remote.ship.porter.modules import Module, modules

_TREES = 5
_FETCH_S = 1800
# Of a file in a commit. git would read what the file includes, too, and that could be any file of this machine.
_SETTINGS = ("config", "--no-includes", "--null", "--list", "--blob")
_NO_MODULE = "kit cannot have the submodule "


def _silent(_: str) -> None:
    """Say nothing."""


class Lacks(Struct, frozen=True, kw_only=True):
    """What a folder lacks, by path: submodules that have no URL, and files of Git LFS that stay pointers."""

    modules: list[str] = field(default_factory=list)
    pointers: list[str] = field(default_factory=list)

    def add(self, other: Lacks) -> None:
        self.modules.extend(other.modules)
        self.pointers.extend(other.pointers)


class Known(Struct, frozen=True, kw_only=True):
    """Which snapshot a commit is, and what that lacks."""

    digest: str
    notes: list[str]


def fetch(source: Repository, say: Say = _silent) -> Snapshot:
    """Return the snapshot of the source's commit. Raises InputError, UnreachableError or KitError.

    `say` gets a line while kit waits for another kit, which fetches from the same repository.
    """
    return here(source, commit_of(source), say)


def commit_of(source: Repository) -> str:
    """Return the commit that the source's branch or tag is now. Raises InputError or UnreachableError."""
    return source.ref if COMMIT.fullmatch(source.ref) else _commit(source)


def is_here(source: Repository, commit: str) -> bool:
    """Return whether your cache has the files of the commit."""
    root = cache(os.environ)
    return root is not None and (folder_of(root, source) / "full" / commit).is_dir()


def here(source: Repository, commit: str, say: Say = _silent) -> Snapshot:
    """Return the snapshot of a commit that your cache has, or that kit fetches now, as `fetch` does."""
    snapshot, known = _tree(source, commit, say)
    return replace(snapshot, source=source.shown, git=facts(source, commit), notes=tuple(known.notes))


def facts(source: Repository, commit: str) -> GitFacts:
    """Return what the record of a run says about the source's commit."""
    branch = "" if commit == source.ref else source.ref
    return GitFacts(commit=commit, branch=branch, dirty=False, diff=b"", cut=False, url=without_login(source.url))


def _commit(source: Repository) -> str:
    """Ask the repository which commit the branch or tag is now."""
    ref = source.ref or "HEAD"
    # A tag with a text of its own has its commit under a second name.
    wanted = [ref] if ref == "HEAD" else [f"refs/heads/{ref}", f"refs/tags/{ref}^{{}}", f"refs/tags/{ref}", ref]
    out = your_git(source, "ls-remote", "--", source.url, *wanted, limit_s=ASK_S)
    lines = [line.partition("\t") for line in out.splitlines()]
    commits = {name: commit for commit, _, name in lines}
    for name in wanted:
        if name in commits:
            return commits[name]
    url = without_login(source.url)
    if not source.ref:
        raise InputError(f"the repository {url} has no commits", hint="name a branch: git+URL@BRANCH")
    raise InputError(
        f"the repository {url} has no branch or tag {source.ref}",
        hint=f"see those that it has: git ls-remote {url}; of a commit, write all 40 digits",
    )


def _tree(source: Repository, commit: str, say: Say) -> tuple[Snapshot, Known]:
    """Return the snapshot of the commit's files in the cache. Fetch them, unless they are there, all and unchanged."""
    root = cache(os.environ)
    if root is None:
        raise KitError(
            "kit has no folder for the code: HOME is not set, or kit's folder in your cache is not yours alone",
            hint="set HOME, or XDG_CACHE_HOME to a folder of yours",
        )
    folder = folder_of(root, source)
    tree = folder / "full" / commit
    try:
        kept = _kept(tree)
        if kept is None:
            # Another kit may be doing the same.
            shutil.rmtree(tree, ignore_errors=True)
            make(tree.parent)
            kept = _write(root, source, commit, tree, say)
        os.utime(tree)
        turns.prune(tree.parent, _TREES)
    except OSError as error:
        raise KitError(
            f"the code cannot be written to {folder}: {error.strerror or error}", hint="free space there"
        ) from error
    return kept


def _kept(tree: Path) -> tuple[Snapshot, Known] | None:
    """Return the snapshot of a tree in the cache. None if it is missing, broken or outdated.

    A crash of this machine, or a program that cleans caches, may have removed some of its files, or cut them.
    """
    try:
        known: Known = decode((tree / "known").read_bytes(), Known)
    except (OSError, OddAnswer):
        return None
    if any(note.startswith(lfs.NOT_INSTALLED) for note in known.notes) and _has_lfs():
        return None
    try:
        snapshot = take(tree / "files", plain=True)
    except InputError:
        return None
    return (snapshot, known) if snapshot.digest == known.digest else None


def folder_of(root: Path, source: Repository) -> Path:
    return root / "git" / hashlib.sha256(source.url.encode()).hexdigest()[:16]


def _write(root: Path, source: Repository, commit: str, tree: Path, say: Say) -> tuple[Snapshot, Known]:
    part = Path(tempfile.mkdtemp(prefix=turns.PART, dir=tree.parent))
    try:
        with turns.in_use(part):
            files = part / "files"
            files.mkdir()
            lacks = _check_out(root, source, commit, files, "", say=say)
            try:
                taken = take(files, plain=True)
            except InputError as error:
                # The folder is gone when the reader looks for it.
                error.message = error.message.replace(str(files.resolve()), source.shown)
                raise
            hashes.forget(taken.folder)
            known = Known(digest=taken.digest, notes=notes_of(lacks))
            (part / "known").write_text(json.dumps({"digest": known.digest, "notes": known.notes}))
            with contextlib.suppress(OSError):
                # Another kit may have written it meanwhile.
                part.rename(tree)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return replace(taken, folder=(tree / "files").resolve()), known


def _check_out(root: Path, source: Repository, commit: str, files: Path, at: str, *, say: Say) -> Lacks:
    """Write a commit and its submodules to a folder. Return what it lacks.

    `at` is the path of the folder in the whole tree, with a slash at its end, or "".
    """
    folder = folder_of(root, source)
    make(folder)
    # A submodule's URL comes from a file: git then allows no folder of this machine, unless you have set it so.
    variables = {"GIT_PROTOCOL_FROM_USER": "0"} if at else {}
    repo = folder / "repo"
    with turns.turn(folder, repo, without_login(source.url), say) as turn:
        had = repo.is_dir()
        try:
            listed, stored = _bring(source, commit, repo, files, variables=variables, turn=turn)
        except UnreachableError:
            if not had:
                raise
            # A repository that does not answer is reported at once: to look for damage may take minutes.
            your_git(source, "ls-remote", "--", source.url, "HEAD", more=variables)
            # What breaks a fetch off, or fills the disk, is no reason to fetch all of it once more.
            if not _is_damaged(source, repo):
                raise
            # A crash or a cleaner of caches has removed objects.
            shutil.rmtree(repo, ignore_errors=True)
            listed, stored = _bring(source, commit, repo, files, variables=variables, turn=turn)
    inside = ("--git-dir", str(repo), "--work-tree", str(files))
    settings = ""
    if "\t.gitmodules\0" in listed:
        # Of the commit, and not of the folder, where it may be a link.
        settings = your_git(source, *inside, *_SETTINGS, f"{commit}:.gitmodules")
    pointers, other = lfs.pointers(files, stored.split("\0"))
    left = _fetch_objects(source, commit, repo, pointers, files) if pointers else []
    lacks = Lacks(pointers=[at + path for path in (*left, *other)])
    for module in modules(listed, settings, source.url):
        if module.url is None:
            lacks.modules.append(at + module.path)
            continue
        lacks.add(check_out_module(root, module, files, at, say))
    return lacks


def _is_damaged(source: Repository, repo: Path) -> bool:
    """Return whether the repository of the cache lacks something. To find that out, git reads all of it."""
    try:
        your_git(source, "--git-dir", str(repo), "fsck", "--no-dangling", "--no-progress", limit_s=_FETCH_S)
    except UnreachableError:
        return True
    return False


def _bring(
    source: Repository, commit: str, repo: Path, files: Path, *, variables: Mapping[str, str], turn: turns.Turn
) -> tuple[str, str]:
    """Fetch a commit into the repository of the cache, and write its files. Return its index and its paths of Git LFS.

    Both are as `git ls-files` prints them. `variables` are those of git while it fetches.
    """
    # A branch keeps the commit from git's cleaning, and the next fetch brings only what differs from it.
    words = ("--quiet", "--depth=1", "--no-tags", "--force", "--no-recurse-submodules")
    your_git(source, "init", "--quiet", "--bare", str(repo))
    your_git(source, "--git-dir", str(repo), "fetch", *words, "--", source.url, f"{commit}:refs/heads/{commit}",
             limit_s=_FETCH_S, more=variables, started=turn.note)  # fmt: skip
    inside = ("--git-dir", str(repo), "--work-tree", str(files))
    with tempfile.TemporaryDirectory(dir=repo.parent) as scratch:
        index = {"GIT_INDEX_FILE": str(Path(scratch) / "index")}
        your_git(source, *inside, "read-tree", commit, more=index)
        your_git(source, *inside, "checkout-index", "--all", "--force", more=index, limit_s=_FETCH_S)
        listed = your_git(source, *inside, "ls-files", "--stage", "-z", more=index)
        return listed, your_git(source, *inside, "ls-files", "-z", "--", lfs.PATHS, more=index, folder=files)


def _fetch_objects(source: Repository, commit: str, repo: Path, pointers: list[lfs.Pointer], files: Path) -> list[str]:
    """Let git-lfs fetch what the pointers name, with git's logins, and write it. Return what stays a pointer."""
    if not _has_lfs():
        return [pointer.path for pointer in pointers]
    error = lfs.too_large(source.url, pointers)
    if error is not None:
        raise error
    inside = ("--git-dir", str(repo))
    chosen: tuple[str, ...] = ()
    if your_git(source, *inside, "ls-tree", "--name-only", commit, "--", ".lfsconfig"):
        settings = your_git(source, *inside, *_SETTINGS, f"{commit}:.lfsconfig")
        values = dict(item.partition("\n")[::2] for item in settings.split("\0") if item)
        url = lfs.server(values.get("lfs.url", ""))
        chosen = ("-c", f"lfs.url={url}") if url else ()
    words = ("lfs", "fetch", "--", lfs.remote(source.url), commit)
    failed: KitError | None = None
    try:
        your_git(source, *chosen, *inside, *words, limit_s=_FETCH_S)
    except UnreachableError as error:
        # It also asks for what only looks like a pointer, such as an example in a text.
        failed = error
    left = lfs.fill(files, lfs.objects(your_git(source, *inside, "lfs", "env")), pointers)
    if failed is not None and left:
        raise failed
    return left


def _has_lfs() -> bool:
    try:
        done = subprocess.run(["git", "lfs", "version"], capture_output=True, check=False, env=environment())
    except OSError:
        # A commit that is in the cache needs no git.
        return False
    return done.returncode == 0


def check_out_module(root: Path, module: Module, files: Path, at: str, say: Say = _silent) -> Lacks:
    """Write a submodule below a folder, as `_check_out` does. Raises InputError, UnreachableError or KitError."""
    path = at + module.path
    below = files / module.path
    if below.resolve() != files.resolve() / module.path:
        raise InputError(f"the submodule {path} is behind a link", hint="kit cannot take such a repository")
    below.mkdir(parents=True, exist_ok=True)
    try:
        source = Repository(url=module.url or "", ref=module.commit)
        return _check_out(root, source, module.commit, below, f"{path}/", say=say)
    except KitError as error:
        if not error.message.startswith(_NO_MODULE):
            error.message = f"{_NO_MODULE}{path}: {error.message}"
            error.hint = f"{error.hint}; or clone the repository with its submodules, and write code: FOLDER"
        raise


def notes_of(lacks: Lacks) -> list[str]:
    """Return what the files lack, as sentences."""
    notes = []
    if lacks.modules:
        names = ", ".join(lacks.modules)
        notes.append(f".gitmodules has no URL to fetch these submodules from, so their folders are empty: {names}")
    return [*notes, *lfs.notes(lacks.pointers, installed=bool(lacks.pointers) and _has_lfs())]
