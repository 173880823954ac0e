"""The login to a registry: from two variables, or from this machine's docker (docker login, credential helpers).

It needs no engine.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping

from kit.errors import ImageError, InputError
from kit.model.registry import RegistryLogin
from kit.model.secret import Secret

USER, PASSWORD = "KIT_REGISTRY_USER", "KIT_REGISTRY_PASSWORD"


def find_login(address: str, environ: Mapping[str, str]) -> RegistryLogin | None:
    """Return the login to the registry at `address`: the two variables', or else docker's, or else None.

    Raises InputError if only one variable is set, and ImageError if docker's credentials cannot be read.
    """
    user, password = environ.get(USER, ""), environ.get(PASSWORD, "")
    if user and password:
        return RegistryLogin(user=user, secret=Secret(password.encode()))
    if user or password:
        present, missing = (USER, PASSWORD) if user else (PASSWORD, USER)
        raise InputError(f"{present} is set, and {missing} is not", hint="set both, or neither to use docker's login")
    return _dockers(address)


def _dockers(address: str) -> RegistryLogin | None:
    from docker import auth  # noqa: PLC0415  (half a second)
    from docker.credentials.errors import StoreError  # noqa: PLC0415
    from docker.errors import DockerException  # noqa: PLC0415

    try:
        with warnings.catch_warnings():
            # The SDK warns of a missing credential helper, and then raises a better error.
            warnings.simplefilter("ignore")
            entry = auth.load_config().resolve_authconfig(address) or {}
    except (DockerException, StoreError, ValueError) as error:
        raise ImageError(
            f"docker's login to {address} cannot be read: {error}",
            hint=f"docker login {address}; or set {USER} and {PASSWORD}",
        ) from error
    # A credential helper capitalizes its fields; docker's file does not.
    fields = {str(name).lower(): value for name, value in entry.items()}
    if fields.get("identitytoken"):
        return RegistryLogin(user="", secret=Secret(str(fields["identitytoken"]).encode()), is_token=True)
    if fields.get("username"):
        return RegistryLogin(user=str(fields["username"]), secret=Secret(str(fields.get("password") or "").encode()))
    return None
