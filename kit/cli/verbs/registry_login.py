"""The login that flags give to `kit image push`: the name on the command line, and the password never."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kit.errors import InputError
from kit.model.registry import RegistryLogin, address_of
from kit.remote.machine.credentials import PASSWORD, REGISTRY, is_for, secret_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import SimpleNamespace

    from kit.cli.screen.terminal import Terminal


def registry_login(
    args: SimpleNamespace, terminal: Terminal, environ: Mapping[str, str], registry: str
) -> RegistryLogin | None:
    """Return the login to `registry`, or None without these flags. Raises InputError if half of it is missing or empty.

    The password of the environment must be for this registry: KIT_REGISTRY names it.
    """
    if not args.username:
        if args.password_stdin:
            raise InputError("--password-stdin needs --username", hint="--username NAME --password-stdin <FILE")
        return None
    password = terminal.read().rstrip("\r\n") if args.password_stdin else environ.get(PASSWORD, "")
    if password and not args.password_stdin and not is_for(registry, environ):
        raise InputError(
            f"{PASSWORD} is not known to be for {address_of(registry)}",
            hint=f"export {REGISTRY}={registry}, or give the password with --password-stdin <FILE",
        )
    if not password:
        raise InputError(
            "standard input has no password" if args.password_stdin else "--username needs a password",
            hint=f"--password-stdin <FILE, or set {REGISTRY} and {PASSWORD}",
        )
    source = "standard input" if args.password_stdin else PASSWORD
    return RegistryLogin(user=args.username, secret=secret_of(password, source))
