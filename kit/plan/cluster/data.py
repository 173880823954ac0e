"""The data sets of a cluster: what its nodes mount and know of them, and the folders that hosts need for that."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kit.errors import StepError
from kit.model import names
from kit.model.data import DataSpec, data_folder
from kit.model.observed import HostFacts
from kit.model.plan import MakeDataFolder
from kit.model.spec import ClusterSpec
from kit.plan.cluster import mounts


def variables(sets: Sequence[DataSpec]) -> dict[str, str]:
    """Return the variables by which ranks find these data sets, and know which are split and which are stores."""
    where = {names.data_variable(data.name): data.to for data in sets}
    where |= {names.data_split_variable(data.name): data.split for data in sets if data.split != "none"}
    return where | {names.data_write_variable(data.name): "store" for data in sets if data.stores}


def volumes(spec: ClusterSpec) -> tuple[str, ...]:
    """Return the mounts of the data sets, SOURCE:TARGET:MODE as in Compose."""
    return tuple(_volume(spec, data) for data in spec.data)


def _volume(spec: ClusterSpec, data: DataSpec) -> str:
    mode = "rw" if data.write else "ro"
    if data.staged:
        return f"{_files(spec, data)}:{data.to}:{mode}"
    if data.mounted_by == "rclone":
        # rclone mounts it later, and again after an end: the node then sees that mount.
        return f"{_mount(spec, data)}:{data.to}:{mode},rslave"
    # Without nocopy, the engine would copy what the image has in that folder to an empty file system.
    return f"{_volume_name(spec, data)}:{data.to}:{mode},nocopy"


def declared(spec: ClusterSpec) -> dict[str, Any]:
    """Return the named volumes of the data sets that engines mount, as Compose and Swarm declare them."""
    return {
        name: {
            "name": name,
            "driver": "local",
            "driver_opts": dict(_options(data)),
            "labels": {names.LABEL_CLUSTER: spec.name, names.LABEL_DATA: f"{spec.name}/{data.name}"},
        }
        for data in spec.data
        if data.mounted_by == "engine"
        for name in [_volume_name(spec, data)]
    }


def servers(spec: ClusterSpec) -> tuple[str, ...]:
    """Return the servers that engines mount, each once."""
    return tuple(dict.fromkeys(data.source.place for data in spec.data if data.mounted_by == "engine"))


def _volume_name(spec: ClusterSpec, data: DataSpec) -> str:
    """Return the name of a volume. Other options make another name, because an engine never changes a volume."""
    digest = hashlib.sha256(json.dumps(_options(data), sort_keys=True).encode()).hexdigest()
    return f"{names.data_container(spec.name, data.name)}-{digest[:8]}"


def _options(data: DataSpec) -> Mapping[str, str]:
    return mounts.options(data.source, write=data.write, chosen=data.options)


def _files(spec: ClusterSpec, data: DataSpec) -> str:
    return f"{data_folder(spec.name, data)}/{names.DATA_FILES}"


def _mount(spec: ClusterSpec, data: DataSpec) -> str:
    return f"{data_folder(spec.name, data)}/{names.DATA_MOUNT}"


def _seen(spec: ClusterSpec, data: DataSpec) -> str | None:
    """Return the folder of the VMs that nodes mount, or None if an engine mounts a server."""
    if data.mounted_by == "engine":
        return None
    return _files(spec, data) if data.staged else _mount(spec, data)


def _summary(spec: ClusterSpec, data: DataSpec) -> str:
    return f"{data_folder(spec.name, data)}/{names.DATA_SUMMARY}"


def paths(spec: ClusterSpec) -> list[str]:
    """Return the paths on VMs whose absence the plan needs to know."""
    staged = [data for data in spec.data if data.staged]
    bases = [data.dir for data in staged if data.dir is not None]
    seen = [path for data in spec.data if (path := _seen(spec, data)) is not None]
    return [*bases, *seen, *(_summary(spec, data) for data in staged)]


def steps(facts: HostFacts, spec: ClusterSpec) -> Iterator[MakeDataFolder]:
    """Yield a step for each folder that the host lacks. Swarm refuses to mount what does not exist."""
    for data in spec.data:
        path = _seen(spec, data)
        if path is not None and path in facts.absent:
            yield MakeDataFolder(path=path, why=f"the data set {data.name} is mounted from it")


def problems(facts: HostFacts, spec: ClusterSpec) -> list[StepError]:
    """Return a problem for each data set whose `dir` the host lacks. Made by kit, it would be on another disk."""
    missing = dict.fromkeys(data.dir for data in spec.data if data.dir is not None and data.dir in facts.absent)
    return [
        StepError(
            f"has no folder {folder}, which dir: of a data set names",
            hint=f"mount the disk there, or make the folder: kit ssh {facts.host.name} -- sudo mkdir {folder}",
            host=facts.host.name,
        )
        for folder in missing
    ]


def unstaged(observed: Sequence[HostFacts], spec: ClusterSpec) -> dict[str, list[str]]:
    """Return the hosts that lack each data set, by its name. A data set that no host lacks is not among them."""
    lacking = {
        data.name: [facts.host.name for facts in observed if _summary(spec, data) in facts.absent]
        for data in spec.data
        if data.staged
    }
    return {name: hosts for name, hosts in lacking.items() if hosts}


def unmounted(observed: Sequence[HostFacts], spec: ClusterSpec) -> tuple[str, ...]:
    """Return the stores that were never mounted on some host."""
    return tuple(
        data.name
        for data in spec.data
        if data.mounted_by == "rclone" and any(_mount(spec, data) in facts.absent for facts in observed)
    )


def local_folders(spec: ClusterSpec) -> dict[str, tuple[str, str]]:
    """Return where this machine may have each data set: its folder, and a path that is there only if all of it is.

    A data set from a folder of this machine is that folder. Of others, a VM that runs kit may have the staged copy.
    """
    return {
        data.name: (data.source.path, f"{data.source.path}/.")
        if data.source.kind == "here"
        else (_files(spec, data), _summary(spec, data))
        for data in spec.data
        if data.staged
    }


def settings(spec: ClusterSpec) -> Mapping[str, str]:
    """Return what a deploy gives the nodes of each data set, by its path in kit.yaml.

    What only a staging changes, such as the source of a staged data set, is not a part of it.
    """
    return {setting_path(data): _setting(spec, data) for data in spec.data}


def setting_path(data: DataSpec) -> str:
    """Return the path of a data set among the settings."""
    return f"data.{data.name}"


def _setting(spec: ClusterSpec, data: DataSpec) -> str:
    where = data.source.text if data.mounted_by == "engine" else data_folder(spec.name, data)
    if data.mounted_by == "rclone":
        where = f"a mount at {where}"
    more = (", write" if data.write else "") + (", split" if data.split != "none" else "")
    if data.options and not data.staged:
        more += f", {data.options}"
    return f"{where} on {data.to}{more}"
