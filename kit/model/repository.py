"""A git repository that has a run's code: `git+URL@REF`."""

from __future__ import annotations

import re

from msgspec import Struct

PREFIX = "git+"
COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_LOGIN = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)(?P<login>[^/?#]*)@")
# What git takes: a URL with a scheme, host:path over ssh, or a folder of this machine. The host ends before the path.
_URL = re.compile(r"(?:(?:https?|ssh|git|file)://[^/\s]*/|[A-Za-z0-9_][^/:\s]*:(?!//|:)|/)(?P<path>[^\s]+)")


class Repository(Struct, frozen=True, kw_only=True):
    """`url` may have a login in it. `ref` is a branch, a tag or a commit; '' for the repository's own choice."""

    url: str
    ref: str

    @property
    def shown(self) -> str:
        """What kit prints and records: `git+URL@REF` without a login."""
        return f"{PREFIX}{without_login(self.url)}" + (f"@{self.ref}" if self.ref else "")


def is_repository(text: str) -> bool:
    return text.startswith(PREFIX)


def repository(text: str) -> Repository:
    """Return the parts of `git+URL@REF`. Raises ValueError if it is not that."""
    match = _URL.fullmatch(text.removeprefix(PREFIX))
    if not match or text.startswith(f"{PREFIX}-"):
        raise ValueError("looks like no repository")
    # An @ before the path belongs to the login.
    path, at, ref = match["path"].rpartition("@")
    if not at:
        return Repository(url=match[0], ref="")
    if not path or not ref or ref.startswith("-"):
        raise ValueError("has an @ with nothing before or after it")
    return Repository(url=match[0].removesuffix(f"@{ref}"), ref=ref)


def without_login(url: str) -> str:
    """Return the URL without a password or token. `git@host:path` and `ssh://git@host/path` keep the user."""
    match = _LOGIN.match(url)
    if not match:
        return url
    user = match["login"].partition(":")[0]
    kept = f"{user}@" if match["scheme"].lower() in ("ssh://", "git+ssh://") else ""
    return match["scheme"] + kept + url[match.end() :]


def masked(text: str, url: str) -> str:
    """Return the text without the login that is in `url`."""
    match = _LOGIN.match(url)
    if not match:
        return text
    text = text.replace(url, without_login(url)).replace(f"{match['login']}@", "")
    secret = match["login"].partition(":")[2]
    return text.replace(secret, "***") if secret else text
