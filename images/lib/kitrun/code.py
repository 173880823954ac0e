"""Seeds a run's working folder on one node with the snapshot of the code that the run names.

The store is in the cluster's folder on the VM, which containers see read-only. kit writes it
(kit/remote/ship/porter/code.py has its layout), and kit/remote/ship/porter/manifest.py defines what a manifest is.
"""

import contextlib
import errno
import hashlib
import os
import sys
from typing import Dict, List, NoReturn, Optional, Sequence

from kitrun import store

STORE = "/etc/kit/code"
# On the head: touched when a node lacked the code of a run. What was confirmed before that may be wrong.
MISSING = "code.missing"
WORK = "work"
# The supervisor finds this in what mpirun prints.
MARK = "kit-code: "
# kit's exit code for a host on which a step failed.
HOST_FAILED = 4
_ESCAPES = (("\\t", "\t"), ("\\n", "\n"), ("\\r", "\r"))
_CHUNK = 1 << 20


class NoCode(Exception):
    """The working folder cannot be seeded here."""


def snapshots(stores: Optional[str] = None, root: Optional[str] = None) -> "Dict[str, List[str]]":
    """Return the snapshots that this head has, the newest first, with the hosts that are known to have each."""
    stores = stores or STORE
    since = 0.0
    with contextlib.suppress(OSError):
        since = os.stat(_missing(root)).st_mtime
    folder = os.path.join(stores, "manifests")
    by_age = []
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if len(name) == 64:
                with contextlib.suppress(OSError):
                    by_age.append((os.stat(os.path.join(folder, name)).st_mtime, name))
    hosts: Dict[str, List[str]] = {}
    for _, name in sorted(by_age, reverse=True):
        hosts[name] = []
        with contextlib.suppress(OSError), open(os.path.join(stores, "confirmed", name)) as file:
            if os.fstat(file.fileno()).st_mtime > since:
                hosts[name] = file.read().split()
    return hosts


def doubt(root: Optional[str] = None) -> None:
    """Write down, on the head, that a node lacked code that was confirmed."""
    with contextlib.suppress(OSError), open(_missing(root), "w"):
        pass


def _missing(root: Optional[str]) -> str:
    return os.path.join(os.path.dirname(root or store.ROOT), MISSING)


def seed(run_id: str, digest: str, stores: Optional[str] = None, root: Optional[str] = None) -> str:
    """Make the run's working folder with the snapshot, and return its path. A folder that is here stays the same.

    Raises NoCode if the snapshot is not here, and OSError if the disk is full.
    """
    stores = stores or STORE
    run = store.Run(run_id, root)
    folder = run.path(WORK)
    if os.path.isdir(folder):
        return folder
    text = _manifest(digest, stores)
    os.makedirs(run.folder, mode=0o700, exist_ok=True)
    partial = run.path(WORK + ".part")
    store.remove_folder(partial)
    os.mkdir(partial, 0o755)
    try:
        _fill(partial, text, stores)
    except BaseException:
        store.remove_folder(partial)
        raise
    os.rename(partial, folder)
    return folder


def settle(run_id: str, digest: str, stores: Optional[str] = None, root: Optional[str] = None) -> None:
    """Remove what the run has not changed from its working folder. What it made stays, and the code is in the store."""
    stores = stores or STORE
    folder = store.Run(run_id, root).path(WORK)
    try:
        text = _manifest(digest, stores)
    except NoCode:
        return
    parents = {folder}
    for line in text.split("\n")[1:-1]:
        kind, _, name, size, path, *target = line.split("\t")
        path = os.path.join(folder, _plain(path))
        parents.add(path if kind == "d" else os.path.dirname(path))
        with contextlib.suppress(OSError):
            if kind == "l" and os.readlink(path) == _plain(target[0]):
                os.unlink(path)
            elif kind == "f":
                now = os.lstat(path)
                if now.st_size == int(size) and now.st_mtime_ns == os.stat(_object(stores, name)).st_mtime_ns:
                    os.unlink(path)
    for parent in sorted(parents, key=len, reverse=True):
        # Python makes these again from the code.
        store.remove_folder(os.path.join(parent, "__pycache__"))
        _remove_empty(parent, folder)


