"""DataSpec: a data set of kit.yaml, where it comes from and where it is on a VM. kit.config.data reads it."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from kit.model import names
from kit.model.quantity import size_bytes

# none: mounted in place. disk, ram: copied to each host's disk or memory.
Stage = Literal["none", "disk", "ram"]
# hosts: each host has its own part of the files.
Split = Literal["none", "hosts"]
# store: an object store, which rclone reads. here: a folder of the operator's machine. host: a folder of one VM.
SourceKind = Literal["store", "http", "nfs", "lustre", "here", "host"]
StoreScheme = Literal["s3", "oss", "gs", "azure", "rclone"]


class DataSource(Struct, frozen=True, kw_only=True):
    """Where a data set comes from: the parsed `from`.

    `text` is for people: as written, with a folder of this machine made absolute. It never has a password. `written` is
    a folder of this machine as kit.yaml has it, or "". `scheme` is empty except for a store.

    | kind | place | path |
    |---|---|---|
    | store | the bucket or container; of rclone, the remote | what is below it, without a slash at either end; or "" |
    | http | the host and its port, as written | the rest of the URL, from its first slash; or "" |
    | nfs | the server | the export, absolute |
    | lustre | the MGS, such as 10.0.0.5@tcp or a@tcp:b@tcp | the file system and a folder in it, such as fs/images |
    | here | "" | the absolute folder or file of the operator's machine |
    | host | the host's name | the absolute folder on it |
    """

    kind: SourceKind
    text: str
    scheme: StoreScheme | Literal[""] = ""
    place: str = ""
    path: str = ""
    written: str = ""

    @property
    def origin(self) -> str:
        """Return what hosts keep of the source: the same for all operators with the same kit.yaml."""
        return self.written or self.text


class DataSpec(Struct, frozen=True, kw_only=True):
    """A data set. `to` is an absolute folder of the nodes, `dir` one of the VMs. `size` is as written.

    `options` are those of the mount of an nfs or lustre source, separated by commas, or None for the default ones.
    """

    name: str
    source: DataSource
    to: str
    stage: Stage = "disk"
    dir: str | None = None
    size: str | None = None
    split: Split = "none"
    write: bool = False
    options: str | None = None

    @property
    def staged(self) -> bool:
        """Return whether kit copies it to the hosts. If not, it is mounted in place."""
        return self.stage != "none"

    @property
    def mounted_by(self) -> Literal["engine", "rclone"] | None:
        """Return what mounts it in place: each VM's engine, or rclone in a separate container. None if staged."""
        if self.staged:
            return None
        return "engine" if self.source.kind in ("nfs", "lustre") else "rclone"

    @property
    def stores(self) -> bool:
        """Return whether ranks write into an object store, through rclone's mount."""
        return self.write and self.mounted_by == "rclone"

    @property
    def size_bytes(self) -> int | None:
        """Return the most memory that it may use on each host, or None without `size`."""
        return None if self.size is None else size_bytes(self.size)


def data_folder(cluster: str, data: DataSpec) -> str:
    """Return the folder of a data set on every VM, if no engine mounts it.

    names.DATA_FILES, names.DATA_MOUNT and the stager's own files are in it.
    """
    if data.stage == "ram":
        return f"{names.DATA_MEMORY}/{cluster}/{data.name}"
    if data.dir is not None:
        return f"{data.dir.rstrip('/')}/{names.DATA_BELOW}/{cluster}/{data.name}"
    return f"{names.DATA_DISK}/{cluster}/{data.name}"


def is_data_folder(cluster: str, folder: str) -> bool:
    """Return whether a folder on a VM can be that of a data set of the cluster, with any name and `dir`."""
    place = folder.rpartition("/")[0]
    return place == f"{names.DATA_DISK}/{cluster}" or (
        place.startswith("/") and place.endswith(f"/{names.DATA_BELOW}/{cluster}")
    )
