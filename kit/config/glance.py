"""A first look at hosts and kit.yaml with nothing validated: enough to dial the head while all of it is being read.

Whatever is out of the ordinary is no glance at all, and the full reading, which always follows, tells what is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kit.config.hosts import parse_hosts
from kit.config.paths import absolute
from kit.errors import InputError
from kit.model.host import Login

_SSH: Mapping[str, type] = {"user": str, "port": int, "key": str, "known_hosts": str}


@dataclass(frozen=True, kw_only=True, slots=True)
class Glance:
    """How to reach the head, and the cluster's name, as far as a glance tells."""

    head: Login
    cluster: str


def glance(folder: Path, *, flags: Mapping[str, object], environ: Mapping[str, str]) -> Glance | None:
    """The head as the folder's own two files have it. None where a flag or variable of kit's could change that."""
    # A registry and the login to it say nothing of how the head is reached.
    if flags or any(name.startswith("KIT_") and not name.startswith("KIT_REGISTRY") for name in environ):
        return None
    try:
        inventory = parse_hosts((folder / "hosts").read_text(encoding="utf-8"), source="hosts")
        said = _yaml(folder / "kit.yaml")
    except (OSError, ValueError, InputError):
        return None
    ssh, cluster = said.get("ssh") or {}, said.get("name", "kit")
    if not isinstance(ssh, dict) or not isinstance(cluster, str):
        return None
    if not all(isinstance(value, _SSH.get(name, type(None))) for name, value in ssh.items()):
        return None
    base = folder.absolute()
    paths = {name: absolute(ssh[name], base) if name in ssh else None for name in ("key", "known_hosts")}
    head = inventory.head
    login = Login(
        host=head.name,
        address=head.address,
        user=head.user or ssh.get("user"),
        port=head.port or ssh.get("port"),
        key=absolute(head.key, base) if head.key else paths["key"],
        known_hosts=paths["known_hosts"],
    )
    return Glance(head=login, cluster=cluster)


def _yaml(path: Path) -> Mapping[str, object]:
    """The file's mapping; nothing where there is no file. Raises ValueError for anything else."""
    import yaml  # noqa: PLC0415  (only where there is a file to read)

    try:
        data = yaml.load(path.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506  (safe)
    except FileNotFoundError:
        return {}
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
    if not isinstance(data, dict):
        raise ValueError("not a mapping")
    return data
