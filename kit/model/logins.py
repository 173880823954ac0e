"""Logins in text: a user and a password, or a token, in a URL. What kit prints leaves them out."""

from __future__ import annotations

import re

# A password may contain a slash by mistake: what follows the colon is then no port. The pattern leaves out an IPv6
# address, and the words of a hint. Each part has a limit, because a value may be as long as the file.
_IN_URL = (
    r"(?<=://)(?!USER:PASSWORD@)(?!\[[0-9A-Fa-f:.]{2,45}\](?::[0-9]{1,5})?(?:/|$))"
    r"(?:[^\s/]{0,2000}|[^\s/:@]{0,200}:(?![0-9]{1,5}(?:/|$))\S{0,2000})@"
)
# Before the @ of an address without a scheme. The pattern leaves out the digest of an image, and the host of
# git+HOST:PATH@BRANCH.
_BARE = r"(?<![^\s'\"\[{(,=])(?!git\+)[^\s/:@'\"]{1,200}:[^\s/@'\"]{1,2000}@(?!sha256:)"
_LOGIN = re.compile(f"{_IN_URL}|{_BARE}")
_URL_LOGIN = re.compile(_IN_URL)
# pip puts the value of such a variable in its place.
_VARIABLE = re.compile(r"\$\{[A-Z0-9_]+\}")


def without_logins(text: str) -> str:
    """Return the text with … in place of users and passwords of URLs. `git@host:path` has no password, and stays."""
    return _LOGIN.sub("…@", text)


def has_login(text: str) -> bool:
    """Return whether a URL in the text has a password or a token.

    The user of `ssh://git@host` does not count, nor does the name of a variable, as in `https://${TOKEN}@host`.
    """
    for match in _URL_LOGIN.finditer(text):
        user, _, password = match[0][:-1].partition(":")
        if not password and text[: match.start()].lower().endswith("ssh://"):
            continue
        if (user or password) and not _VARIABLE.fullmatch(password or user):
            return True
    return False
