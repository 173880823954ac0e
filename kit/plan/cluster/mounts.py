"""How an engine mounts NFS and Lustre: the options of its volume driver `local`, which passes them to mount(2).

docs/data.md names the vendor's page behind each option.
"""

from __future__ import annotations

from collections.abc import Mapping

from kit.model.data import DataSource

# What Amazon advises for EFS. A server that is gone makes ranks wait instead of failing their reads.
_SIZES = ("rsize=1048576", "wsize=1048576", "hard", "timeo=600", "retrans=2", "noresvport")
_NFS = ("nfsvers=4.1", *_SIZES)
# What other vendors advise, by the ends of their servers' names.
_VENDORS = {
    ".nas.aliyuncs.com": ("nfsvers=4.0", *_SIZES),
    ".file.core.windows.net": (*_NFS, "nconnect=4", "actimeo=30"),
}
# What Amazon advises for FSx for Lustre.
_LUSTRE = ("relatime", "flock")


def options(source: DataSource, *, write: bool = False, chosen: str | None = None) -> Mapping[str, str]:
    """Return the driver's options type, o and device for a source of the kind nfs or lustre.

    `chosen`: the options that kit.yaml gives in place of the default ones. Raises ValueError for another kind.
    """
    mode = () if write else ("ro",)
    own = tuple(chosen.split(",")) if chosen else ()
    if source.kind == "nfs":
        server, _, port = source.place.partition(":")
        # The engine looks the name up: the kernel does not.
        words = (f"addr={server}", *((f"port={port}",) if port else ()), *(own or _advised(server)), *mode)
        return {"type": "nfs", "o": ",".join(words), "device": f":{source.path}"}
    if source.kind == "lustre":
        device = f"{source.place}:/{source.path}"
        # The file system reads its device from the options, and only if it is the last one.
        return {"type": "lustre", "o": ",".join((*mode, *(own or _LUSTRE), f"device={device}")), "device": device}
    raise ValueError(f"{source.kind} is not a file system that an engine mounts")


def _advised(server: str) -> tuple[str, ...]:
    return next((words for end, words in _VENDORS.items() if server.lower().endswith(end)), _NFS)
