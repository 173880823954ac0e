"""The login that `kit image push` is given by flags: the name on the command line, the password never."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from kit.cli.screen.terminal import Terminal
from kit.errors import InputError
from kit.model.registry import RegistryLogin
from kit.model.secret import Secret

_VARIABLE = "KIT_REGISTRY_PASSWORD"


def registry_login(args: argparse.Namespace, terminal: Terminal, environ: Mapping[str, str]) -> RegistryLogin | None:
    """None where no flag says anything. Raises InputError where only a half is said, or nothing comes."""
    if not args.username:
        if args.password_stdin:
            raise InputError("--password-stdin needs --username", hint="--username NAME --password-stdin <FILE")
        return None
    password = environ.get(_VARIABLE, "")
    if args.password_stdin:
        password = terminal.read().rstrip("\r\n")
    if not password:
        raise InputError(
            "nothing came on standard input" if args.password_stdin else "--username without a password",
            hint=f"--password-stdin <FILE, or set {_VARIABLE}",
        )
    return RegistryLogin(user=args.username, secret=Secret(password.encode()))
