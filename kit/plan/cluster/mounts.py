"""How an engine mounts NFS and Lustre: the options of its volume driver `local`, which passes them to mount(2).

docs/data.md names the vendor's page behind each option.
"""

from __future__ import annotations

from collections.abc import Mapping

from kit.model.data import DataSource

# What Amazon advises for EFS. A server that is gone makes ranks wait instead of failing their reads.
_NFS = ("nfsvers=4.1", "rsize=1048576", "wsize=1048576", "hard", "timeo=600", "retrans=2", "noresvport")
# What Amazon advises for FSx for Lustre.
_LUSTRE = ("relatime", "flock")


def options(source: DataSource, *, write: bool = False) -> Mapping[str, str]:
    """Return the driver's options type, o and device for a source of the kind nfs or lustre.

    Raises ValueError for another kind.
    """
    mode = () if write else ("ro",)
    if source.kind == "nfs":
        server, _, port = source.place.partition(":")
        # The engine looks the name up: the kernel does not.
        words = (f"addr={server}", *((f"port={port}",) if port else ()), *_NFS, *mode)
        return {"type": "nfs", "o": ",".join(words), "device": f":{source.path}"}
    if source.kind == "lustre":
        device = f"{source.place}:/{source.path}"
        # The file system reads its device from the options, and only if it is the last one.
        return {"type": "lustre", "o": ",".join((*mode, *_LUSTRE, f"device={device}")), "device": device}
    raise ValueError(f"{source.kind} is not a file system that an engine mounts")
