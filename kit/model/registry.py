"""A registry of images: its name as kit.yaml says it, what an image is called there, and the login to it."""

from __future__ import annotations

from dataclasses import dataclass

from kit.model.secret import Secret


def address_of(registry: str) -> str:
    """The server in `registry.example.com:5000/team`, as docker login knows it."""
    return registry.partition("/")[0]


def reference(registry: str, tag: str) -> str:
    """What kit's image `kit:cpu-0123` is called there: `registry.example.com:5000/team/kit:cpu-0123`."""
    return f"{registry}/{tag}"


@dataclass(frozen=True, kw_only=True, slots=True)
class RegistryLogin:
    """A user and the password; with `is_token`, an identity token stands in place of both, and `user` is ''."""

    user: str
    secret: Secret
    is_token: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Published:
    """An image as a registry has it: `digest` is sha256:…, `arches` as engines name them (amd64); none if not told."""

    digest: str
    arches: tuple[str, ...] = ()
