"""Decides about data sets: which ones a command means, and how each one is on the cluster."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from kit.errors import InputError
from kit.model.data import DataSpec, data_folder
from kit.model.datasets import DataRow, DataState, HostData, HostSet, RemovedData
from kit.model.spec import ClusterSpec
from kit.model.staging import Summary
from kit.plan.cluster import data as deployed

# The mounter names a mount after its source, and cuts the name here (kitdata.fuse).
_MOST_NAME = 1000
# Older ones give this name to all mounts.
_UNNAMED = "rclone"


def staged_sets(spec: ClusterSpec, words: Sequence[str]) -> tuple[DataSpec, ...]:
    """Return the data sets of these names, or all that are staged. Raises InputError for an unknown name."""
    if not spec.data:
        raise InputError("kit.yaml names no data set", hint="add data: to kit.yaml; docs/data.md has examples")
    if not words:
        sets = tuple(data for data in spec.data if data.staged)
        if not sets:
            raise InputError(
                "all data sets of kit.yaml have stage: none: they are mounted in place",
                hint="see them: kit data ls; mount stores: kit data mount",
            )
        return sets
    return tuple(named(spec, word) for word in dict.fromkeys(words))


def known_sets(spec: ClusterSpec, words: Sequence[str]) -> tuple[DataSpec, ...]:
    """Return the data sets of these names. Raises InputError for a name that kit.yaml does not have."""
    sets = {data.name: data for data in spec.data}
    for word in words:
        if word not in sets:
            known = f"write one of these: {', '.join(sets)}" if sets else "add data: to kit.yaml"
            raise InputError(f"kit.yaml names no data set '{word}'", hint=known)
    return tuple(sets[word] for word in dict.fromkeys(words))


def named(spec: ClusterSpec, word: str) -> DataSpec:
    """Return the data set of this name. Raises InputError if kit.yaml has none, or if it is not staged."""
    (data,) = known_sets(spec, [word])
    if not data.staged:
        hint = f"{word} needs no staging" if data.mounted_by == "engine" else f"mount it: kit data mount {word}"
        raise InputError(f"{word} has stage: none: it is mounted in place", hint=hint)
    return data


def mounted_sets(spec: ClusterSpec, words: Sequence[str]) -> tuple[DataSpec, ...]:
    """Return the data sets of these names, or all that rclone mounts. Raises InputError for another one."""
    stores = tuple(data for data in spec.data if data.mounted_by == "rclone")
    if not words:
        if not stores:
            raise InputError(
                "kit.yaml names no store with stage: none",
                hint="docs/data.md has an example; data sets with another stage: kit data stage",
            )
        return stores
    sets = known_sets(spec, words)
    for data in sets:
        if data.staged:
            raise InputError(
                f"{data.name} has stage: {data.stage}: it is copied to the hosts", hint=f"kit data stage {data.name}"
            )
        if data not in stores:
            raise InputError(
                f"{data.name} is on a file server: the nodes mount it when they start", hint="run: kit deploy"
            )
    return sets


def unmounted(hosts: Mapping[str, HostData], cluster: str, data: DataSpec) -> tuple[str, ...]:
    """Return the hosts on which rclone has not mounted the data set as kit.yaml has it."""
    return tuple(name for name, host in hosts.items() if not is_mounted(has(host, cluster, data), data))


def is_mounted(one: HostSet | None, data: DataSpec) -> bool:
    """Return whether what rclone has mounted on a host is what kit.yaml asks for."""
    if one is None or not one.mounted:
        return False
    name = data.source.text.encode()[:_MOST_NAME].decode(errors="replace")
    return one.source in (name, _UNNAMED) and one.write == data.write


def is_current(summary: Summary | None, data: DataSpec) -> bool:
    """Return whether what a host has is what kit.yaml asks for."""
    if summary is None:
        return False
    # Earlier kits left the absolute path of a folder on the operator's machine.
    source = summary.source in (data.source.origin, data.source.text)
    return source and (summary.stage, summary.split) == (data.stage, data.split)


def has(host: HostData, cluster: str, data: DataSpec) -> HostSet | None:
    """Return what a host has of a data set in its folder."""
    folder = data_folder(cluster, data)
    return next((one for one in host.sets if one.folder == folder), None)


def lacking(hosts: Mapping[str, HostData], cluster: str, data: DataSpec, names: Collection[str]) -> tuple[str, ...]:
    """Return the hosts without the data set as kit.yaml asks for it, or with another version than the first host.

    `names` are all hosts of the cluster. Parts of a split are another version if they were made for other hosts. If one
    of those is no longer in the cluster, all hosts lack its part.
    """
    host_sets = {name: has(host, cluster, data) for name, host in hosts.items()}
    summaries = {name: one.summary if one else None for name, one in host_sets.items()}
    first = next((summary for summary in summaries.values() if summary is not None), Summary())
    whole = not _gone(first, data, names)
    return tuple(
        name
        for name, summary in summaries.items()
        if summary is None
        or not whole
        or not is_current(summary, data)
        or (summary.id, summary.among) != (first.id, first.among)
    )


def _gone(summary: Summary, data: DataSpec, names: Collection[str]) -> tuple[str, ...]:
    """Return the hosts that have a part of a split data set, and are no longer in the cluster."""
    among = summary.among.split() if data.split == "hosts" else ()
    return tuple(host for host in among if host not in names)


def rows(
    spec: ClusterSpec,
    hosts: Mapping[str, HostData],
    fractions: Mapping[str, float],
    settings: Mapping[str, Any] | None = None,
    *,
    names: Collection[str],
) -> tuple[DataRow, ...]:
    """Return all data sets: those of kit.yaml in its order, then others that hosts have.

    `fractions` says how far the stagings are that run now. `settings` are those with which the cluster was deployed;
    {} if it is not, or None if they are not known. `names` are all hosts of the cluster.
    """
    listed = [_row(spec, data, hosts, fractions, settings, names=names) for data in spec.data]
    known = {data.name for data in spec.data}
    others = sorted({one.name for host in hosts.values() for one in host.sets if _something(one)} - known)
    return (*listed, *(_unknown(name, hosts) for name in others))


def _row(
    spec: ClusterSpec,
    data: DataSpec,
    hosts: Mapping[str, HostData],
    fractions: Mapping[str, float],
    settings: Mapping[str, Any] | None,
    *,
    names: Collection[str],
) -> DataRow:
    if data.mounted_by == "engine":
        return DataRow(
            name=data.name,
            source=data.source.text,
            stage=data.stage,
            state=_state_of_served(spec, data, settings),
            to=data.to,
            elsewhere=_elsewhere(spec, data, hosts),
        )
    if data.mounted_by == "rclone":
        return _mounted(spec, data, hosts)
    host_sets = {name: one for name, host in hosts.items() if (one := has(host, spec.name, data)) is not None}
    whole = {name: one.summary for name, one in host_sets.items() if one.summary is not None}
    lacks = lacking(hosts, spec.name, data, names)
    running = tuple(name for name, one in host_sets.items() if one.running)
    elsewhere = any(
        one.name == data.name and one.summary is not None and name not in whole
        for name, host in hosts.items()
        for one in host.sets
    )
    size = _size(tuple(whole.values()), data.split)
    gone = _gone(next(iter(whole.values()), Summary()), data, names)
    state = _state(data, host_sets, whole, lacks, is_staging=data.name in fractions, elsewhere=elsewhere)
    return DataRow(
        name=data.name,
        source=data.source.text,
        stage=data.stage,
        state=state,
        to=data.to,
        split=data.split,
        hosts=tuple(name for name in whole if name not in lacks),
        lacking=tuple(lacks) if state == "partly" else (),
        gone=gone if state == "partly" else (),
        of=len(hosts),
        files=size.files,
        bytes=size.bytes,
        at=size.at,
        fraction=fractions.get(data.name),
        running=running,
        elsewhere=_elsewhere(spec, data, hosts),
    )


def _elsewhere(spec: ClusterSpec, data: DataSpec, hosts: Mapping[str, HostData]) -> Mapping[str, tuple[str, ...]]:
    """Return the folders of other copies of a data set, and the hosts of each. One in place has no copy at all."""
    own = data_folder(spec.name, data) if data.staged else None
    copies: dict[str, tuple[str, ...]] = {}
    for name, host in hosts.items():
        for one in host.sets:
            if one.name == data.name and one.folder != own and (one.summary is not None or one.coming):
                copies[one.folder] = (*copies.get(one.folder, ()), name)
    return copies


def _state_of_served(spec: ClusterSpec, data: DataSpec, settings: Mapping[str, Any] | None) -> DataState:
    """Return the state of a data set on a file server. Nodes that were deployed with it mount it when they start."""
    if settings is None:
        return "not known"
    path = deployed.setting_path(data)
    return "mounted" if settings.get(path) == deployed.settings(spec)[path] else "not deployed"


def _mounted(spec: ClusterSpec, data: DataSpec, hosts: Mapping[str, HostData]) -> DataRow:
    lacks = unmounted(hosts, spec.name, data)
    state: DataState = "mounted" if not lacks else "not mounted" if len(lacks) == len(hosts) else "partly"
    if any((one := has(hosts[name], spec.name, data)) and one.mounted for name in lacks):
        state = "changed"
    return DataRow(
        name=data.name,
        source=data.source.text,
        stage=data.stage,
        state=state,
        to=data.to,
        hosts=tuple(name for name in hosts if name not in lacks),
        lacking=tuple(lacks) if state == "partly" else (),
        of=len(hosts),
        elsewhere=_elsewhere(spec, data, hosts),
    )


def _state(
    data: DataSpec,
    host_sets: Mapping[str, HostSet],
    whole: Mapping[str, Summary],
    lacks: Sequence[str],
    *,
    is_staging: bool,
    elsewhere: bool,
) -> DataState:
    if is_staging:
        return "staging"
    if any(not is_current(summary, data) for summary in whole.values()) or (elsewhere and not whole):
        return "changed"
    if whole and not lacks:
        return "staged"
    return "partly" if whole or any(one.coming for one in host_sets.values()) else "not staged"


def _unknown(name: str, hosts: Mapping[str, HostData]) -> DataRow:
    host_sets = {host: one for host, data in hosts.items() for one in data.sets if one.name == name}
    whole = {host: one.summary for host, one in host_sets.items() if one.summary is not None}
    first = next(iter(whole.values()), Summary())
    size = _size(tuple(whole.values()), first.split)
    return DataRow(
        name=name,
        source=first.source,
        stage=first.stage,
        state="unknown",
        split=first.split,
        hosts=tuple(whole),
        of=len(hosts),
        files=size.files,
        bytes=size.bytes,
        at=size.at,
        running=tuple(host for host, one in host_sets.items() if one.running),
    )


class _Size(NamedTuple):
    files: int | None = None
    bytes: int | None = None
    at: float | None = None


def _size(summaries: Sequence[Summary], split: str) -> _Size:
    """Return the size of a data set; with split, of the parts of all hosts."""
    if not summaries:
        return _Size()
    latest = max(summaries, key=lambda summary: summary.at)
    parts = summaries if split == "hosts" else [latest]
    return _Size(files=sum(one.files for one in parts), bytes=sum(one.bytes for one in parts), at=latest.at)


def _something(one: HostSet) -> bool:
    return one.summary is not None or one.coming or one.running or one.mounted or one.dead


def removable(spec: ClusterSpec, hosts: Mapping[str, HostData], words: Sequence[str]) -> tuple[RemovedData, ...]:
    """Return what hosts have of these data sets, in every folder. Raises InputError for a name that nobody knows."""
    known = {data.name for data in spec.data}
    removed = []
    for word in dict.fromkeys(words):
        host_sets = [
            (host, one) for host, data in hosts.items() for one in data.sets if one.name == word and _something(one)
        ]
        if not host_sets and word not in known:
            raise InputError(f"no data set '{word}' in kit.yaml or on any host", hint="list them: kit data ls")
        sizes = [one.summary.bytes for _, one in host_sets if one.summary is not None]
        removed.append(
            RemovedData(
                name=word,
                hosts=tuple(dict.fromkeys(host for host, _ in host_sets)),
                folders=tuple(dict.fromkeys(one.folder for _, one in host_sets)),
                bytes=max(sizes, default=None),
                mounted=bool(host_sets) and all(one.is_mount for _, one in host_sets),
            )
        )
    return tuple(removed)
