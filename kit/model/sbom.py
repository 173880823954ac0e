"""What an image consists of: its packages and kit's own files, as the image itself names them."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class Component(Struct, frozen=True, kw_only=True):
    """A Debian package ("deb"), a Python package ("pypi") or a file of kit ("file").

    - `path` is the folder or file of the image that names the component.
    - `sha256` is the digest of a file. `installed_sha256` is the digest of a package's own list of its files and their
      digests, which differs if a build of the same version installed other files.
    - `source` is the Debian source package, if it has another name.
    - `built`: the image's build compiled it.
    """

    kind: Literal["deb", "pypi", "file"]
    name: str
    version: str = ""
    arch: str = ""
    source: str = ""
    licenses: tuple[str, ...] = ()
    path: str = ""
    sha256: str = ""
    installed_sha256: str = ""
    built: bool = False


class Bill(Struct, frozen=True, kw_only=True):
    """The components of the image `tag`. `bases` are the images that its Dockerfile starts from.

    - `image_id` is sha256:…, `created` the seconds since 1970 at which it was built.
    - `distribution` is its name and version, as in ("debian", "12").
    - `base_packages` is sha256:… of the packages from which this machine made the base, or ''.
    - `unreadable` are the paths of package files that do not have the form of one.
    """

    tag: str
    image_id: str
    created: float
    arch: str
    distribution: tuple[str, str]
    bases: tuple[str, ...]
    components: tuple[Component, ...]
    base_packages: str = ""
    unreadable: tuple[str, ...] = ()
