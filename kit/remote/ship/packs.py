"""What this machine sends, in a folder that it locks as long as it needs it; and a pack of code in such a folder."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, cast

from kit.model.code import Snapshot
from kit.remote.code.pack import cannot, write_pack
from kit.remote.machine.scratch import scratch_folder
from kit.remote.ship.porter.layers import Layers, Stopped, Withdrawn
from kit.remote.ship.porter.serve import Packing, send
from kit.remote.ship.porter.wire import Broken

_PREFIX = "kit-ship-"


class PackSpool:
    """The pack of code that this machine sends. `close` removes its folder.

    Raises the errors of `write_pack`.
    """

    def __init__(self, snapshot: Snapshot, base: bytes | None) -> None:
        self._folder, self._lock = locked_folder("the pack of the code")
        self.layers = Layers(self._folder)
        try:
            self.pack = write_pack(snapshot, base, Path(self._folder))
            self.layers.admit(str(self.pack.path), self.pack.sha256)
        except BaseException:
            self.close()
            raise

    def provide(self, wanted: set[str]) -> None:
        """Do nothing: the pack is here."""

    def answer(self, need: dict[str, int], put: Callable[[bytes], None]) -> None:
        """Send what an asker lacks, as Spool does."""
        answer_with(self.layers, need, put)

    def close(self) -> None:
        self.layers.stop()
        shutil.rmtree(self._folder, ignore_errors=True)
        os.close(self._lock)


def answer_with(layers: Layers, need: dict[str, int], put: Callable[[bytes], None]) -> None:
    with contextlib.suppress(Stopped, Withdrawn, OSError, Broken):
        send(need, cast(BinaryIO, _Writing(put)), layers, Packing())


class _Writing:
    def __init__(self, put: Callable[[bytes], None]) -> None:
        self._put = put

    def write(self, data: bytes) -> int:
        self._put(data)
        return len(data)

    def flush(self) -> None:
        pass


def locked_folder(what: str) -> tuple[str, int]:
    """Make and lock a folder for `what`, on a disk. Remove those that no kit has locked.

    Raises KitError if this machine has no room for it.
    """
    parent = scratch_folder(os.environ)
    try:
        _remove_abandoned(parent)
        return _made_and_locked(parent)
    except OSError as error:
        raise cannot(parent, error, what) from error


def _remove_abandoned(parent: Path) -> None:
    for old in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            # In a folder for all users, another one can plant such a name, with a link to any file or device.
            status = old.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
                continue
            lock = os.open(old / "lock", os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(old, ignore_errors=True)
            finally:
                os.close(lock)


def _made_and_locked(parent: Path) -> tuple[str, int]:
    while True:
        folder = tempfile.mkdtemp(prefix=_PREFIX, dir=parent)
        try:
            lock = os.open(Path(folder) / "lock", os.O_RDWR | os.O_CREAT, 0o600)
            try:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    # Another kit may have taken it for an abandoned one before this lock was held.
                    if os.fstat(lock).st_nlink:
                        return folder, lock
            except BaseException:
                os.close(lock)
                raise
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        os.close(lock)
