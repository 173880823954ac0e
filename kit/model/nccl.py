"""NCCL's network plugin as kit.yaml names it: a folder of the VMs, or one in an image, `IMAGE:/FOLDER`."""

from __future__ import annotations

import re

from msgspec import Struct

from kit.model.registry import full_name, name_of

# The file that NCCL loads from the plugin's folder: libnccl-net.so, libnccl-net-ofi.so.0 ….
LIBRARY = "libnccl-net*.so*"
_HOST = r"(?:[a-z0-9]+(?:[.-]+[a-z0-9]+)*)(?::[0-9]{1,5})?"
_PART = r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*"
# As engines read it: NAME[:TAG][@DIGEST]. No part of it can have ":/".
_IMAGE = re.compile(
    rf"(?P<name>(?:{_HOST}/)?{_PART}(?:/{_PART})*)(?P<tag>:[A-Za-z0-9_][A-Za-z0-9._-]{{0,127}})?"
    r"(?P<digest>@sha256:[0-9a-f]{64})?",
    re.ASCII,
)
_LONGEST_IMAGE = 255
_LONGEST = 1024
_WRITE = "write the whole path, /FOLDER of the VMs, or IMAGE:/FOLDER"


class PluginImage(Struct, frozen=True, kw_only=True):
    """A folder in an image. `image` is its name with its registry, and a tag or a digest. `path` is absolute.

    `digest` is sha256:… if kit.yaml names it, and otherwise ''.
    """

    image: str
    path: str
    digest: str = ""

    @property
    def repository(self) -> str:
        return name_of(self.image)


def is_image(text: str) -> bool:
    """Return whether an engine reads the text as the name of an image. It is then in lower case, except its server."""
    first, slash, rest = text.partition("/")
    if slash and {".", ":"} & set(first):
        first = first.lower()
    return len(text) <= _LONGEST_IMAGE and bool(_IMAGE.fullmatch(first + slash + rest))


def plugin_image(text: str) -> PluginImage | None:
    """Return the image of `IMAGE:/FOLDER`, or None if the text is a folder of the VMs.

    Raises ValueError if it is neither. Its arguments are what is wrong, and what to write.
    """
    if text.startswith("/"):
        return None
    if not text or len(text) > _LONGEST or not text.isprintable():
        raise ValueError("is empty, has an unprintable character, or is longer than 1,024 characters", _WRITE)
    scheme, slashes, rest = text.partition("://")
    if slashes:
        # What is before an @ may be a password.
        write = f"write {rest}" if ":/" in rest and "@" not in rest.partition("/")[0] else "write IMAGE:/FOLDER"
        raise ValueError(f"begins with {scheme}://, and the name of an image has no scheme", write)
    image, colon, path = text.partition(":/")
    match = _IMAGE.fullmatch(image)
    if not colon and match:
        raise ValueError("names no folder", f"write {text}:/FOLDER for a folder in that image, or /FOLDER of the VMs")
    if not colon:
        raise ValueError("is neither a folder of the VMs nor one in an image", _WRITE)
    if not match:
        raise ValueError(f"{image!r} is not the name of an image", "write NAME:TAG:/FOLDER, the name in lower case")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ValueError("has .. in its folder", "write the folder without ..")
    if not parts:
        raise ValueError("is the whole image", f"write the folder with the plugin: {image}:/opt/aws-ofi-nccl/lib")
    tag = match["tag"] or ("" if match["digest"] else ":latest")
    return PluginImage(
        image=full_name(match["name"]) + tag + (match["digest"] or ""),
        path="/" + "/".join(parts),
        digest=(match["digest"] or "").removeprefix("@"),
    )
