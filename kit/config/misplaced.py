"""Files that kit does not read: of another name, in the folder above or a missing one, or behind a link to nowhere."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from kit.config.paths import whole
from kit.config.words import shown
from kit.errors import InputError


def refuse_link_to_nowhere(path: Path) -> None:
    """Raise InputError for a link whose file is missing. It is no missing file: defaults would be another cluster."""
    if path.is_symlink():
        target = os.readlink(path)  # noqa: PTH115  (the text)
        raise InputError(
            f"is a link to {shown(target)}, which does not exist",
            hint="mount or restore what it leads to, or remove the link",
            file=str(path),
        )


def refuse_file(folder: Path) -> None:
    """Raise InputError if the folder of -C is a file. -C is easily taken for the flag of kit.yaml."""
    # Unlike those of Path, these functions raise nothing for an unreadable folder, which reading the files reports.
    if os.path.exists(folder) and not os.path.isdir(folder):  # noqa: PTH110, PTH112
        raise InputError(
            f"{shown(str(folder))} is a file, not a folder",
            hint="-C takes a folder; name files with --hosts FILE and --config FILE",
        )


def refuse_missing_folder(folder: Path) -> None:
    """Raise InputError if there is no such folder. It is no folder without files: kit would use all defaults."""
    refuse_file(folder)
    try:
        folder.stat()
    except FileNotFoundError:
        raise InputError(
            f"there is no folder {shown(str(folder))}",
            hint="correct it; `kit -C DIR init` makes a folder with hosts and kit.yaml",
        ) from None
    except (OSError, ValueError):  # reading the files reports it
        return


def refuse_other_names(path: Path, names: Iterable[str]) -> None:
    """Raise InputError if the folder has the file under a name that other tools read. kit would ignore it."""
    other = next((path.with_name(name) for name in names if path.with_name(name).is_file()), None)
    if other is not None:
        import shlex  # noqa: PLC0415  (only for an error)

        raise InputError(
            f"kit reads {path.name}, but this folder has {other.name}",
            hint=f"mv {shlex.quote(str(other))} {shlex.quote(str(path))}",
        )


def file_above(folder: Path, name: str) -> Path | None:
    """Return the file of this name in the folder above, or None if it is missing."""
    path = Path(os.pardir, name) if folder == Path() else whole(folder).parent / name
    return path if os.path.isfile(path) else None  # noqa: PTH113  (an unreadable folder is no error here)


def command_in(folder: Path) -> str:
    """Return the beginning of a command that reads the files of this folder."""
    import shlex  # noqa: PLC0415  (only for a message)

    return f"kit -C {shlex.quote(str(folder))} …"
