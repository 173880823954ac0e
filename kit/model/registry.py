"""A registry of images: its name in kit.yaml, an image's name there, and the login to it."""

from __future__ import annotations

from msgspec import Struct

from kit.model.secret import Secret


def address_of(registry: str) -> str:
    """Return the server in `registry.example.com:5000/team`, as docker login knows it."""
    return registry.partition("/")[0]


def full_name(image: str) -> str:
    """Return an image's name with its registry: `docker.io/library/debian:12` for `debian:12`."""
    first, slash, _ = image.partition("/")
    if not slash:
        return f"docker.io/library/{image}"
    named = first == "localhost" or "." in first or ":" in first
    return image if named else f"docker.io/{image}"


def name_of(reference: str) -> str:
    """Return an image's name without its tag and its digest: `localhost:5000/kit` for `localhost:5000/kit:1`."""
    name = reference.partition("@")[0]
    folder, slash, last = name.rpartition("/")
    return folder + slash + last.partition(":")[0]


# Names of Docker Hub's server, which docker treats as one.
_HUB = frozenset({"docker.io", "index.docker.io", "registry-1.docker.io"})


def is_same(one: str, other: str) -> bool:
    """Return whether two registries have the same server and port, whatever their folders."""
    addresses = {address_of(registry).lower() for registry in (one, other)}
    return len(addresses) == 1 or addresses <= _HUB


def reference(registry: str, tag: str) -> str:
    """Return the name of `kit:cpu-0123` in a registry: `registry.example.com:5000/team/kit:cpu-0123`."""
    return f"{registry}/{tag}"


class RegistryLogin(Struct, frozen=True, kw_only=True):
    """A user and the password. With `is_token`, the secret is an identity token, and `user` is ''."""

    user: str
    secret: Secret
    is_token: bool = False


class Published(Struct, frozen=True, kw_only=True):
    """An image in a registry: `digest` is sha256:…, `arches` as in amd64, empty if the registry names none."""

    digest: str
    arches: tuple[str, ...] = ()
