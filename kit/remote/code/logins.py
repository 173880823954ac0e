"""Your login for a git repository on the web, as your own git knows it. It never gets onto a disk by kit."""

from __future__ import annotations

import subprocess
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from kit.model.repository import Repository, without_login
from kit.model.secret import Secret
from kit.remote.code.environment import environment

# A credential helper may open a window, in which you log in.
_ASK_S = 120
_WEB = ("http", "https")


class GitLogin(Struct, frozen=True, kw_only=True):
    """A login for the host of one repository."""

    name: str
    password: Secret


def rewritten(source: Repository) -> str:
    """Return the URL that your git uses in place of the source's (`url.*.insteadOf`). It may have a login in it."""
    done = _git("ls-remote", "--get-url", "--", source.url)
    return done.strip() or source.url


def is_on_web(url: str) -> bool:
    """Return whether a login for the URL, if it needs one, is a name and a password."""
    return url.startswith(tuple(f"{scheme}://" for scheme in _WEB))


def login_in(url: str) -> GitLogin | None:
    """Return the login that is in the URL itself, if it is whole."""
    parts = urlsplit(url)
    if not parts.password:
        return None
    return GitLogin(name=unquote(parts.username or ""), password=Secret(unquote(parts.password).encode()))


def is_public(url: str) -> bool:
    """Return whether the repository answers without a login. Then no host needs one, whatever it says."""
    return bool(_git("-c", "credential.helper=", "ls-remote", "--", without_login(url), "HEAD"))


def login_for(url: str) -> GitLogin | None:
    """Ask your git's credential helpers for the login of a URL. None if they have none: git asks nobody."""
    parts = urlsplit(url)
    question = {
        "protocol": parts.scheme,
        "host": urlsplit(without_login(url)).netloc,
        "path": parts.path.removeprefix("/"),
        "username": unquote(parts.username or ""),
    }
    if any("\n" in value or "\0" in value for value in question.values()):
        return None
    lines = "".join(f"{name}={value}\n" for name, value in question.items() if value)
    answer = dict(line.partition("=")[::2] for line in _git("credential", "fill", text=f"{lines}\n").splitlines())
    if not answer.get("password"):
        return None
    return GitLogin(name=answer.get("username", ""), password=Secret(answer["password"].encode()))


def _git(*words: str, text: str = "") -> str:
    """Return what git prints, or '' if it fails."""
    try:
        done = subprocess.run(
            ["git", *words],
            input=text.encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_ASK_S,
            env=environment() | {"GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "", "SSH_ASKPASS": ""},
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "" if done.returncode else done.stdout.decode(errors="replace")
