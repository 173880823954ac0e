"""What git knows about a code folder: the files that belong to it, and where it is in the history."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from kit.model.repository import without_login
from kit.remote.code import faults
from kit.remote.code.beside import Beside
from kit.remote.code.hashes import Row, row
from kit.remote.code.limits import MOST_DIFF

# A git hook that calls kit has these set, for another repository than that of the folder.
OTHER_REPOSITORY = (
    "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_COMMON_DIR", "GIT_DIR", "GIT_INDEX_FILE", "GIT_NAMESPACE",
    "GIT_OBJECT_DIRECTORY", "GIT_PREFIX", "GIT_WORK_TREE",
)  # fmt: skip
_SUBMODULE = b"160000 "
_GONE = "No such file or directory"
# In a raw difference: a submodule that the folder has, and its commit in what the folder is compared with, or zeros.
_CHANGED = re.compile(rb":(?:160000|000000) 160000 ([0-9a-f]{40,64}) ")
# In a patch with _WHOLE: a binary file of a submodule.
_LEFT_OUT = b"\nBinary files "
_WHOLE = ("--binary", "--full-index")
# Without the first setting, `git diff` writes what it has learned to the index. Old ones lack --no-relative.
_EVERYWHERE = ("-c", "diff.autoRefreshIndex=false", "-c", "diff.relative=false")
# Your settings, or .gitmodules (`ignore = dirty`), may hide changes of submodules, whose files come along all the same.
_EACH_SUBMODULE = "--ignore-submodules=untracked"


class Listed(Struct, frozen=True, kw_only=True):
    """The paths that git lists below a folder, and whether it does not track some of them.

    `lost` are folders, with a slash at their end, whose `.git` leads to no repository: git lists none of their files.
    """

    paths: list[bytes]
    untracked: bool
    lost: list[bytes]


class Head(Struct, frozen=True, kw_only=True):
    """The commit, the branch and the address of `origin`, each "" if it is missing.

    `index` changes when git's index does. It is None if git has no index yet.
    """

    commit: str
    branch: str
    url: str
    index: Row | None


class Difference(NamedTuple):
    """A patch, and whether it lacks something. Without text, it lacks everything: git failed."""

    text: bytes
    cut: bool

    @property
    def failed(self) -> bool:
        return self.cut and not self.text


_FAILED = Difference(b"", cut=True)


def has_repository(folder: Path) -> bool:
    """Return whether the folder or one above it has a `.git`."""
    return any(os.path.lexists(parent / ".git") for parent in (folder, *folder.parents))


def listed(folder: Path) -> Listed | None:
    """Return the tracked and the new files of the folder, also those of submodules and of repositories inside.

    None if git does not count the folder as part of a work tree. Raises InputError.
    """
    coming = Beside(lambda: _git(folder, "ls-files", "--others", "--exclude-standard", "-z"))
    tracked = _git(folder, "ls-files", "--stage", "-z")
    new = coming.result()
    errors = (tracked.stderr + new.stderr).decode(errors="replace").strip()
    if tracked.returncode or new.returncode:
        if "not a git repository" in errors:
            return None
        raise faults.git_refused(str(folder), errors.partition("\n")[0].removeprefix("fatal: "))
    # One that was removed meanwhile has no files.
    closed = [line for line in errors.splitlines() if "could not open directory" in line and not line.endswith(_GONE)]
    if closed:
        raise faults.closed_to_git(str(folder), closed[0].removeprefix("warning: "))
    items = tracked.stdout.split(b"\0")[:-1]
    others = new.stdout.split(b"\0")[:-1]
    if not items and not others and _git(folder, "check-ignore", "--quiet", ".").returncode == 0:
        # The work tree above keeps other files, such as those of a home folder.
        return None
    # An item is `mode object stage TAB path`, and all have the path at the same place.
    start = tracked.stdout.find(b"\t") + 1
    inside = [path for path in others if path.endswith(b"/")]
    paths = [item[start:] for item in items] + [path for path in others if not path.endswith(b"/")]
    if _SUBMODULE in tracked.stdout:
        inside += [item[start:] + b"/" for item in items if item.startswith(_SUBMODULE)]
    untracked = bool(others)
    lost: list[bytes] = []
    for name in inside:
        below = folder / os.fsdecode(name)
        # A submodule that was not checked out is an empty folder.
        if not os.path.lexists(below / ".git"):
            continue
        if not _is_top(below):
            lost.append(name)
            continue
        more = listed(below)
        if more:
            paths += [name + path for path in more.paths]
            untracked |= more.untracked
            lost += [name + path for path in more.lost]
    return Listed(paths=paths, untracked=untracked, lost=lost)


def _is_top(folder: Path) -> bool:
    """Return whether git takes the folder for the top of a work tree, and not for a part of the one above."""
    done = _git(folder, "rev-parse", "--show-prefix")
    errors = done.stderr.decode(errors="replace").strip()
    if done.returncode and "not a git repository" not in errors:
        raise faults.git_refused(str(folder), errors.partition("\n")[0].removeprefix("fatal: "))
    return done.returncode == 0 and not done.stdout.strip()


def head(folder: Path) -> Head:
    """Return where the folder is in the history."""
    done = _git(folder, "rev-parse", "--git-path", "index", "HEAD")
    index, _, commit = done.stdout.decode(errors="surrogateescape").strip().partition("\n")
    try:
        status = row((folder / index).stat())
    except (OSError, ValueError):
        status = None
    return Head(
        commit="" if done.returncode else commit,
        branch=_word(folder, "symbolic-ref", "--quiet", "--short", "HEAD"),
        # Not `git remote get-url`: url.*.insteadOf may put a token into it.
        url=without_login(_word(folder, "config", "--get", "remote.origin.url")),
        index=status,
    )


def diff(folder: Path, commit: str) -> Difference:
    """Return how the folder differs from the commit, as a patch for `git apply`, and whether it was cut."""
    whole = _diff(folder, commit, *_WHOLE)
    if _LEFT_OUT in whole.text and not whole.cut:
        whole = _with_submodules(folder, commit)
    if whole.failed or not whole.cut:
        return whole
    # A large binary file must not push changes of text out.
    return Difference(_diff(folder, commit).text, cut=True)


def _with_submodules(folder: Path, commit: str, prefix: str = "") -> Difference:
    """Return what `diff` returns, with binary files of submodules: git passes --binary on to none of them.

    `folder` is compared with `commit`. `prefix` is its path, with a slash at its end, if it is a submodule itself.
    """
    words = ("diff", "--raw", "-z", "--no-abbrev", "--no-renames", _EACH_SUBMODULE, commit, "--", ".")
    done = _git(folder, *_EVERYWHERE, *words)
    if done.returncode:
        return _FAILED
    rows = done.stdout.split(b"\0")
    top = folder / _word(folder, "rev-parse", "--show-cdup")
    bases = {
        os.fsdecode(path): base
        for row, path in zip(rows[::2], rows[1::2], strict=False)
        if (submodule := _CHANGED.match(row)) and (base := _base(top / os.fsdecode(path), submodule[1].decode()))
    }
    others = [f":(top,exclude,literal){path}" for path in bases]
    whole = _diff(folder, commit, *_WHOLE, prefix=prefix, paths=(".", *others))
    text = whole.text
    for path, base in bases.items():
        if whole.cut:
            break
        whole = _with_submodules(top / path, base, f"{prefix}{path}/")
        text += whole.text
    if whole.failed:
        return _FAILED
    return Difference(text[:MOST_DIFF], cut=whole.cut or len(text) > MOST_DIFF)


def _base(submodule: Path, commit: str) -> str:
    """Return what to compare a submodule with: this commit, or a tree without files if it is new (zeros).

    Return "" if its repository is not there, or lacks the commit: then git says so where the files would be.
    """
    if not os.path.lexists(submodule / ".git") or not _is_top(submodule):
        return ""
    if not commit.strip("0"):
        return _word(submodule, "hash-object", "-t", "tree", os.devnull)
    return _word(submodule, "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}")


def _diff(folder: Path, commit: str, *more: str, prefix: str = "", paths: Sequence[str] = (".",)) -> Difference:
    # Your settings may make of it what no other program reads.
    plain = ["--no-color", "--no-ext-diff", "--no-textconv", "--unified=3"]
    plain += [f"--src-prefix=a/{prefix}", f"--dst-prefix=b/{prefix}"]
    words = [*plain, *more, _EACH_SUBMODULE, "--submodule=diff", commit, "--", *paths]
    with (
        _index_without_marks(folder) as index,
        subprocess.Popen(
            _argv(folder, *_EVERYWHERE, "diff", *words),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_environment() | index,
        ) as process,
    ):
        assert process.stdout  # noqa: S101  (it is a pipe)
        text = process.stdout.read(MOST_DIFF + 1)
        if len(text) > MOST_DIFF:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        # Without the filter that .gitattributes requires for a file, git prints what comes before it.
        elif process.wait():
            return _FAILED
    return Difference(text[:MOST_DIFF], cut=len(text) > MOST_DIFF)


@contextlib.contextmanager
def _index_without_marks(folder: Path) -> Iterator[dict[str, str]]:
    """Yield the variables for a git that compares each file of the folder that is there.

    `git update-index --skip-worktree` and `--assume-unchanged` mark files of which git reports no change. The
    snapshot has their changes. If there are any, git reads a copy of the index without these marks.
    """
    marked = [
        item[2:]
        for item in _git(folder, "ls-files", "-v", "-z").stdout.split(b"\0")[:-1]
        if (item[:1] == b"S" or item[:1].islower()) and os.path.lexists(os.fsencode(folder) + b"/" + item[2:])
    ]
    if not marked:
        yield {}
        return
    with tempfile.TemporaryDirectory() as scratch:
        copy = {"GIT_INDEX_FILE": f"{scratch}/index"}
        whole = False
        # Without room for a copy, git reads its own.
        with contextlib.suppress(OSError):
            shutil.copy2(folder / _word(folder, "rev-parse", "--git-path", "index"), copy["GIT_INDEX_FILE"])
            for mark in ("--no-skip-worktree", "--no-assume-unchanged"):
                subprocess.run(
                    _argv(folder, "update-index", mark, "-z", "--stdin"),
                    input=b"\0".join([*marked, b""]),
                    capture_output=True,
                    check=False,
                    env=_environment() | copy,
                )
            whole = True
        yield copy if whole else {}


def _word(folder: Path, *words: str) -> str:
    """Return the line that git prints, or "" if it fails."""
    done = _git(folder, *words)
    return "" if done.returncode else done.stdout.decode(errors="replace").strip()


def _git(folder: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    try:
        # Python reads one pipe in large pieces, and two in small ones.
        with tempfile.TemporaryFile() as errors:
            done = subprocess.run(
                _argv(folder, *words), stdout=subprocess.PIPE, stderr=errors, check=False, env=_environment()
            )
            errors.seek(0)
            done.stderr = errors.read()
            return done
    except FileNotFoundError as error:
        raise faults.no_git(str(folder)) from error


def _argv(folder: Path, *words: str) -> list[str]:
    return ["git", "-C", str(folder), *words]


def _environment() -> dict[str, str]:
    """Return an environment in which git speaks English, finds the folder's repository, and writes nothing to it."""
    kept = {name: value for name, value in os.environ.items() if name not in OTHER_REPOSITORY}
    return kept | {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"}
