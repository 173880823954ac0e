"""Mounts a source that rclone reads at a folder of this host. Nothing is copied.

Where the mount is writable, a file goes to the store while a program writes it, and is there when the program's close
returns. Nothing waits on a disk, so nothing is lost if rclone or the host ends later.

rclone serves the mount for as long as it runs: `Mount.close` ends both.
"""

import contextlib
import os
import re
import shutil
import stat
import sys
import tempfile
import threading
import time
from typing import Callable, Optional, Tuple

from kitdata import fuse
from kitdata.rclone import FLAGS, ROOT, Rclone
from kitdata.rclone_process import START_S, Ended, Running
from kitdata.source import SourceError, shown

# The program that mounts for rclone: under this name, kit-data is one (kitdata.fuse).
HELPER = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__)))), "bin", "kit-data")
NAME = "fusermount3"
# Without a cache of rclone's, a file costs no disk and little memory, and an error of the store reaches the writer.
_MOUNT = ("--allow-other", "--vfs-cache-mode", "off")
# Everybody on the nodes may read, or write: a store has no owners of files. rclone keeps a list of a folder for five
# minutes. Where hosts write, the others see it after a second.
_READ = ("--read-only", "--umask", "022", "--dir-perms", "0755", "--file-perms", "0644")
_WRITE = ("--umask", "000", "--dir-perms", "0777", "--file-perms", "0666", "--dir-cache-time", "1s")
# S3 takes 10,000 parts, and rclone does not know how large a file that it writes will be: with its parts of 5 MiB, 49
# GiB would be the most. With these it is 156 GiB, and each file needs 64 MiB of memory meanwhile. No bucket is made.
_PARTS = ("--s3-chunk-size", "16Mi", "--s3-upload-concurrency", "4", "--s3-no-check-bucket")
# A bucket with uniform access, the default of Google's console, refuses lists of rights for single objects. rclone
# sends them otherwise.
_RIGHTS = ("--gcs-bucket-policy-only",)
# S3 gives an object that it encrypts with a key of KMS an ETag that looks like an MD5, but is not one. So rclone must
# not compare it with what is read, written or renamed. It compares sizes alone, because --ignore-checksum by itself
# would compare times, which S3 changes. All files go up in parts: each part has an MD5, which S3 compares.
_READ_ETAGS = ("--no-checksum",)
_WRITE_ETAGS = (
    "--s3-use-multipart-etag=false", "--streaming-upload-cutoff", "0", "--ignore-checksum", "--size-only"
)  # fmt: skip
# A store has no empty folders. With these objects, other hosts see a folder that a rank has made for all of them.
_MARKERS = ("--s3-directory-markers", "--gcs-directory-markers", "--azureblob-directory-markers")
# No one repeats a read that fails: the program that reads gets the error. So rclone tries more often than for a copy.
_LIMITS = ("--contimeout", "10s", "--timeout", "30s", "--low-level-retries", "5", "--retries", "1")
# rclone passes on what the program printed, and says that it failed. Neither is the fault of the source.
_UNMOUNTED = re.compile("(?:mount helper error|failed to mount FUSE fs): (.*)")


def flags(*, write: bool, etags: bool) -> Tuple[str, ...]:
    """Return what rclone needs to mount for readers, or also for writers. `etags`: see Source."""
    words = (*_WRITE, *_PARTS, *_RIGHTS, *_MARKERS) if write else _READ
    return (*words, *(_READ_ETAGS if etags else ()), *(_WRITE_ETAGS if etags and write else ()))


class MountFailed(Exception):
    """This host cannot mount. The text says why, in one line without secrets.

    `kind` is mount, or mount-files: there are files that the mount would hide.
    """

    def __init__(self, text: str, kind: str = "mount") -> None:
        super().__init__(text)
        self.kind = kind


