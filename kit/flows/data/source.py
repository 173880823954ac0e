"""Where the stagers of a data set read it: what the lead gets, and what each host's container needs for that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kit.config.selection import select_host
from kit.events import Note
from kit.flows.context import Context
from kit.model.data import DataSource, DataSpec
from kit.plan.cluster import mounts
from kit.remote.data.feed import Folder, checked

# Where a stager has the folder that it reads.
MOUNT = "/source"


@dataclass(frozen=True, kw_only=True)
class Source:
    """`request` is for the lead: it may have secrets. `folder` is a source on this machine.

    `mounts` are the values of docker's --mount, by host; those of "" are for all hosts.
    """

    request: Mapping[str, Any] = field(repr=False)
    folder: Folder | None = None
    mounts: Mapping[str, str] = field(default_factory=dict)

    def options(self, host: str) -> tuple[str, ...]:
        """Return the options of docker run that this host's stager needs."""
        if host in self.mounts:
            # Without it, root in the container may not read what only its owner may. The mount is read-only.
            return ("--cap-add", "DAC_OVERRIDE", "--mount", self.mounts[host])
        mount = self.mounts.get("")
        return ("--mount", mount) if mount else ()


def source_of(context: Context, data: DataSpec, environ: Mapping[str, str]) -> Source:
    """Return the source of a data set. Raises InputError if it, or a login for it, is missing on this machine."""
    source = data.source
    if source.kind == "here":
        feed = {"kind": "feed", "label": source.text, "origin": source.origin}
        return Source(request=feed, folder=checked(source.path))
    if source.kind == "host":
        name = select_host(context.inventory, source.place).name
        request: dict[str, Any] = {"kind": "folder", "path": MOUNT, "label": source.text, "readers": [name]}
        return Source(
            request=request, mounts={name: _csv("type=bind", f"src={source.path}", f"dst={MOUNT}", "readonly")}
        )
    if source.kind in ("nfs", "lustre"):
        request = {"kind": "folder", "path": MOUNT, "label": source.text, "readers": None}
        return Source(request=request, mounts={"": _volume(source, data.options)})
    from kit.remote.data.credentials import access_of, to_request  # noqa: PLC0415  (only for a store)

    access = access_of(source, environ)
    context.reporter.report(Note(text=access.by))
    return Source(request=to_request(source, access))


def _volume(source: DataSource, chosen: str | None) -> str:
    """Return the mount of NFS or Lustre by the engine's volume driver."""
    options = mounts.options(source, chosen=chosen)
    words = [f"volume-opt={name}={value}" for name, value in options.items()]
    return _csv("type=volume", f"dst={MOUNT}", "readonly", "volume-driver=local", *words)


def _csv(*words: str) -> str:
    """Return the value of --mount, which docker reads as a line of CSV."""
    return ",".join('"' + word.replace('"', '""') + '"' if set(word) & set(',"\n') else word for word in words)