def _remove_empty(path: str, top: str) -> None:
    """Remove a folder if it is empty, and then those above it, up to `top`."""
    with contextlib.suppress(OSError):
        while len(path) >= len(top):
            os.rmdir(path)
            path = os.path.dirname(path)


def _object(stores: str, digest: str) -> str:
    return os.path.join(stores, "objects", digest[:2], digest)


def _manifest(digest: str, stores: str) -> str:
    try:
        with open(os.path.join(stores, "manifests", digest), "rb") as file:
            data = file.read()
    except OSError as error:
        raise NoCode("the snapshot %s of the code is not here (%s)" % (digest[:12], error.strerror)) from error
    if hashlib.sha256(data).hexdigest() != digest:
        raise NoCode("the snapshot %s of the code is damaged here" % digest[:12])
    return data.decode("utf-8", "surrogateescape")


def _fill(folder: str, manifest: str, stores: str) -> None:
    made = {folder}
    for line in manifest.split("\n")[1:-1]:
        kind, mode, digest, size, path, *target = line.split("\t")
        path = os.path.join(folder, _plain(path))
        parent = os.path.dirname(path)
        if parent not in made:
            os.makedirs(parent, exist_ok=True)
            made.add(parent)
        if kind == "f":
            _copy(_object(stores, digest), path, int(size), int(mode, 8))
        elif kind == "l":
            os.symlink(_plain(target[0]), path)
        else:
            os.mkdir(path)


def _plain(text: str) -> str:
    if "\\" not in text:
        return text
    return "\\".join(_unescaped(part) for part in text.split("\\\\"))


def _unescaped(text: str) -> str:
    for escape, letter in _ESCAPES:
        text = text.replace(escape, letter)
    return text


def _copy(source: str, path: str, size: int, mode: int) -> None:
    try:
        given = os.open(source, os.O_RDONLY)
    except OSError as error:
        raise NoCode("a file of the code is not here: %s (%s)" % (os.path.basename(path), error.strerror)) from error
    try:
        times = os.fstat(given)
        out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        try:
            count = 0
            while True:
                data = os.read(given, _CHUNK)
                if not data:
                    break
                view = memoryview(data)
                while view:
                    view = view[os.write(out, view) :]
                count += len(data)
        finally:
            os.close(out)
    finally:
        os.close(given)
    # With the object's own time, `settle` sees whether the run has changed the file.
    os.utime(path, ns=(0, times.st_mtime_ns))
    if count != size:
        raise NoCode("a file of the code is damaged here: %s" % os.path.basename(path))


def why(error: Exception) -> str:
    """Return the reason in a line."""
    if isinstance(error, OSError):
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        return "no space left for the working folder" if full else "the working folder cannot be made: %s" % error
    return str(error)


def main(argv: Sequence[str]) -> NoReturn:
    """Seed the folder of a run on this node, and become the command: kit-code RUN DIGEST COMMAND [ARGUMENT...]."""
    if len(argv) < 3:
        sys.stderr.write("usage: kit-code RUN DIGEST COMMAND [ARGUMENT...]\n")
        sys.exit(2)
    run_id, digest, *command = argv
    try:
        seed(run_id, digest)
    except (NoCode, OSError, ValueError) as error:
        # One write, so that the lines of several nodes do not mix.
        text = "%s%s: %s\n" % (MARK, os.environ.get("KIT_NODE", "-"), why(error))
        os.write(2, text.encode("utf-8", "backslashreplace"))
        sys.exit(HOST_FAILED)
    os.execvpe(command[0], command, dict(os.environ, KIT_RUN=run_id))  # noqa: S606  (mpirun's daemon)
