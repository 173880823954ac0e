"""The login to a registry: from variables, or from this machine's docker (docker login, credential helpers).

kit.yaml names the registry, and you may have got it from somebody else. So a login goes only to the registry that it is
for: docker stores logins by registry, and the variables need KIT_REGISTRY beside them. This needs no engine.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping

from kit.errors import ImageError, InputError
from kit.model.registry import RegistryLogin, address_of, is_same
from kit.model.secret import Secret

REGISTRY, USER, PASSWORD = "KIT_REGISTRY", "KIT_REGISTRY_USER", "KIT_REGISTRY_PASSWORD"


def find_login(registry: str, environ: Mapping[str, str]) -> RegistryLogin | None:
    """Return the login to the registry: the variables', if it is for this registry, or else docker's, or else None.

    Raises InputError if only one of its variables is set or its password is not UTF-8, and ImageError if docker's
    credentials cannot be read.
    """
    user, password = environ.get(USER, ""), environ.get(PASSWORD, "")
    if bool(user) != bool(password):
        present, missing = (USER, PASSWORD) if user else (PASSWORD, USER)
        raise InputError(f"{present} is set, and {missing} is not", hint="set both, or neither to use docker's login")
    if user and is_for(registry, environ):
        return RegistryLogin(user=user, secret=secret_of(password, PASSWORD))
    return _dockers(address_of(registry))


def secret_of(password: str, source: str) -> Secret:
    """Return a password that came from `source`. Raises InputError if it is not UTF-8, as engines expect it."""
    try:
        return Secret(password.encode())
    except UnicodeEncodeError:
        raise InputError(f"the password in {source} is not UTF-8", hint="save or set it again as UTF-8") from None


def is_for(registry: str, environ: Mapping[str, str]) -> bool:
    """Return whether KIT_REGISTRY says that the variables are a login to this registry."""
    named = environ.get(REGISTRY, "")
    return bool(named) and is_same(named, registry)


def withheld(registry: str, environ: Mapping[str, str]) -> tuple[str, str] | None:
    """Return why kit does not send the variables' login to this registry, and what to write. None if it does."""
    if not environ.get(PASSWORD) or is_for(registry, environ):
        return None
    named = environ.get(REGISTRY, "")
    whose = f"is for {address_of(named)}" if named else f"is for no registry, because {REGISTRY} is not set"
    return (
        f"the login of {USER} {whose}, so kit does not send it to {address_of(registry)}",
        f"if it is the login to {address_of(registry)}: export {REGISTRY}={registry}",
    )


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
            hint=f"docker login {address}; or set {REGISTRY}, {USER} and {PASSWORD}",
        ) from error
    # A credential helper capitalizes its fields; docker's file does not.
    fields = {str(name).lower(): value for name, value in entry.items()}
    if fields.get("identitytoken"):
        return RegistryLogin(user="", secret=Secret(str(fields["identitytoken"]).encode()), is_token=True)
    if fields.get("username"):
        return RegistryLogin(user=str(fields["username"]), secret=Secret(str(fields.get("password") or "").encode()))
    return None
