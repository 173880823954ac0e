"""kit init: write a hosts file and a kit.yaml for you to fill in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kit.errors import InputError, KitError


@dataclass(frozen=True, kw_only=True)
class InitResult:
    """The files that were written, and those that replaced existing files."""

    written: tuple[Path, ...]
    replaced: tuple[Path, ...]


def init(folder: Path, *, force: bool = False) -> InitResult:
    """Write `hosts` and `kit.yaml` into the folder, and create the folder if needed.

    Raises InputError, and writes nothing, if one of the files exists and `force` is off.
    """
    from kit.config.sample import HOSTS, sample_config  # noqa: PLC0415  (only for the verb that needs it)

    contents = {folder / "hosts": HOSTS, folder / "kit.yaml": sample_config()}
    present = tuple(path for path in contents if path.exists() or path.is_symlink())
    if present and not force:
        names = " and ".join(path.name for path in present)
        raise InputError(
            f"{names} already {'exist' if len(present) > 1 else 'exists'}; nothing was written",
            hint="edit the files, choose another folder, or replace them: kit init --force",
            file=str(present[0]),
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in contents.items():
            # Mode "x" does not overwrite a file that appeared meanwhile.
            with path.open("w" if force else "x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise KitError(
            f"cannot write into {folder}: {error.strerror}", hint="choose a folder that you can write to"
        ) from error
    return InitResult(written=tuple(contents), replaced=present)
