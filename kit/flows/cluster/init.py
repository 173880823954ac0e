"""kit init: write a hosts file and a kit.yaml for you to fill in."""

from __future__ import annotations

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

    Raises InputError, and writes nothing, if one of the files exists and `force` is off.
    """
    from kit.config.sample import HOSTS, sample_config  # noqa: PLC0415  (only for the verb that needs it)

    paths = folder / "hosts", folder / "kit.yaml"
    present = tuple(path for path in paths if path.exists() or path.is_symlink())
    if present and not force:
        names = " and ".join(path.name for path in present)
        raise InputError(
            f"{names} already {'exist' if len(present) > 1 else 'exists'}; nothing was written",
            hint="edit the files, choose another folder, or replace them: kit init --force",
            file=str(present[0]),
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        takes_code = _can_be_code(folder)
        for path, text in zip(paths, (HOSTS, sample_config(code=takes_code)), strict=True):
            # Mode "x" does not overwrite a file that appeared meanwhile.
            with path.open("w" if force else "x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise KitError(
            f"cannot write into {folder}: {error.strerror}", hint="choose a folder that you can write to"
        ) from error
    return InitResult(written=paths, replaced=present, takes_code=takes_code)


def _can_be_code(folder: Path) -> bool:
    """Return whether a run could take this folder as its code. It refuses a home folder and the whole file system."""
    from kit.remote.code.snapshot import checked  # noqa: PLC0415

    try:
        checked(folder)
    except InputError:
        return False
    return True
