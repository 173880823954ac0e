"""The code in a commit of a git repository: kit fetches it to your cache, with your own logins, and takes a snapshot.

The logins stay on this machine: the hosts get the snapshot, as from any folder.

    git/<repository>/repo           a bare repository with the commits that kit fetched, without their history
    git/<repository>/full/<commit>  the files of a commit and its submodules, in `files`, and what is missing from them,
                                    in `notes`
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from kit.errors import InputError, KitError, UnreachableError
from kit.model.code import GitFacts, Snapshot
from kit.model.repository import COMMIT, Repository, masked, without_login
from kit.remote.code.git import OTHER_REPOSITORY
from kit.remote.code.modules import Module, modules
from kit.remote.code.snapshot import take
from kit.remote.machine.cache import cache, make

_TREES = 5
_ASK_S, _FETCH_S = 120, 1800
_POINTER = b"version https://git-lfs.github.com/spec/"
_LARGEST_POINTER = 1024
_NO_MODULE = "kit cannot have the submodule "
_NO_LOGIN = ("Authentication failed", "could not read Username", "could not read Password", "Permission denied (")


def fetch(source: Repository) -> Snapshot:
    """Return the snapshot of the source's commit. Raises InputError, UnreachableError or KitError."""
    commit = source.ref if COMMIT.fullmatch(source.ref) else _commit(source)
    tree = _tree(source, commit)
    snapshot = take(tree / "files", plain=True)
    notes = json.loads((tree / "notes").read_text())
    branch = "" if commit == source.ref else source.ref
    git = GitFacts(commit=commit, branch=branch, dirty=False, diff=b"", cut=False, url=without_login(source.url))
    return replace(snapshot, source=source.shown, git=git, notes=tuple(notes))


def _commit(source: Repository) -> str:
    """Ask the repository which commit the branch or tag is now."""
    ref = source.ref or "HEAD"
    # A tag with a text of its own has its commit under a second name.
    wanted = [ref] if ref == "HEAD" else [f"refs/heads/{ref}", f"refs/tags/{ref}^{{}}", f"refs/tags/{ref}", ref]
    out = _git(source, "ls-remote", "--", source.url, *wanted, limit_s=_ASK_S)
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


def _tree(source: Repository, commit: str) -> Path:
    """Return the folder with the files of the commit. Fetch it, unless it is in the cache."""
    root = cache(os.environ)
    if root is None:
        raise KitError(
            "kit has no folder for the code: HOME is not set, or kit's folder in your cache is not yours alone",
            hint="set HOME, or XDG_CACHE_HOME to a folder of yours",
        )
    folder = _folder(root, source)
    tree = folder / "full" / commit
    try:
        if not tree.is_dir():
            make(tree.parent)
            _write(root, source, commit, tree)
        os.utime(tree)
        trees = sorted(tree.parent.iterdir(), key=lambda path: path.stat().st_mtime_ns, reverse=True)
        for old in trees[_TREES:]:
            shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise KitError(
            f"the code cannot be written to {folder}: {error.strerror or error}", hint="free space there"
        ) from error
    return tree


def _folder(root: Path, source: Repository) -> Path:
    return root / "git" / hashlib.sha256(source.url.encode()).hexdigest()[:16]


def _write(root: Path, source: Repository, commit: str, tree: Path) -> None:
    part = Path(tempfile.mkdtemp(prefix=".part-", dir=tree.parent))
    try:
        files = part / "files"
        files.mkdir()
        without = _check_out(root, source, commit, files, "")
        (part / "notes").write_text(json.dumps(_notes(files, without)))
        with contextlib.suppress(OSError):
            # Another kit may have written it meanwhile.
            part.rename(tree)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _check_out(root: Path, source: Repository, commit: str, files: Path, at: str) -> list[str]:
    """Write a commit and its submodules to a folder. Return the submodules that .gitmodules has no URL for.

    `at` is the path of the folder in the whole tree, with a slash at its end, or "".
    """
    folder = _folder(root, source)
    make(folder)
    # A submodule's URL comes from a file: git then allows no folder of this machine, unless you have set it so.
    asked = {"GIT_PROTOCOL_FROM_USER": "0"} if at else {}
    repo = folder / "repo"
    _git(source, "init", "--quiet", "--bare", str(repo))
    # A branch keeps the commit from git's cleaning, and the next fetch brings only what differs from it.
    words = ("--quiet", "--depth=1", "--no-tags", "--force", "--no-recurse-submodules")
    _git(source, "--git-dir", str(repo), "fetch", *words, "--", source.url, f"{commit}:refs/heads/{commit}",
         limit_s=_FETCH_S, more=asked)  # fmt: skip
    inside = ("--git-dir", str(repo), "--work-tree", str(files))
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        index = {"GIT_INDEX_FILE": str(Path(scratch) / "index")}
        _git(source, *inside, "read-tree", commit, more=index)
        _git(source, *inside, "checkout-index", "--all", "--force", more=index)
        listed = _git(source, *inside, "ls-files", "--stage", "-z", more=index)
    settings = ""
    if "\t.gitmodules\0" in listed:
        # Of the commit, and not of the folder, where it may be a link.
        settings = _git(source, *inside, "config", "--blob", f"{commit}:.gitmodules", "--null", "--list")
    without = []
    for module in modules(listed, settings, source.url):
        if module.url is None:
            without.append(at + module.path)
            continue
        without += check_out_module(root, module, files, at)
    return without


