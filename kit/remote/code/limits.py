"""How large a snapshot of code may be, and what to write if it is larger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kit.errors import InputError
from kit.model.text import size as size_text

MOST_BYTES = 500_000_000
MOST_FILES = 50_000
# All of it with the lines of its manifest, whose paths are of up to 4 KiB.
MOST_PACK = MOST_BYTES + MOST_FILES * 5_000
# A .kitignore. It may come from a repository of a stranger, and each star costs time.
MOST_IGNORE = 250_000
# The part of a difference that the record of a run keeps.
MOST_DIFF = 1_000_000
_NAMED = 5
_HINT = (
    "list what the run does not need in .kitignore (the syntax of .gitignore); "
    "data belongs on the hosts: name it in data: of kit.yaml"
)


def too_large(folder: str, sizes: Sequence[tuple[str, int]]) -> InputError | None:
    """Return the error for files (path, bytes) that are too many or too large, or None."""
    total = sum(size for _, size in sizes)
    if total > MOST_BYTES:
        largest = sorted(sizes, key=lambda item: (-item[1], item[0]))[:_NAMED]
        names = ", ".join(f"{path} ({size_text(size)})" for path, size in largest)
        return InputError(
            f"the code folder {folder} has {size_text(total)} in {len(sizes):,} files; "
            f"kit takes up to {size_text(MOST_BYTES)}. The largest: {names}",
            hint=_HINT,
        )
    return too_many(folder, [path for path, _ in sizes])


def too_many(folder: str, paths: Sequence[str], *, more: bool = False) -> InputError | None:
    """Return the error for too many files, or None. `more` says that there are more than these."""
    if len(paths) <= MOST_FILES:
        return None
    counts = Counter(path.rpartition("/")[0] or "." for path in paths)
    fullest = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:_NAMED]
    names = ", ".join(f"{name} ({count:,})" for name, count in fullest)
    return InputError(
        f"the code folder {folder} has {'more than ' if more else ''}{len(paths):,} files; "
        f"kit takes up to {MOST_FILES:,}. The folders with the most: {names}",
        hint=_HINT,
    )


def too_long(file: str, size: int) -> InputError | None:
    """Return the error for a .kitignore of too many bytes, or None."""
    if size <= MOST_IGNORE:
        return None
    return InputError(
        f"{file} has {size_text(size)}; kit reads up to {size_text(MOST_IGNORE)}",
        hint="shorten it: a folder's name leaves out all that is in it, and *.bin all files with that ending",
    )
