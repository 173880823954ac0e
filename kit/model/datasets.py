"""Data sets on the hosts of a cluster: what is where, and what kit data did. All sizes are in bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field

from kit.model.staging import Summary, Verified

# staged: all hosts have it. changed: kit.yaml has another source, stage, split or write than the hosts. unknown:
# kit.yaml does not name it. mounted: every host has it in place. partly: some hosts have all of it, or a part.
# not deployed, not known: of a file server, which nodes mount when they start; not known if the head did not answer.
DataState = Literal[
    "staged",
    "partly",
    "staging",
    "changed",
    "not staged",
    "unknown",
    "mounted",
    "not mounted",
    "not deployed",
    "not known",
]


class HostSet(Struct, frozen=True, kw_only=True):
    """A data set on one host. `summary` is None if nothing whole is there; `coming`: a part is.

    `running`: its stager runs. `mounted`: rclone has mounted it, from `source` and with `write` for writers. `dead`: a
    mount is there whose rclone has ended.
    """

    folder: str
    summary: Summary | None = None
    coming: bool = False
    running: bool = False
    mounted: bool = False
    source: str = ""
    write: bool = False
    dead: bool = False

    @property
    def name(self) -> str:
        return self.folder.rpartition("/")[2]

    @property
    def is_mount(self) -> bool:
        """Return whether all that the host has is a mount, dead or not."""
        return (self.mounted or self.dead) and self.summary is None and not self.coming

    @property
    def stages(self) -> bool:
        """Return whether a stager runs that may be staging. One that has mounted something does nothing else."""
        return self.running and not self.mounted and not self.dead


class HostData(Struct, frozen=True, kw_only=True):
    """What one host has. `record` is the text of the cluster's record; only the head has it.

    `now` is the time by the host's clock, in seconds since 1970.
    """

    record: str = ""
    sets: tuple[HostSet, ...] = ()
    now: float | None = None


class DataRow(Struct, frozen=True, kw_only=True):
    """One data set on the cluster. `hosts` have it whole, of `of` hosts. With the state partly, `lacking` do not, and
    `gone` have a part of a split, but are no longer in the cluster.

    `at` is when it was staged, in seconds since 1970. `files` and `bytes` are those of the data set; with split, of all
    hosts together. `fraction` is 0..1 while it is being staged, or None. `running` are hosts on which its stager runs.
    `elsewhere` are folders with a copy, or a part of one, that kit.yaml does not name any more, and the hosts of each.
    """

    name: str
    source: str
    stage: str
    state: DataState
    to: str = ""
    split: str = "none"
    hosts: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    of: int = 0
    files: int | None = None
    bytes: int | None = None
    at: float | None = None
    fraction: float | None = None
    running: tuple[str, ...] = ()
    elsewhere: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class DataListing(Struct, frozen=True, kw_only=True):
    """All data sets. `missed` maps a host that could not be asked to the reason.

    `now` is the time by the clock of the head, which also wrote the rows' `at`. None if the head did not answer.
    """

    cluster: str
    sets: tuple[DataRow, ...]
    missed: Mapping[str, str] = field(default_factory=dict)
    now: float | None = None


class StageResult(Struct, frozen=True, kw_only=True):
    """How the staging of one data set ended, or, with `detached`, what it goes on to do.

    `new` and `removed` are files; `read` is what the source was read for. `lost` maps a host to why it is out.
    """

    cluster: str
    name: str
    source: str
    id: str
    hosts: tuple[str, ...] = ()
    files: int = 0
    bytes: int = 0
    new: int = 0
    removed: int = 0
    read: int = 0
    seconds: float = 0.0
    lost: Mapping[str, str] = field(default_factory=dict)
    detached: bool = False
    watched: bool = False

    @property
    def nothing_to_do(self) -> bool:
        return not (self.new or self.removed or self.read or self.lost or self.detached)


class MountResult(Struct, frozen=True, kw_only=True):
    """How a data set was mounted: `hosts` have it, and `before` of them had it before. `lost` maps a host to why not.

    `restarted` are hosts whose node had an earlier mount, and was restarted to see this one.
    """

    cluster: str
    name: str
    source: str
    hosts: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    restarted: tuple[str, ...] = ()
    seconds: float = 0.0
    lost: Mapping[str, str] = field(default_factory=dict)


class StagePreview(Struct, frozen=True, kw_only=True):
    """What kit data stage would do with one data set: where it is on the hosts, and who has it.

    `missed` maps a host that could not be asked to the reason.
    """

    name: str
    source: str
    stage: str
    folder: str
    state: DataState
    hosts: tuple[str, ...]
    has: tuple[str, ...]
    size: int | None = None
    missed: Mapping[str, str] = field(default_factory=dict)


class VerifyResult(Struct, frozen=True, kw_only=True):
    """What kit data verify found in one data set. `missed` maps a host that could not be asked to the reason."""

    cluster: str
    name: str
    hosts: Mapping[str, Verified]
    missed: Mapping[str, str] = field(default_factory=dict)

    @property
    def wrong(self) -> Mapping[str, Verified]:
        """The hosts with wrong files."""
        return {host: outcome for host, outcome in self.hosts.items() if outcome.wrong or outcome.more}


class RemovedData(Struct, frozen=True, kw_only=True):
    """A data set that kit removes: the hosts that have something of it, and the bytes of the whole one on each.

    `mounted`: all that they have is a mount.
    """

    name: str
    hosts: tuple[str, ...]
    folders: tuple[str, ...]
    bytes: int | None = None
    mounted: bool = False


class RemoveDataResult(Struct, frozen=True, kw_only=True):
    """The data sets that kit data rm removed, or would remove."""

    cluster: str
    sets: tuple[RemovedData, ...]
    dry_run: bool = False


class StopResult(Struct, frozen=True, kw_only=True):
    """The staging that kit data stop ended. `id` is '' if none ran."""

    cluster: str
    name: str
    id: str = ""
