"""kit init: write a hosts file and a kit.yaml for you to fill in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct

from kit.errors import InputError, KitError


class InitResult(Struct, frozen=True, kw_only=True):
    """The files that were written, and those that replaced existing files.

    `takes_code`: the kit.yaml takes the code in its folder along, which a run refuses for a home folder.
    """

    written: tuple[Path, ...]
    replaced: tuple[Path, ...]
    takes_code: bool


def init(folder: Path, *, force: bool = False) -> InitResult:
    """Write `hosts` and `kit.yaml` into the folder, and create the folder if needed.

    Raises InputError, and writes nothing, if one of the files exists and `force` is off. Raises KitError if one
    cannot be written. It then keeps what existed, unless the disk became full between the two files.
    """
    from kit.config.sample import HOSTS, sample_config  # noqa: PLC0415  (only for the verb that needs it)

    paths = folder / "hosts", folder / "kit.yaml"
    present = tuple(path for path in paths if _is_present(path))
    if present and not force:
        names = " and ".join(path.name for path in present)
        raise InputError(
            f"{names} already {'exist' if len(present) > 1 else 'exists'}; nothing was written",
            hint="edit the files, choose another folder, or replace them: kit init --force",
            file=str(present[0]),
        )
    with _naming(folder):
        folder.mkdir(parents=True, exist_ok=True)
        takes_code = _can_be_code(folder)
    texts = HOSTS, sample_config(code=takes_code)
    _write(dict(zip(paths, texts, strict=True)), force=force)
    return InitResult(written=paths, replaced=present, takes_code=takes_code)


def _is_present(path: Path) -> bool:
    """Return whether there is a file or a link to nowhere. Raises InputError for a folder, a pipe or a device."""
    with _naming(path):
        if path.exists() and not path.is_file():
            kind = "a folder" if path.is_dir() else "a pipe, a socket or a device"
            raise InputError(f"this is {kind}, not a file", hint="move it away", file=str(path))
        return path.exists() or path.is_symlink()


def _write(contents: Mapping[Path, str], *, force: bool) -> None:
    """Write all the files. If that fails, remove those that did not exist before."""
    from kit.remote.machine.whole import replace_file  # noqa: PLC0415

    new: list[Path] = []
    try:
        # A file that cannot be written must fail before another one is replaced.
        for path in contents:
            is_new = not path.exists()
            with _naming(path):
                # Mode "x" does not overwrite a file that appeared meanwhile. Mode "a" changes nothing.
                path.open("a" if force else "x").close()
            if is_new:
                new.append(path.resolve())
        for path, text in contents.items():
            with _naming(path):
                replace_file(path, [text.encode()])
    except BaseException:
        for path in new:
            with suppress(OSError):
                path.unlink(missing_ok=True)
        raise


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Turn an OSError into a KitError that names this path, and no temporary file."""
    try:
        yield
    except OSError as error:
        raise KitError(
            f"cannot write {path}: {error.strerror}", hint="choose a folder that you can write to"
        ) from error


def _can_be_code(folder: Path) -> bool:
    """Return whether a run could take this folder as its code. It refuses a home folder and the whole file system."""
    from kit.remote.code.snapshot import checked  # noqa: PLC0415

    try:
        checked(folder)
    except InputError:
        return False
    return True
