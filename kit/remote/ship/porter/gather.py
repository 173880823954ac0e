"""Brings a commit of a git repository into the store of this host, with this host's own git.

Orders come on standard input, reports go to standard output. Both are lines of JSON.

    {"op": "fetch", "url", "commit", "store", "login"}   fetch it. `login` is {"name", "password"}, or null. The answer:
                                                         {"listed": {"lines", "ignore"}}, the lines of a manifest with
                                                         everything in the commit, and the text of its .kitignore
    {"op": "keep", "digest", "remove", "add"}            store the snapshot of this name. The answer: {"kept": true}
    {"op": "beat"}                                       the operator is still there
    {"op": "end"}                                        end, as at the end of standard input

Lines, and what is removed and added (delta.py), are in base64. {"beat": true} goes out while git works. If something
fails, {"failed", "kind"} goes out, and the next order may come: `kind` is git, login (the repository wants one, or
another one), absent (no cluster is here), modules, lfs, many or odd (the commit has what the operator's machine must
fetch), disk, system or bug. The program ends when standard input ends, or is silent for a minute.

    git/<repository>/repo     in the store: the commits that were fetched before. The next one needs only what differs
    git/<repository>/tree-*   the files of the commit, until they are in the store
"""

import base64
import contextlib
import errno
import hashlib
import io
import os
import queue
import re
import shutil
import stat
import sys
import threading
import time
import traceback
from typing import Any, BinaryIO, Dict, Iterator, List, Optional, Tuple, cast

from . import delta, manifest, names, wire
from .git import FETCH_S, Failed, Git
from .hold import Hold
from .store import Store

BEAT_S = 2.0
DEAF_S = 60.0
# More files than code may have, before a .kitignore leaves some out.
MOST_FILES = 200000
# After as many commits, the repository is fetched as a new one.
MOST_COMMITS = 50
_INCOMING = "incoming"
_COMMIT = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")
_MODULE, _LINK = b"160000", b"120000"
_LFS = b"version https://git-lfs.github.com/spec/"
_CHUNK = 1 << 20
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Gather:
    """One commit, from its repository to the store."""

    def __init__(self, reading: io.BufferedReader, writing: BinaryIO) -> None:
        self._reading = reading
        self._writing = writing
        self._lock = threading.Lock()
        self._orders: "queue.Queue[Dict[str, Any]]" = queue.Queue()
        self._heard = time.monotonic()
        self._hold = Hold("another run fetches from the same repository")
        self._git: Optional[Git] = None
        self._store = Store("")
        self._tree = ""
        self._text = b""

    def say(self, value: Dict[str, Any]) -> None:
        with self._lock:
            wire.write_line(self._writing, value)

    def run(self) -> None:
        """Run until the operator is gone."""
        for work in (self._work, self._beat, self._watch):
            threading.Thread(target=work, daemon=True).start()
        try:
            while True:
                order = wire.read_line(self._reading)
                self._heard = time.monotonic()
                if order["op"] == "end":
                    return
                if order["op"] != "beat":
                    self._orders.put(order)
        finally:
            if self._git is not None:
                self._git.stop()
            self._clean()

    def _work(self) -> None:
        while True:
            order = self._orders.get()
            try:
                if order["op"] == "fetch":
                    self._fetch(order)
                else:
                    self._keep(order)
            except Failed as error:
                self._fail(error.kind, str(error))
            except (names.BadName, manifest.BadManifest) as error:
                self._fail("system", str(error))
            except OSError as error:
                self._fail("disk" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "system", str(error))
            except Exception:
                self._fail("bug", traceback.format_exc())

    def _fail(self, kind: str, text: str) -> None:
        self.say({"failed": text, "kind": kind})

    def _beat(self) -> None:
        while True:
            time.sleep(BEAT_S)
            self.say({"beat": True})

    def _watch(self) -> None:
        """End when the operator went away without closing, for example because its machine went to sleep."""
        while time.monotonic() - self._heard < DEAF_S:
            time.sleep(1.0)
        if self._git is not None:
            self._git.stop()
        self._clean()
        os._exit(0)

    def _clean(self) -> None:
        if self._tree:
            shutil.rmtree(self._tree, ignore_errors=True)

    def _fetch(self, order: Dict[str, Any]) -> None:
        commit = str(order["commit"])
        if _COMMIT.fullmatch(commit) is None:
            raise Failed("system", "this is not a commit: {}".format(ascii(commit)[:80]))
        store = str(order["store"])
        if not os.path.isdir(os.path.dirname(store)):
            raise Failed("absent", "no cluster is deployed there")
        self._store = Store(store)
        self._git = Git(str(order["url"]), order["login"])
        names.private(store)
        folder = names.below(store, "git", hashlib.sha256(self._git.url.encode()).hexdigest()[:16])
        self._hold.take(folder, FETCH_S)
        repo = names.below(folder, "repo")
        _bring(self._git, folder, repo, commit)
        for name in os.listdir(folder):
            if name.startswith("tree-"):
                # Of one that was killed.
                shutil.rmtree(names.below(folder, name), ignore_errors=True)
        self._tree = names.below(folder, "tree-{}".format(os.getpid()))
        files = names.below(self._tree, "files")
        os.makedirs(files)
        listed = _check_out(self._git, repo, self._tree, files, commit)
        self._text = manifest.join([_line(files, path, mode) for path, mode in listed])
        lines = base64.b64encode(self._text).decode()
        self.say({"listed": {"lines": lines, "ignore": _ignore(files, [path for path, _ in listed])}})

    def _keep(self, order: Dict[str, Any]) -> None:
        """Store the snapshot: what is listed, changed as the order says."""
        if not self._tree:
            raise Failed("system", "nothing was fetched")
        text = delta.merge(self._text, _split(order["remove"]), _split(order["add"]))
        if manifest.digest(text) != names.digest(order["digest"]):
            raise Failed("system", "this makes another snapshot than {}".format(order["digest"][:12]))
        entries = manifest.parse(text)
        holding = Hold()
        # Another one may remove objects that no manifest names yet.
        holding.take(names.below(self._store.folder, _INCOMING))
        try:
            for entry in entries:
                if entry.kind == manifest.FILE and not self._store.has_object(entry.digest, entry.size):
                    path = os.path.join(self._tree, "files", os.fsdecode(entry.path))
                    os.chmod(path, 0o644)
                    self._store.add_object(path, entry.digest)
            self._store.add(text)
        finally:
            holding.release()
        self.say({"kept": True})


