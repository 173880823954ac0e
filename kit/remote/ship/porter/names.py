"""Names that come over a wire, and the paths that they become. Only this module turns a name into a path."""

import os
import re
import stat

DIGEST = re.compile("[0-9a-f]{64}")
# The first character is no dot, and no character is a slash. So a name is one file of its folder.
_NAME = re.compile("[0-9A-Za-z][0-9A-Za-z._-]{0,200}")


class BadName(ValueError):
    """Something else than a name. It becomes no path."""


def is_digest(word: object) -> bool:
    """Return whether this is a SHA-256 in hexadecimal."""
    return isinstance(word, str) and DIGEST.fullmatch(word) is not None


def digest(word: object) -> str:
    """Return a SHA-256 in hexadecimal. Raises BadName for anything else."""
    if not isinstance(word, str) or DIGEST.fullmatch(word) is None:
        raise BadName("this is not a digest: {}".format(ascii(word)[:80]))
    return word


def below(folder: str, *names: str) -> str:
    """Return the path of names below the folder, which it cannot leave. Raises BadName."""
    for name in names:
        if not isinstance(name, str) or _NAME.fullmatch(name) is None:
            raise BadName("this is not the name of a file: {}".format(ascii(name)[:80]))
    return os.path.join(folder, *names)


def private(path: str) -> None:
    """Make a folder that only this user can read. Raises OSError if it is a link, or belongs to another user."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            raise
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(handle).st_uid != os.geteuid():
            raise PermissionError(1, "it belongs to another user", path)
        os.fchmod(handle, 0o700)
    finally:
        os.close(handle)
