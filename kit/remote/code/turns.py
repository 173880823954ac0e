"""Lets one kit at a time fetch into a repository of your cache, and removes what a killed fetch left there.

git locks its files by others beside them, such as shallow.lock. Two fetches at once fail at these, and a fetch that was
killed leaves them. An flock has neither fault: the system releases it with its process.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct

from kit.errors import KitError

# How long to wait for another kit: as long as a fetch may take, and a little more.
WAIT_S = 1860.0
_POLL_S = 0.1
# A line for the person who waits, this often.
_SAY_EVERY_S = 30.0
# Between its making and its flock, a folder in the making looks unused.
_FRESH_S = 600.0
PART = ".part-"

Say = Callable[[str], None]


class Turn(Struct, frozen=True, kw_only=True):
    """The right to fetch into a repository. `note` writes down which git is at work, for the next kit."""

    descriptor: int | None

    def note(self, git: int) -> None:
        if self.descriptor is not None:
            _write(self.descriptor, f"{os.getpid()} {git}")


@contextlib.contextmanager
def turn(folder: Path, repo: Path, url: str, say: Say, *, wait_s: float = WAIT_S) -> Iterator[Turn]:
    """Wait until no other kit fetches into the repository `repo`, and keep others away. `url` is for messages.

    `folder` has the lock's file. Raises KitError after `wait_s`, and OSError if the file cannot be written.
    """
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        locked = _wait(descriptor, repo, url, say, wait_s)
        if locked:
            _remove_locks(repo)
            _write(descriptor, f"{os.getpid()}")
        yield Turn(descriptor=descriptor if locked else None)
        if locked:
            _write(descriptor, "")
    finally:
        os.close(descriptor)


def _wait(descriptor: int, repo: Path, url: str, say: Say, wait_s: float) -> bool:
    """Return whether the lock is held now. False if this file system has no such locks."""
    began = last_notice = time.monotonic()
    first = True
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _numbers(descriptor)[:1]
        except OSError as error:
            if error.errno in (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS):
                return False
            raise
        else:
            # A kit that was killed leaves its git at work.
            holder = [pid for pid in _numbers(descriptor)[1:2] if _works_on(pid, repo)]
            if not holder:
                return True
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        now = time.monotonic()
        who = f" (process {holder[0]})" if holder else ""
        if now - began >= wait_s:
            raise KitError(
                f"another kit on this machine{who} still fetches {url}, after {wait_s:.0f} s",
                hint=f"wait for it, or end it: kill {holder[0]}" if holder else "wait for it, and run the same again",
            )
        if first or now - last_notice >= _SAY_EVERY_S:
            since = "" if first else f", for {now - began:.0f} s now"
            say(f"waiting for another kit on this machine{who}, which fetches {url}{since}")
            first, last_notice = False, now
        time.sleep(_POLL_S)


def _remove_locks(repo: Path) -> None:
    """Remove the lock files of git. No git works on the repository, so a fetch that was killed left them."""
    for file in repo.rglob("*.lock"):
        with contextlib.suppress(OSError):
            file.unlink()


def _works_on(pid: int, repo: Path) -> bool:
    """Return whether this process is a git that works on the repository. Its number may be another process's now."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
    except OSError:
        if Path("/proc/self").exists():
            return False
        try:
            done = subprocess.run(["ps", "-o", "command=", "-p", str(pid)], capture_output=True, check=False)
        except OSError:
            return False
        words = done.stdout
    return os.fsencode(repo) in words


def _numbers(descriptor: int) -> list[int]:
    """Return the numbers of the processes that the lock's file names: kit's, then that of its git."""
    words = os.pread(descriptor, 100, 0).split()
    return [int(word) for word in words if word.isdigit()]


def _write(descriptor: int, text: str) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, text.encode(), 0)


@contextlib.contextmanager
def in_use(folder: Path) -> Iterator[None]:
    """Keep `prune` of other kits from removing this folder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def prune(folder: Path, count: int) -> None:
    """Remove all but the `count` folders that were used last, and what killed kits left in the making."""
    times: list[tuple[int, Path]] = []
    for path in folder.iterdir():
        # Another kit may have removed or renamed it meanwhile.
        with contextlib.suppress(FileNotFoundError):
            changed = path.stat().st_mtime_ns
            if not path.name.startswith(PART):
                times.append((changed, path))
            elif time.time() - changed / 1e9 > _FRESH_S and not _is_used(path):
                shutil.rmtree(path, ignore_errors=True)
    for _, path in sorted(times, reverse=True)[count:]:
        shutil.rmtree(path, ignore_errors=True)


def _is_used(folder: Path) -> bool:
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False
