"""Where kept connections have their sockets: a private folder, and a name for each VM as it is known now."""

from __future__ import annotations

import os
import re
import stat
from functools import cache
from pathlib import Path

from kit.model.host import Login
from kit.model.values import replace
from kit.remote.machine.regular import read_regular

# A socket's path has 104 bytes on macOS, 108 on Linux. ssh first makes one with 17 more characters.
_LONGEST = 104 - 17 - 1 - 20
# A known_hosts of a large site may be long.
_MOST_BYTES = 64 * 1024 * 1024
_MOST_INCLUDED = 256
_INCLUDE = re.compile(r"^[ \t]*include(?:[ \t]*=|[ \t])(.*)$", re.IGNORECASE | re.MULTILINE)


def kept(login: Login, folder: Path | None) -> Login:
    """Return the login with the socket of its kept connection in `folder`, or with none."""
    return replace(login, socket=str(folder / _name(login)) if folder else None)


def socket_folder() -> Path | None:
    """Return the user's private folder for sockets, created if needed. None if there can be none: keep nothing then."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    candidates = [Path(runtime) / "kit"] if runtime.startswith("/") else []
    candidates.append(Path(f"/tmp/kit-{os.getuid()}"))  # noqa: S108  (checked below: ours, and closed to others)
    return next((path for path in candidates if len(str(path)) <= _LONGEST and _is_private(path)), None)


def _is_private(path: Path) -> bool:
    """Return whether this is a real folder of ours that only we may enter; create it if it is missing."""
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077


def _name(login: Login) -> str:
    """A VM that was recreated has another host key, and so another name: no connection to the old one is used."""
    known = login.known_hosts or "~/.ssh/known_hosts"
    fields = (login.address, login.user, login.port, login.key, login.known_hosts)
    states = (_state(known), _config_state("~/.ssh/config"), _state(login.key or ""))
    return _sha256(repr(fields + states).encode())[:20]


@cache
def _state(path: str) -> str:
    """Return what changes with the file's content; the same for all hosts of this process."""
    try:
        return _sha256(read_regular(Path(path).expanduser(), most=_MOST_BYTES)) if path else ""
    except (OSError, RuntimeError):
        return ""


@cache
def _config_state(path: str) -> str:
    """Return what changes with this ssh_config, and with the files that it includes."""
    files = [path]
    # The list grows: an included file may include others.
    for file in files:
        new = [name for name in _included(file) if name not in files]
        files += new[: _MOST_INCLUDED - len(files)]
    return " ".join(map(_state, files))


def _included(path: str) -> list[str]:
    """Return the files that an ssh_config includes, also below a Host or Match that may not apply."""
    try:
        text = read_regular(Path(path).expanduser(), most=_MOST_BYTES).decode(errors="surrogateescape")
    except (OSError, RuntimeError):
        return []
    lines = [match[1] for match in _INCLUDE.finditer(text)]
    if not lines:
        return []
    # Few have an Include.
    import shlex  # noqa: PLC0415
    from glob import glob  # noqa: PLC0415

    try:
        words = [word for line in lines for word in shlex.split(line, comments=True)]
    except ValueError:
        # ssh refuses the file, and so connects to nobody.
        return []
    # ssh looks in ~/.ssh for relative names.
    patterns = [os.path.expanduser(word if word[:1] in ("~", "/") else f"~/.ssh/{word}") for word in words]  # noqa: PTH111
    return list(dict.fromkeys(file for pattern in patterns for file in sorted(glob(pattern))))  # noqa: PTH207


def _sha256(data: bytes) -> str:
    import hashlib  # noqa: PLC0415  (slow to import, and a dry run connects to nobody)

    return hashlib.sha256(data).hexdigest()
