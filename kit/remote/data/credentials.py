"""How the hosts get access to a store: from this machine's environment, rclone's configuration, or a cloud's own chain.

What opens the store goes to the stagers over standard input, and into the memory of their rclone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kit.model.data import DataSource
from kit.remote.data.access import Access, Read, read_file
from kit.remote.data.aws import oss_access, s3_access
from kit.remote.data.clouds import azure_access, gs_access, web_access
from kit.remote.data.rclone_remotes import rclone_access

_BY_SCHEME = {"s3": s3_access, "oss": oss_access, "gs": gs_access, "azure": azure_access, "rclone": rclone_access}


def access_of(source: DataSource, environ: Mapping[str, str], read: Read = read_file) -> Access:
    """Return the access to a store or a web server. `Access.by` says what opens it.

    Raises InputError with what is missing and what to write. `read` returns the text of a file of this machine.
    """
    if source.kind == "http":
        return web_access(source, environ, read)
    return _BY_SCHEME[source.scheme or "s3"](source, environ, read)


def request_of(source: DataSource, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the source for the stagers, with its secrets. Raises InputError."""
    return to_request(source, access_of(source, environ))


def to_request(source: DataSource, access: Access) -> dict[str, Any]:
    """Return an access as the stagers read it. It has secrets: it may go to their standard input, and nowhere else."""
    env = {name: value.reveal().decode() for name, value in access.settings.items()}
    request = {"kind": "rclone", "remote": access.remote, "env": env, "label": source.text}
    return {**request, "ca": access.ca} if access.ca else request