def _bring(git: Git, folder: str, repo: str, commit: str) -> None:
    """Have the commit in the repository of this disk. Fetch it, unless it is there."""
    busy = names.below(folder, "busy")
    heads = os.path.join(repo, "refs", "heads")
    with contextlib.suppress(FileNotFoundError):
        # git locks its files by others beside them, which a killed git leaves there.
        if os.path.exists(busy) or len(os.listdir(heads)) >= MOST_COMMITS:
            shutil.rmtree(repo)
    if os.path.exists(os.path.join(heads, commit)):
        return
    with open(busy, "w"):
        pass
    git.run("init", "--quiet", "--bare", repo)
    # A branch keeps the commit from git's cleaning, and the next fetch brings only what differs from it.
    words = ("--quiet", "--depth=1", "--no-tags", "--force", "--no-recurse-submodules")
    target = "{0}:refs/heads/{0}".format(commit)
    try:
        git.run("--git-dir", repo, "fetch", *words, "--", git.url, target, limit_s=FETCH_S)
    except Failed as error:
        if error.kind == "login":
            # Nothing came.
            os.unlink(busy)
        raise
    os.unlink(busy)


def _check_out(git: Git, repo: str, tree: str, files: str, commit: str) -> List[Tuple[bytes, bytes]]:
    """Write the commit's files. Return the path and git's mode of each, sorted by path. Raises Failed."""
    inside = ("--git-dir", repo, "--work-tree", files)
    index = {"GIT_INDEX_FILE": names.below(tree, "index")}
    git.run(*inside, "read-tree", commit, more=index)
    listed = []
    for item in git.run(*inside, "ls-files", "--stage", "-z", more=index).split(b"\0")[:-1]:
        numbers, _, path = item.partition(b"\t")
        listed.append((path, numbers.partition(b" ")[0]))
    if len(listed) > MOST_FILES:
        raise Failed("many", "the commit has {} files".format(len(listed)))
    if any(mode == _MODULE for _, mode in listed):
        raise Failed("modules", "the commit has submodules")
    git.run(*inside, "checkout-index", "--all", "--force", more=index, limit_s=FETCH_S)
    stored = git.run(*inside, "ls-files", "-z", "--", ":(attr:filter=lfs)", more=index, folder=files)
    for name in stored.split(b"\0")[:-1]:
        if next(_chunks(files, name), b"").startswith(_LFS):
            raise Failed("lfs", "the commit has files of Git LFS")
    return sorted(listed)


def _line(files: str, path: bytes, mode: bytes) -> bytes:
    """Return the manifest's line of a file or link."""
    try:
        if mode == _LINK:
            return manifest.link_line(path, os.readlink(_path(files, path)))
        seen, size = hashlib.sha256(), 0
        for data in _chunks(files, path):
            seen.update(data)
            size += len(data)
        executable = os.lstat(_path(files, path)).st_mode & stat.S_IXUSR
    except OSError as error:
        raise Failed("odd", "git did not write {}: {}".format(manifest.shown(path), error.strerror)) from error
    return manifest.file_line(0o755 if executable else 0o644, seen.hexdigest(), size, path)


def _chunks(files: str, path: bytes) -> Iterator[bytes]:
    handle = os.open(_path(files, path), _OPEN)
    try:
        while True:
            data = os.read(handle, _CHUNK)
            if not data:
                return
            yield data
    finally:
        os.close(handle)


def _path(files: str, path: bytes) -> bytes:
    return os.path.join(os.fsencode(files), path)


def _ignore(files: str, paths: List[bytes]) -> Optional[str]:
    """Return the text of .kitignore in base64, or None without one. Raises Failed."""
    if b".kitignore" not in paths:
        return None
    try:
        return base64.b64encode(b"".join(_chunks(files, b".kitignore"))).decode()
    except OSError as error:
        raise Failed("odd", "its .kitignore is not a file") from error


def _split(text: str) -> List[bytes]:
    return base64.b64decode(text).split(b"\n") if text else []


def main() -> None:
    with contextlib.suppress(wire.Broken, OSError):
        Gather(cast(io.BufferedReader, sys.stdin.buffer), sys.stdout.buffer).run()
    os._exit(0)
