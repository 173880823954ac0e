"""The folder of a bench session: session.json first, then a line of samples.jsonl each, on the disk before the next."""

from __future__ import annotations

import fcntl
import os
import shlex
import time
from pathlib import Path

import msgspec
from msgspec import Struct

from kit.errors import InputError, KitError, NotReadyError
from kit.model.bench import META, SAMPLES

FOLDER = "bench"
# ISO 8601, in UTC.
_TIME = "%Y-%m-%dT%H:%M:%SZ"
_START = "to measure one: kit bench, or kit bench --preset egs"


def new_session_id(root: Path, preset: str) -> str:
    """Sorts by time: 20261121-164407-egs. One that there is not yet below `root`/bench."""
    name = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{preset}"
    number = 1
    while (root / FOLDER / (folder := name if number == 1 else f"{name}-{number}")).exists():
        number += 1
    return folder


def now() -> str:
    """Return the time in UTC, ISO 8601, in seconds."""
    return time.strftime(_TIME, time.gmtime())


class _Began(Struct, frozen=True):
    """What of session.json says when the session began."""

    started: str


def sessions(root: Path) -> list[Path]:
    """Return the folders of sessions below `root`/bench, the latest last.

    One with an empty session.json is not a session: a kit that was killed may leave it.
    """
    return sorted((path.parent for path in (root / FOLDER).glob(f"*/{META}") if path.stat().st_size), key=_age)


def _age(folder: Path) -> tuple[str, str]:
    """Return what sorts sessions by their start. The name of a folder does not: --dir chooses it."""
    meta = folder / META
    try:
        return msgspec.json.decode(meta.read_bytes(), type=_Began).started, folder.name
    except (OSError, ValueError, RecursionError):
        # A verb that reads it says what is wrong with it.
        return time.strftime(_TIME, time.gmtime(meta.stat().st_mtime)), folder.name


def find(root: Path, wanted: str) -> Path:
    """Find a session by its id, its beginning or its folder; '' is the latest. Raises InputError.

    A relative folder starts in the current one, as that of --dir, or in `root`.
    """
    known = sessions(root)
    if not wanted:
        if not known:
            raise InputError("there is no session yet", hint=_START)
        return known[-1]
    for direct in (Path(wanted), root / wanted):
        if _has_meta(direct):
            return direct
    matches = [path for path in known if path.name.startswith(wanted)]
    if len(matches) == 1 or wanted in {path.name for path in matches}:
        return matches[0] if len(matches) == 1 else root / FOLDER / wanted
    if not known:
        raise InputError(f"there is no session '{wanted}', and none in {root / FOLDER}", hint=_START)
    names = ", ".join(path.name for path in (matches or known)[-5:])
    what = "more than one session begins with" if matches else "there is no session"
    raise InputError(f"{what} '{wanted}'", hint=f"the latest in {root / FOLDER}: {names}; or give a folder")


def _has_meta(folder: Path) -> bool:
    """Return whether there is a session's folder of this name. Raises KitError if kit may not look."""
    try:
        return (folder / META).is_file()
    except PermissionError as error:
        raise _unreadable(folder / META, error) from error
    except OSError:
        # No folder can have this name, because it is too long.
        return False


def read(folder: Path, name: str) -> str:
    """Return the text of a session's file, or '' if there are no samples yet."""
    try:
        return (folder / name).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        if name == SAMPLES:
            return ""
        raise InputError(f"there is no {name} in {folder}", hint="give the folder that kit bench wrote") from None
    except OSError as error:
        raise _unreadable(folder / name, error) from error


def _unreadable(path: Path, error: OSError) -> KitError:
    return KitError(f"cannot read {path}: {error.strerror}", hint="give the folder of a session that you can read")


def check_new(path: Path) -> None:
    """Raises InputError where this cannot become a session's folder, before an hour of measuring."""
    hint = "name a folder, or one that is not there yet"
    try:
        if path.exists() and not path.is_dir():
            raise InputError(f"--dir: {path} is not a folder", hint=hint)
        if (path / META).exists():
            raise _has_one(path)
    except OSError as error:
        raise InputError(f"--dir: {path} cannot be a folder of yours: {error.strerror}", hint=hint) from error


def _has_one(path: Path) -> InputError:
    hint = f"to continue it: kit bench --resume --session {path}; or give another folder"
    return InputError(f"{path} already has a session", hint=hint)


class BenchFolder:
    """A session's folder, to be written by one kit at a time. Raises KitError where the disk refuses."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._samples = -1

    def begin(self, session: str) -> None:
        """Make the folder with session.json. Raises InputError where there is a session already."""
        meta = self.path / META
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with meta.open("x", encoding="utf-8") as file:
                try:
                    file.write(session)
                    file.flush()
                    os.fsync(file.fileno())
                except BaseException:
                    # Half a session would be the latest one, which no verb can read.
                    meta.unlink()
                    raise
        except FileExistsError:
            raise _has_one(self.path) from None
        except OSError as error:
            raise self._refused(error) from error
        self.open()

    def open(self) -> None:
        """Take the samples for this kit alone. A line that a killed kit left unfinished goes."""
        path = self.path / SAMPLES
        try:
            self._samples = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                fcntl.flock(self._samples, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.close()
                raise NotReadyError(
                    f"another kit bench is writing into {self.path}", hint="wait for its end, or end it with Ctrl-C"
                ) from None
            text = path.read_bytes()
            if text and not text.endswith(b"\n"):
                os.ftruncate(self._samples, text.rfind(b"\n") + 1)
        except OSError as error:
            raise self._stopped(error) from error

    def append(self, line: str) -> None:
        """A whole line, on the disk when this returns."""
        try:
            data = line.encode()
            while data:
                data = data[os.write(self._samples, data) :]
            os.fsync(self._samples)
        except OSError as error:
            raise self._stopped(error) from error

    def close(self) -> None:
        if self._samples >= 0:
            os.close(self._samples)
            self._samples = -1

    def _refused(self, error: OSError) -> KitError:
        """Return the error of a folder that cannot become a session's."""
        return KitError(f"cannot write into {self.path}: {error.strerror}", hint="choose a folder with room: --dir DIR")

    def _stopped(self, error: OSError) -> KitError:
        """Return the error of a session that has begun. --dir would begin another one."""
        again = f"kit bench --resume --session {shlex.quote(str(self.path))}"
        return KitError(
            f"cannot write into {self.path}: {error.strerror}; earlier samples are kept",
            hint=f"free space there or make it writable, then: {again}",
        )