class Mount:
    """One mount of a source. `point` is its absolute path, and `memory` a folder for what must be on no disk.

    With `write`, programs may write there. `close` may come at any time, from any thread.
    """

    def __init__(self, source: Rclone, point: str, memory: str, *, write: bool = False) -> None:
        self._source = source
        self._write = write
        self._point = os.path.join(os.path.realpath(os.path.dirname(point)), os.path.basename(point))
        self._folder = tempfile.mkdtemp(prefix="mount-", dir=memory)
        # While it is held, nobody else closes.
        self._closing = threading.Lock()
        self._closed = False
        self._lock = threading.Lock()
        self._stopped = False
        self._rclone: Optional[Running] = None

    @property
    def alive(self) -> bool:
        """Whether the mount is there, and rclone serves it."""
        return not self._stopped and self._rclone is not None and self._rclone.alive and self.attached

    @property
    def attached(self) -> bool:
        """Whether the mount is there. Somebody else may have detached it, or rclone may just have died."""
        return bool(fuse.kinds(self._point))

    def start(self) -> None:
        """Mount, and return when the files can be read. Raises SourceError, and MountFailed. Then nothing is mounted.

        The errors of the source are those of a staging.
        """
        try:
            self._prepare()
            # rclone mounts a store that refuses or is away as an empty folder.
            if self._source.alone(empty=self._write):
                text = "%s is a single file: only a folder can be mounted" % self._source.label
                raise SourceError("source-file", text)
            self._source.close()
            self._begin()
            self._await()
        except BaseException:
            self.close()
            raise

    def watch(self, ended: Callable[["Mount"], None]) -> None:
        """Call `ended` when rclone has ended. Then nothing is mounted any more, except that a writable mount stays."""
        threading.Thread(target=self._watch, args=(ended,), name="kit-data-mount", daemon=True).start()

    def close(self, *, detach: bool = True) -> None:
        """Detach the mount, unless `detach` is false, and end rclone. Reads and writes that are under way fail."""
        with self._lock:
            self._stopped = True
            rclone = self._rclone
        with self._closing:
            if self._closed:
                return
            self._source.close()
            if rclone is not None:
                # First, so that nobody opens a file of an rclone that has ended. Then what was mounted at this moment.
                if detach:
                    self._detach()
                rclone.end()
                if detach:
                    self._detach()
            shutil.rmtree(self._folder, ignore_errors=True)
            self._closed = True

    def _prepare(self) -> None:
        """Make the folder, without the mount that an earlier process has left. Raises MountFailed."""
        try:
            fuse.detach(self._point)
            with contextlib.suppress(FileExistsError):
                os.mkdir(self._point, 0o755)
            usable = not fuse.kinds(self._point) and stat.S_ISDIR(os.lstat(self._point).st_mode)
            hidden = os.listdir(self._point) if usable else []
        except OSError as error:
            raise MountFailed("%s cannot be prepared: %s" % (self._point, error.strerror)) from None
        if not usable:
            raise MountFailed("%s is no plain folder" % self._point)
        if hidden:
            text = (
                "its folder on this host has files (%s), which the mount would hide: they were written without a mount"
            )
            raise MountFailed(text % shown(min(hidden)), "mount-files")
        try:
            os.close(os.open(fuse.DEVICE, os.O_RDWR))
        except OSError as error:
            text = "this host has no FUSE: %s cannot be opened: %s"
            raise MountFailed(text % (fuse.DEVICE, error.strerror)) from None

    def _begin(self) -> None:
        """Start rclone. Only its PATH has the program that mounts."""
        folder = os.path.join(self._folder, "bin")
        os.mkdir(folder)
        # Nothing in this folder could be executed, but a link to a program elsewhere can.
        os.symlink(HELPER, os.path.join(folder, NAME))
        path = os.pathsep.join((folder, os.environ.get("PATH", os.defpath)))
        env = {
            "PATH": path, fuse.POINT: self._point, fuse.NAME: self._source.label, "PYTHONDONTWRITEBYTECODE": "1"
        }  # fmt: skip
        if self._write:
            env[fuse.WRITE] = "1"
        words = (*_MOUNT, *flags(write=self._write, etags=self._source.etags), *FLAGS)
        with self._lock:
            if self._stopped:
                raise MountFailed("the mount was stopped")
            program = self._source.program(env, self._folder, _LIMITS)
            try:
                self._rclone = Running(program.start("mount", ROOT + ":", self._point, *words))
            except Ended as ended:
                raise MountFailed(str(ended)) from None

    def _await(self) -> None:
        """Wait until rclone has mounted, and has listed the source there."""
        assert self._rclone
        limit = time.monotonic() + START_S
        while not fuse.kinds(self._point):
            if not self._rclone.alive:
                raise self._failure(self._rclone.ended())
            if time.monotonic() > limit:
                raise MountFailed("rclone has mounted nothing within %d s" % START_S)
            time.sleep(0.02)
        try:
            os.listdir(self._point)
        except OSError as error:
            if not self._rclone.alive:
                raise self._failure(self._rclone.ended()) from None
            raise self._source.meaning(self._rclone.printed() or str(error.strerror)) from None

    def _failure(self, ended: Ended) -> Exception:
        """Return what it means that rclone has ended."""
        if self._stopped:
            return MountFailed("the mount was stopped")
        match = _UNMOUNTED.search(str(ended))
        return MountFailed(match.group(1)[:300]) if match else self._source.meaning(str(ended))

    def _watch(self, ended: Callable[["Mount"], None]) -> None:
        assert self._rclone
        self._rclone.wait()
        if not self._stopped:
            text = self._source.meaning(str(self._rclone.ended())).text
            print("kit-data: the mount has ended: %s" % text, file=sys.stderr, flush=True)
        # Without a writable mount, ranks would go on to write to this host's disk. With a dead one, their writes fail.
        self.close(detach=not self._write)
        ended(self)

    def _detach(self) -> None:
        with contextlib.suppress(OSError):
            fuse.detach(self._point)
