"""Which known_hosts files Python's ssh reads as OpenSSH does. It knows no markers and no patterns."""

from __future__ import annotations

import re
from pathlib import Path

from kit.remote.machine.home import expanded
from kit.remote.machine.regular import read_regular

SITE = Path("/etc/ssh/ssh_known_hosts")
_MOST_BYTES = 64 * 1024 * 1024
_BASE64 = rb"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"
_HASHED = rb"\|1\|[A-Za-z0-9+/]{27}=\|[A-Za-z0-9+/]{27}="
# Names without patterns (* and ?), exceptions (!) and markers (@cert-authority, @revoked).
_NAMES = rb"[^\s@#|*?!][^\s*?!|]*"
_LINE = re.compile(rb"(?:%s|%s) [A-Za-z0-9@.-]+ %s(?:[ \t].*)?" % (_HASHED, _NAMES, _BASE64))


def files(known_hosts: str | None) -> list[Path]:
    """Return the files with the host keys of VMs: the one that kit.yaml names, or those of ssh."""
    return [Path(known_hosts)] if known_hosts else [expanded("~/.ssh/known_hosts"), SITE]


def is_plain(known_hosts: str | None) -> bool:
    """Return whether each line has names, a kind of key and a key. Missing files are plain."""
    for path in files(known_hosts):
        try:
            content = read_regular(path, most=_MOST_BYTES)
            content.decode()
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError):
            return False
        lines = (line.strip() for line in content.splitlines())
        if not all(_LINE.fullmatch(line) for line in lines if line and not line.startswith(b"#")):
            return False
    return True
