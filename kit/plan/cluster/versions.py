"""The version of the kit that deployed a cluster, compared with that of this kit."""

from __future__ import annotations

import re

from kit import __version__

_VERSION = re.compile(r"([0-9]{1,6})\.([0-9]{1,6})\.([0-9]{1,6})")


def other_defaults(deployed: str, ours: str = __version__) -> str:
    """Return the end of a message about settings that differ: the defaults of another kit may. '' for the same kit.

    `deployed` is '' if an older kit deployed, which did not record its version.
    """
    return "" if deployed == ours else f"; {_named(deployed)} deployed, and kit {ours} may have other defaults"


def step_back(deployed: str, ours: str = __version__) -> str | None:
    """Return the warning for a deploy by a kit that is older than the one that deployed last, or None."""
    theirs, own = _VERSION.match(deployed), _VERSION.match(ours)
    if theirs is None or own is None or [int(part) for part in own.groups()] >= [int(part) for part in theirs.groups()]:
        return None
    return f"{_named(deployed)} deployed this cluster, and kit {ours} goes back to its own older image and defaults"


def _named(version: str) -> str:
    """Return what to call a kit. The record may have been changed on the head, so only plain versions are shown."""
    return f"kit {version}" if _VERSION.fullmatch(version) else "another kit" if version else "an older kit"
