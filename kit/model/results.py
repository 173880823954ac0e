"""What runs made: files on the hosts, and what kit does with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field

from kit.errors import KitError

# In a run's folder: what its ranks made. And the run's log, which the head has.
MADE = ("output", "checkpoints", "work")
LOG = "log"

EntryKind = Literal["f", "d", "l", "s", "e"]


class Entry(Struct, frozen=True, kw_only=True):
    """A file on a host. `path` is below the listed folder, with / between names.

    `kind`: f is a file, d a folder, l a link, s something else (device, socket), e something that could not be read.
    `time` is the last change in ns since 1970. `text` is a link's target, or why the entry could not be read. `inode`
    is that of a file in a shared folder, if its number is the same on all hosts that share the folder; otherwise 0.
    `mode` has the permissions of a folder.
    """

    path: str
    kind: EntryKind = "f"
    size: int = 0
    time: int = 0
    executable: bool = False
    text: str = ""
    inode: int = 0
    mode: int = 0


class Listing(Struct, frozen=True, kw_only=True):
    """The entries of the folder TOP/BELOW on a host. `live`: it is the folder of a run that lives.

    `unsettled`: the run's working folder still has its code, beside what the run made (images/lib/kitrun/settle.py).
    `prefix` begins the path of each entry, and is not in the folder.
    """

    top: str
    below: str
    live: bool
    unsettled: bool = False
    entries: tuple[Entry, ...] = ()
    prefix: str = ""


class SharedListing(Struct, frozen=True, kw_only=True):
    """What a host has in the folder of --checkpoint-dir: the files that changed during the run, in `listing`.

    `exists`: the folder is there. `store` names the server and folder of a network file system, or is ''. Two hosts
    with the same store see the same files. `others` counts the files that changed before or after, with `others_size`.
    """

    listing: Listing
    exists: bool
    store: str = ""
    others: int = 0
    others_size: int = 0


class Clock(Struct, frozen=True, kw_only=True):
    """The time of a host in ns since 1970, and when this machine received it, in seconds of its monotonic clock."""

    there: int
    here: float


class Wanted(Struct, frozen=True, kw_only=True):
    """A file that kit fetches: the entry on the host, and where it goes, below the folder at home."""

    entry: Entry
    target: str


class RunFolder(Struct, frozen=True, kw_only=True):
    """The folder of one run on one host: bytes of what its ranks made, and of its record and log (`log`).

    `files` counts what the ranks made. `began` is when the run started, in the form of ids (20261121-101500, UTC), or
    '' on hosts without its record.
    """

    id: str
    live: bool = False
    began: str = ""
    files: int = 0
    output: int = 0
    checkpoints: int = 0
    work: int = 0
    log: int = 0

    @property
    def made(self) -> int:
        return self.output + self.checkpoints + self.work


class RunStart(Struct, frozen=True, kw_only=True):
    """A run that a host has: whether it lives, and when it started, in ns since 1970 by the head's clock.

    Only the head knows both: it has the run's record and lock. `started` is 0 on other hosts.
    """

    live: bool = False
    started: int = 0


class Survey(Struct, frozen=True, kw_only=True):
    """The folders of runs by host, and the hosts that could not be asked.

    `stacks` are the hosts that have the file of the cluster's stack, as only a head in a swarm has it.
    """

    folders: Mapping[str, tuple[RunFolder, ...]]
    failures: Mapping[str, KitError]
    stacks: tuple[str, ...] = ()

    @property
    def living(self) -> tuple[str, ...]:
        return tuple(sorted({folder.id for folders in self.folders.values() for folder in folders if folder.live}))


class RunSize(Struct, frozen=True, kw_only=True):
    """One run on all its hosts, in bytes. `hosts` are those where it made something."""

    id: str
    hosts: tuple[str, ...]
    output: int
    checkpoints: int
    work: int
    log: int

    @property
    def size(self) -> int:
        return self.output + self.checkpoints + self.work + self.log


class RemoveRunsResult(Struct, frozen=True, kw_only=True):
    """The runs that `kit runs rm` removed, or would remove.

    `not_in_hosts` are hosts of these runs that are not in the hosts file: what they have stays there.
    """

    cluster: str
    runs: tuple[RunSize, ...]
    dry_run: bool = False
    not_in_hosts: tuple[str, ...] = ()


class Pulled(Struct, frozen=True, kw_only=True):
    """What came from one host: files and bytes that travelled, and files that were here already.

    `changed` are files that changed while kit read them. `skipped` maps a path to why kit leaves it out, as a pipe.
    `failed` maps a path that should have come to why it did not.
    """

    host: str
    files: int = 0
    size: int = 0
    unchanged: int = 0
    changed: tuple[str, ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)


class OtherFiles(Struct, frozen=True, kw_only=True):
    """Files in the folder of --checkpoint-dir that did not change during the run, as these hosts count them."""

    hosts: tuple[str, ...]
    files: int
    size: int


class PullResult(Struct, frozen=True, kw_only=True):
    """What came home, into `folder`. `missed` maps a host from which not everything came to the reason.

    `run` is the run, or '' for `kit cp`. `live`: it had not ended yet. `patterns` are the paths that selected files.
    `without_work` are hosts whose working folder stayed there, because it still has the code. `checkpoints` is
    HOST:PATH of the folder of --checkpoint-dir, or '' without one. `others` are the files that kit left there.
    `not_in_hosts` are hosts of the run that are not in the hosts file: nothing came from them.
    """

    run: str
    folder: str
    hosts: tuple[Pulled, ...]
    missed: Mapping[str, str] = field(default_factory=dict)
    live: bool = False
    patterns: tuple[str, ...] = ()
    without_work: tuple[str, ...] = ()
    checkpoints: str = ""
    others: tuple[OtherFiles, ...] = ()
    not_in_hosts: tuple[str, ...] = ()


class Copied(Struct, frozen=True, kw_only=True):
    """What `kit cp` wrote to hosts: the path there, and how many files with how many bytes each of them got."""

    path: str
    hosts: tuple[str, ...]
    files: int
    size: int
