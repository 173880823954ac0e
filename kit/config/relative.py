"""Relative paths in kit.yaml, flags and variables: which settings are paths, and where they start."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kit.config.datasource import is_here
from kit.config.document import Document
from kit.config.paths import absolute, whole
from kit.config.rules import is_url
from kit.config.words import shown
from kit.errors import InputError
from kit.model.spec import NO_CODE, ClusterSpec
from kit.model.values import replace

_PATHS = ("ssh.key", "ssh.known_hosts", "image.wheels", "code", "requirements")


def make_absolute(data: dict[str, object], base: Path) -> dict[object, str]:
    """Make the paths of a kit.yaml absolute. Return the sources of data sets on this machine as they were, by name.

    Values that are not text stay for validation to refuse.
    """
    for path in _PATHS:
        name, _, key = path.rpartition(".")
        section = data.get(name) if name else data
        value = section.get(key) if isinstance(section, dict) else None
        if isinstance(section, dict) and isinstance(value, str) and _is_path(path, value):
            section[key] = absolute(value, base)
    sets = data.get("data")
    written: dict[object, str] = {}
    for name, one in sets.items() if isinstance(sets, dict) else ():
        source = one.get("from") if isinstance(one, dict) else None
        if isinstance(source, str) and is_here(source):
            written[name] = source
            one["from"] = absolute(source, base)
    volumes = data.get("volumes")
    if isinstance(volumes, list):
        for position, volume in enumerate(volumes):
            if isinstance(volume, str) and _is_relative(volume):
                source, colon, rest = volume.partition(":")
                volumes[position] = absolute(source, base) + colon + rest
    return written


def with_written(spec: ClusterSpec, written: Mapping[object, str]) -> ClusterSpec:
    """Return the spec with the sources of its data sets as kit.yaml has them, besides their absolute paths."""
    if not written:
        return spec
    sets = (
        replace(one, source=replace(one.source, written=written[one.name])) if one.name in written else one
        for one in spec.data
    )
    return replace(spec, data=tuple(sets))


def refuse_relative_volumes(document: Document) -> None:
    """Add a problem for each volume whose source is relative. The engine of a VM would create it, empty."""
    volumes = document.data.get("volumes")
    for position, volume in enumerate(volumes if isinstance(volumes, list) else ()):
        if isinstance(volume, str) and _is_relative(volume):
            whole = f"/data:{volume.partition(':')[2] or '/data'}"
            document.problems.append(
                InputError(
                    f"volumes, item {position + 1}: {shown(volume)} starts at a folder of this machine, "
                    "and the VMs do not have it",
                    hint=f"write a whole path of the VMs, such as {whole}; for your own code, write code: . instead",
                    file=document.source,
                    line=document.line_of(("volumes", position)),
                )
            )


def from_here(path: str, value: object) -> object:
    if path in _PATHS and isinstance(value, str) and _is_path(path, value):
        return absolute(value, whole(Path()))
    return value


def _is_relative(volume: str) -> bool:
    return volume.startswith(("./", "../")) or volume.partition(":")[0] in (".", "..")


def _is_path(path: str, value: str) -> bool:
    """Return whether the value of this field is a path. Validation refuses other values, or knows them as words."""
    return bool(value) and (path != "code" or (value != NO_CODE and not is_url(value)))
