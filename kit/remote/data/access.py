"""Access: how the hosts read a store, as settings for their rclone. And how kit reads the files that have them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kit.errors import InputError
from kit.model.secret import Secret
from kit.remote.machine.home import expanded

# The remote that kit defines. A remote of the operator's rclone keeps its name.
REMOTE = "kit"
MOST_BYTES = 1 << 20
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")

# Returns the text of a file, or None if it is missing. Raises InputError if it cannot be read.
Read = Callable[[str], str | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Access:
    """`remote` is what rclone reads, such as kit:bucket/path. `settings` are variables of rclone's environment.

    `ca` has certificates (PEM) that rclone trusts instead of its usual ones. `by` is a sentence for people: what opens
    the store, without its value.
    """

    remote: str
    settings: Mapping[str, Secret] = field(repr=False)
    by: str
    ca: str = ""


def settings(type_: str, *, name: str = REMOTE, **options: str) -> dict[str, Secret]:
    """Return the variables of one remote. Options without a value are left out."""
    values = {"type": type_, **options}
    return {variable(name, option): Secret(value.encode()) for option, value in values.items() if value}


def variable(remote: str, option: str) -> str:
    """Return the name of rclone's variable for an option of a remote, as rclone spells it."""
    return f"RCLONE_CONFIG_{remote}_{option.replace('-', '_')}".upper()


def joined(place: str, path: str, remote: str = REMOTE) -> str:
    """Return what rclone reads below a bucket or container."""
    return f"{remote}:{'/'.join(part for part in (place, path.strip('/')) if part)}"


def certificates(name: str, environ: Mapping[str, str], read: Read) -> str:
    """Return the certificates of the file that a variable names, and nothing else of it; '' without the variable."""
    path = environ.get(name, "")
    if not path:
        return ""
    text = read(path)
    if text is None:
        raise InputError(f"{name} names the file {path}, which is missing", hint=f"correct {name}, or unset it")
    blocks = _CERTIFICATE.findall(text)
    if not blocks:
        raise InputError(f"{name} names the file {path}, which has no certificate", hint="name a file in PEM format")
    return "\n".join([*blocks, ""])


def both(first: str, second: str, environ: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the values of two variables that belong together; None if both are missing. Raises InputError for one."""
    values = environ.get(first, ""), environ.get(second, "")
    if all(values):
        return values
    if any(values):
        there, missing = (first, second) if values[0] else (second, first)
        raise InputError(f"{there} is set, but {missing} is not", hint=f"set {missing} as well, or unset {there}")
    return None


def read_file(path: str) -> str | None:
    """Return the text of a file of this machine. None if it is missing."""
    try:
        file = expanded(path)
        if not file.is_file():
            return None
        if file.stat().st_size > MOST_BYTES:
            raise InputError(f"{path} is larger than 1 MB, so it holds no credentials", hint="name the right file")
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise InputError(f"kit cannot read {path}: {why}", hint="check the file and its permissions") from None
