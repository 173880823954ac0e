"""The login to a registry: given by hand, or what this machine's docker knows (docker login, credential helpers).

No engine is asked for it.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping

from kit.errors import ImageError, InputError
from kit.model.registry import RegistryLogin
from kit.model.secret import Secret

USER, PASSWORD = "KIT_REGISTRY_USER", "KIT_REGISTRY_PASSWORD"


def find_login(address: str, environ: Mapping[str, str]) -> RegistryLogin | None:
    """The login to the registry at `address`: of the two variables, else docker's own. None: there is none.

    Raises InputError where only one variable is set, and ImageError where docker's credentials cannot be read.
    """
    user, password = environ.get(USER, ""), environ.get(PASSWORD, "")
    if user and password:
        return RegistryLogin(user=user, secret=Secret(password.encode()))
    if user or password:
        have, lack = (USER, PASSWORD) if user else (PASSWORD, USER)
        raise InputError(f"{have} is set, and {lack} is not", hint="set both, or neither: then docker's login counts")
    return _dockers(address)


def _dockers(address: str) -> RegistryLogin | None:
    from docker import auth  # noqa: PLC0415  (half a second)
    from docker.credentials.errors import StoreError  # noqa: PLC0415
    from docker.errors import DockerException  # noqa: PLC0415

    try:
        with warnings.catch_warnings():
            # Of a credential helper that is not there: an error follows, and says it better.
            warnings.simplefilter("ignore")
            found = auth.load_config().resolve_authconfig(address) or {}
    except (DockerException, StoreError, ValueError) as error:
        raise ImageError(
            f"docker's login to {address} cannot be read: {error}",
            hint=f"docker login {address}; or set {USER} and {PASSWORD}",
        ) from error
    # A credential helper's answer has capital letters, the file's has not.
    said = {str(name).lower(): value for name, value in found.items()}
    if said.get("identitytoken"):
        return RegistryLogin(user="", secret=Secret(str(said["identitytoken"]).encode()), is_token=True)
    if said.get("username"):
        return RegistryLogin(user=str(said["username"]), secret=Secret(str(said.get("password") or "").encode()))
    return None
