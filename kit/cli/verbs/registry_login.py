"""The login that flags give to `kit image push`: the name on the command line, the password never."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kit.errors import InputError
from kit.model.registry import RegistryLogin
from kit.model.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import SimpleNamespace

    from kit.cli.screen.terminal import Terminal

_VARIABLE = "KIT_REGISTRY_PASSWORD"


def registry_login(args: SimpleNamespace, terminal: Terminal, environ: Mapping[str, str]) -> RegistryLogin | None:
    """Return the login, or None without these flags. Raises InputError if half of it is missing or empty."""
    if not args.username:
        if args.password_stdin:
            raise InputError("--password-stdin needs --username", hint="--username NAME --password-stdin <FILE")
        return None
    password = environ.get(_VARIABLE, "")
    if args.password_stdin:
        password = terminal.read().rstrip("\r\n")
    if not password:
        raise InputError(
            "standard input has no password" if args.password_stdin else "--username needs a password",
            hint=f"--password-stdin <FILE, or set {_VARIABLE}",
        )
    return RegistryLogin(user=args.username, secret=Secret(password.encode()))
