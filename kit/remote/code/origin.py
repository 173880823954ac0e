"""The address of a repository, without a login."""

from __future__ import annotations

import re

_LOGIN = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)(?P<login>[^/?#]*)@")


def without_login(url: str) -> str:
    """Return the URL without a password or token. `git@host:path` and `ssh://git@host/path` keep the user."""
    match = _LOGIN.match(url)
    if not match:
        return url
    user = match["login"].partition(":")[0]
    kept = f"{user}@" if match["scheme"].lower() in ("ssh://", "git+ssh://") else ""
    return match["scheme"] + kept + url[match.end() :]
