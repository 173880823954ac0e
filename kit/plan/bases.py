"""The lock of base images: which digest each base has. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kit.errors import InputError
from kit.model.image import ImageContent
from kit.model.values import replace

# Where images/ has the lock. It is not a file of the build context: the Dockerfile names the digest.
LOCK = "bases.lock"
UNLOCKED = "KIT_UNLOCKED_BASES"

_NAME = re.compile(r"[a-z0-9][a-z0-9._/:-]*:[A-Za-z0-9_][A-Za-z0-9._-]*", re.ASCII)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)
_HEADER = """\
# The bases of images by digest: NAME:TAG and sha256:…, as a registry serves them. scripts/lock-bases writes this file.
# A base without a line is pulled by its tag. KIT_UNLOCKED_BASES=1 ignores this file.
"""


def read_lock(text: str) -> dict[str, str]:
    """Return the digest of each locked base. Raises InputError with the line that is not one of a lock."""
    locked: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if not words or line.startswith("#"):
            continue
        if len(words) != 2 or not _NAME.fullmatch(words[0]) or not _DIGEST.fullmatch(words[1]) or words[0] in locked:
            raise InputError(
                f"{LOCK}:{number}: this is not a line of the lock", hint="write it again: scripts/lock-bases"
            )
        locked[words[0]] = words[1]
    return locked


def lock_text(locked: Mapping[str, str]) -> str:
    """Return the content of the lock. Raises InputError if a name or a digest does not belong in it."""
    text = _HEADER + "".join(f"{name} {digest}\n" for name, digest in sorted(locked.items()))
    if read_lock(text) != dict(locked):
        raise InputError(f"a name or a digest does not belong in {LOCK}", hint="NAME:TAG and sha256:…")
    return text


def pinned(base: str, locked: Mapping[str, str]) -> str:
    """Return `debian:bookworm-slim@sha256:…` for a base in the lock, and any other base as given."""
    return f"{base}@{locked[base]}" if base in locked else base


def without_digest(base: str) -> str:
    """Return the base's name and tag."""
    return base.partition("@")[0]


def pin_bases(content: ImageContent, locked: Mapping[str, str]) -> ImageContent:
    """Return the content with a Dockerfile whose FROM lines name the digests of the lock."""

    def line(match: re.Match[str]) -> str:
        return f"FROM {pinned(match[1], locked)}"

    dockerfile = re.sub(r"(?m)^FROM (\S+)", line, content.files["Dockerfile"].decode())
    return replace(content, files={**content.files, "Dockerfile": dockerfile.encode()})


def lab_bases(dockerfile: str) -> tuple[str, ...]:
    """Return the images that a Dockerfile of one stage starts from."""
    return tuple(re.findall(r"(?m)^FROM (\S+)", dockerfile))