def check_out_module(root: Path, module: Module, files: Path, at: str) -> list[str]:
    """Write a submodule below a folder, as `_check_out` does. Raises InputError, UnreachableError or KitError."""
    path = at + module.path
    below = files / module.path
    if below.resolve() != files.resolve() / module.path:
        raise InputError(f"the submodule {path} is behind a link", hint="kit cannot take such a repository")
    below.mkdir(parents=True, exist_ok=True)
    try:
        return _check_out(root, Repository(url=module.url or "", ref=module.commit), module.commit, below, f"{path}/")
    except KitError as error:
        if not error.message.startswith(_NO_MODULE):
            error.message = f"{_NO_MODULE}{path}: {error.message}"
            error.hint = f"{error.hint}; or clone the repository with its submodules, and write code: FOLDER"
        raise


def _notes(files: Path, without: list[str]) -> list[str]:
    """Return what the files lack, as sentences. `without`: the submodules that have no URL."""
    paths = [path for path in files.rglob("*") if path.is_file() and not path.is_symlink()]
    pointers = [path for path in paths if path.stat().st_size <= _LARGEST_POINTER and _is_pointer(path)]
    notes = []
    if without:
        names = ", ".join(without)
        notes.append(f".gitmodules has no URL to fetch these submodules from, so their folders are empty: {names}")
    if pointers:
        names = ", ".join(str(path.relative_to(files)) for path in pointers[:3])
        more = f" and {len(pointers) - 3} more" if len(pointers) > 3 else ""
        notes.append(f"kit does not fetch files of Git LFS, so the ranks see their pointers: {names}{more}")
    return notes


def _is_pointer(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_POINTER)) == _POINTER


def _git(
    source: Repository, *words: str, limit_s: int = _ASK_S, more: Mapping[str, str] | None = None
) -> str:  # fmt: skip
    """Return what git prints. It uses the logins that you have, and asks for one only at a terminal."""
    quiet = ("-c", "gc.auto=0", "-c", "core.hooksPath=/dev/null", "-c", "core.autocrlf=false")
    try:
        done = subprocess.run(
            ["git", *quiet, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=limit_s,
            env=_environment() | dict(more or {}),
        )
    except FileNotFoundError as error:
        raise InputError("git is not installed here", hint="install git, which fetches the code") from error
    except subprocess.TimeoutExpired as error:
        raise _failed(source, f"no answer within {limit_s} s") from error
    if done.returncode:
        raise _failed(source, done.stderr.decode(errors="replace"))
    return done.stdout.decode(errors="surrogateescape")


def _failed(source: Repository, errors: str) -> KitError:
    url = without_login(source.url)
    lines = [line for line in masked(errors, source.url).strip().splitlines() if line.strip()]
    fatal = [line for line in lines if line.startswith(("fatal:", "ERROR:", "error:"))] or lines
    why = fatal[0].partition(": ")[2] or fatal[0] if fatal else "git failed"
    check = f"check it: git ls-remote {url}"
    if any(word in errors for word in _NO_LOGIN):
        return UnreachableError(
            f"git cannot log in to {url}: {why}", hint=f"log in on this machine, and {check}; kit uses the same login"
        )
    if COMMIT.fullmatch(source.ref) and ("not our ref" in errors or "unadvertised object" in errors):
        return InputError(
            f"the repository {url} has no commit {source.ref}", hint="was it pushed? Or write a branch or a tag"
        )
    return UnreachableError(f"git cannot fetch {url}: {why}", hint=check)


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in OTHER_REPOSITORY}
    kept |= {"LC_ALL": "C", "GIT_LFS_SKIP_SMUDGE": "1"}
    # Without a terminal, a question would wait for ever.
    return kept if sys.stdin is not None and sys.stdin.isatty() else kept | {"GIT_TERMINAL_PROMPT": "0"}
