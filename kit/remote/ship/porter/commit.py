"""The files of a commit and of its submodules, written to a folder of this host by git.

git/<repository>/repo   in the store: the commits that were fetched before. The next one needs only what differs
git/<repository>/busy   there while git fetches. One that stays is of a fetch that was killed
"""

import contextlib
import hashlib
import os
import re
import shutil
import stat
from typing import Iterator, List, Tuple

from . import manifest, names
from .git import FETCH_S, Failed, Git
from .hold import Hold
from .modules import Module, modules

# More files than code may have, before a .kitignore leaves some out.
MOST_FILES = 200000
# More submodules than a person adds.
MOST_MODULES = 500
# After as many commits, the repository is fetched as a new one.
MOST_COMMITS = 50
_COMMIT = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")
_MODULE, _LINK = b"160000", b"120000"
_LFS = b"version https://git-lfs.github.com/spec/"
_CHUNK = 1 << 20
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Files:
    """A commit's files, in the folder `files` of the folder `tree`. `store` is the folder of the repositories.

    `without` are the paths of submodules that have no URL. Their folders are empty.
    """

    def __init__(self, git: Git, store: str, tree: str) -> None:
        self.folder = names.below(tree, "files")
        self.without: List[str] = []
        self._git = git
        self._store = store
        self._tree = tree
        self._modules = 0
        # Path and git's mode of each file, link and empty folder.
        self._entries: List[Tuple[bytes, bytes]] = []
        os.makedirs(self.folder)

    def write(self, url: str, commit: str) -> None:
        """Write the commit. Raises Failed."""
        self._check_out(url, commit, b"")

    def lines(self) -> List[bytes]:
        """Return the manifest's lines of all files, links and empty folders, sorted by path. Raises Failed."""
        return [self._line(path, mode) for path, mode in sorted(self._entries)]

    def read(self, path: bytes) -> bytes:
        """Return the content of a file. Raises OSError, also for a link."""
        return b"".join(self._chunks(path))

    def has(self, path: bytes) -> bool:
        return any(path == one for one, _ in self._entries)

    def _check_out(self, url: str, commit: str, at: bytes) -> None:
        """Write a commit, and then its submodules, below the path `at`: '', or one with a slash at its end."""
        if _COMMIT.fullmatch(commit) is None:
            raise Failed("system", "this is not a commit: {}".format(ascii(commit)[:80]))
        files = os.path.join(self.folder, os.fsdecode(at))
        folder = names.below(self._store, hashlib.sha256(url.encode("utf-8", "surrogateescape")).hexdigest()[:16])
        hold = Hold("another run fetches from the same repository")
        hold.take(folder, FETCH_S)
        try:
            repo = names.below(folder, "repo")
            self._bring(url, folder, repo, commit)
            inside = ("--git-dir", repo, "--work-tree", files)
            index = {"GIT_INDEX_FILE": names.below(self._tree, "index")}
            self._git.run(*inside, "read-tree", commit, more=index)
            listed = self._git.run(*inside, "ls-files", "--stage", "-z", more=index)
            if len(self._entries) + listed.count(b"\0") > MOST_FILES:
                raise Failed("many", "the commit has more than {} files".format(MOST_FILES))
            self._git.run(*inside, "checkout-index", "--all", "--force", more=index, limit_s=FETCH_S)
            stored = self._git.run(*inside, "ls-files", "-z", "--", ":(attr:filter=lfs)", more=index, folder=files)
            settings = b""
            if b"\t.gitmodules\0" in listed:
                # Of the commit, and not of the folder, where it may be a link.
                blob = "{}:.gitmodules".format(commit)
                settings = self._git.run(*inside, "config", "--no-includes", "--blob", blob, "--null", "--list")
        finally:
            hold.release()
        self._check_lfs([at + path for path in stored.split(b"\0")[:-1]])
        for item in listed.split(b"\0")[:-1]:
            numbers, _, path = item.partition(b"\t")
            if not numbers.startswith(_MODULE):
                self._entries.append((at + path, numbers.partition(b" ")[0]))
        for module in modules(_text(listed), _text(settings), url):
            self._check_out_module(module, at)

    def _check_out_module(self, module: Module, at: bytes) -> None:
        path = at + module.path.encode("utf-8", "surrogateescape")
        self._modules += 1
        if self._modules > MOST_MODULES:
            raise Failed("many", "the commit has more than {} submodules".format(MOST_MODULES))
        below = _path(self.folder, path)
        if os.path.realpath(below) != _path(os.path.realpath(self.folder), path):
            raise Failed("odd", "the submodule {} is behind a link".format(manifest.shown(path)))
        os.makedirs(below, exist_ok=True)
        before = len(self._entries)
        if module.url is None:
            self.without.append(_text(path))
        else:
            try:
                self._check_out(module.url, module.commit, path + b"/")
            except Failed as error:
                text = str(error)
                if not text.startswith("its submodule "):
                    text = "its submodule {}: {}".format(manifest.shown(path), text)
                raise Failed(error.kind, text) from error
        if len(self._entries) == before:
            self._entries.append((path, _MODULE))

    def _check_lfs(self, paths: List[bytes]) -> None:
        """Raise Failed if one of these files is only a pointer: the operator's machine may have git-lfs."""
        for path in paths:
            with contextlib.suppress(OSError):
                if next(self._chunks(path), b"").startswith(_LFS):
                    raise Failed("lfs", "the commit has files of Git LFS")

    def _bring(self, url: str, folder: str, repo: str, commit: str) -> None:
        """Have the commit in the repository of this disk. Fetch it, unless it is there."""
        busy = names.below(folder, "busy")
        heads = os.path.join(repo, "refs", "heads")
        with contextlib.suppress(FileNotFoundError):
            # git locks its files by others beside them, which a killed git leaves there.
            if os.path.exists(busy) or len(os.listdir(heads)) >= MOST_COMMITS:
                shutil.rmtree(repo)
        if os.path.exists(os.path.join(heads, commit)):
            return
        self._git.check(url)
        with open(busy, "w"):
            pass
        self._git.run("init", "--quiet", "--bare", repo)
        # A branch keeps the commit from git's cleaning, and the next fetch brings only what differs from it.
        words = ("--quiet", "--depth=1", "--no-tags", "--force", "--no-recurse-submodules")
        target = "{0}:refs/heads/{0}".format(commit)
        try:
            self._git.run("--git-dir", repo, "fetch", *words, "--", url, target, limit_s=FETCH_S)
        except Failed as error:
            if error.kind != "stopped":
                os.unlink(busy)
            raise
        os.unlink(busy)

    def _line(self, path: bytes, mode: bytes) -> bytes:
        if mode == _MODULE:
            return manifest.folder_line(path)
        try:
            if mode == _LINK:
                return manifest.link_line(path, os.readlink(_path(self.folder, path)))
            seen, size = hashlib.sha256(), 0
            for data in self._chunks(path):
                seen.update(data)
                size += len(data)
            executable = os.lstat(_path(self.folder, path)).st_mode & stat.S_IXUSR
        except OSError as error:
            raise Failed("odd", "git did not write {}: {}".format(manifest.shown(path), error.strerror)) from error
        return manifest.file_line(0o755 if executable else 0o644, seen.hexdigest(), size, path)

    def _chunks(self, path: bytes) -> Iterator[bytes]:
        handle = os.open(_path(self.folder, path), _OPEN)
        try:
            while True:
                data = os.read(handle, _CHUNK)
                if not data:
                    return
                yield data
        finally:
            os.close(handle)


def _path(folder: str, path: bytes) -> bytes:
    return os.path.join(os.fsencode(folder), path)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
