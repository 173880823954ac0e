"""What kit doctor reads from hosts and between them, and what it reports: frozen values without judgement."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from msgspec import Struct, field

from kit.model.host import Host
from kit.model.launch import Node
from kit.model.observed import HostFacts
from kit.model.spec import ClusterSpec

# A finding breaks runs, makes them slow, or may become one of the two.
Severity = Literal["breaks", "slows", "watch"]
# What a check looks at: one host, its GPUs, its network, two hosts, the hosts as a cluster.
Area = Literal["host", "gpu", "network", "pair", "cluster"]
Pairing = Literal["all", "quick", "none"]


class File(Struct, frozen=True, kw_only=True):
    """Read a text file of a VM, at most 64 KiB of it."""

    path: str


class Files(Struct, frozen=True, kw_only=True):
    """Read the text files that match a shell pattern, at most 1,024 files and 4 KiB of each."""

    pattern: str


class Links(Struct, frozen=True, kw_only=True):
    """Read the symbolic links and other names that match a shell pattern, and where the links point."""

    pattern: str


class Command(Struct, frozen=True, kw_only=True):
    """Run a program that only reads. `node`: in the cluster's node, if it runs. At most 1 MiB of its output.

    `only_with` is a path or a program: a VM that lacks it does not run the command, as if its program were missing.
    Of more output, `tail` keeps the end, and not the beginning.
    """

    argv: tuple[str, ...]
    node: bool = False
    timeout_s: float = 10.0
    only_with: str = ""
    tail: bool = False


# In place of a path: where the engine keeps images if its settings name a place.
DATA_ROOT = "the engine's data-root"


class Disk(Struct, frozen=True, kw_only=True):
    """Read how full the file system is that holds a path, or that of DATA_ROOT."""

    path: str


class Lookup(Struct, frozen=True, kw_only=True):
    """Resolve a name on the VM, as programs do. "" is the VM's own name."""

    name: str = ""


class Mounts(Struct, frozen=True, kw_only=True):
    """Read where file systems of a type are mounted, and whether they answer: open the folder of each mount.

    A `kind` that ends with a dot is all types that begin with it: "fuse." is fuse.sshfs, fuse.s3fs and others. All
    mounts together have `timeout_s`. A VM with more than 64 such mounts does not answer this read.
    """

    kind: str
    timeout_s: float = 10.0


Read = File | Files | Links | Command | Disk | Lookup | Mounts


class Ran(Struct, frozen=True, kw_only=True):
    """What a program printed. `code` is None if it did not end in time."""

    code: int | None
    out: str
    err: str = ""


class Room(Struct, frozen=True, kw_only=True):
    """How full a file system is, in bytes and inodes. `inodes` is 0 if it does not count them."""

    total: int
    free: int
    inodes: int
    inodes_free: int


class Mount(Struct, frozen=True, kw_only=True):
    """A mount: the kernel's number of its file system, such as 0:61, and how opening its folder failed.

    `fault` is the name of the system's error, such as ENOTCONN, "" if the folder opens, and None if it did not open in
    time.
    """

    device: str
    fault: str | None = ""


class Seen(Struct, frozen=True, kw_only=True):
    """What kit read from one host.

    A file, a program or a path that does not exist maps to None. What kit did not ask is missing, and what the host did
    not answer in time. `facts` is what a deploy observes: `facts.engine` is "" if no engine answers. It is None if kit
    could not observe the host. `node` is the host's place in the cluster, if kit can tell.
    """

    host: Host
    files: Mapping[str, str | None] = field(default_factory=dict)
    globs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    links: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    commands: Mapping[Command, Ran | None] = field(default_factory=dict)
    rooms: Mapping[str, Room | None] = field(default_factory=dict)
    addresses: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    mounts: Mapping[str, Mapping[str, Mount] | None] = field(default_factory=dict)
    facts: HostFacts | None = None
    node: Node | None = None

    @property
    def name(self) -> str:
        return self.host.name

    def file(self, path: str) -> str | None:
        return self.files.get(path)

    def glob(self, pattern: str) -> Mapping[str, str]:
        return self.globs.get(pattern, {})

    def link(self, pattern: str) -> Mapping[str, str]:
        return self.links.get(pattern, {})

    def ran(self, *argv: str, node: bool = False) -> Ran | None:
        """Return what the program printed, or None if the host has no such program or kit did not run it."""
        for command, ran in self.commands.items():
            if command.argv == argv and command.node == node:
                return ran
        return None

    def room(self, path: str) -> Room | None:
        return self.rooms.get(path)

    def mounted(self, kind: str) -> Mapping[str, Mount] | None:
        """Return the mounts of a type by their folders, or None if kit does not know them."""
        return self.mounts.get(kind)


class Port(Struct, frozen=True, kw_only=True):
    """A TCP connection that was tried: `open` when it was accepted, otherwise how it failed, such as "timed out"."""

    number: int
    open: bool
    fault: str = ""


class PairSeen(Struct, frozen=True, kw_only=True):
    """What kit measured from one host to another. None means that it did not, or could not.

    `address` is the target's address in the cluster's network. `mtu` is the largest IPv4 packet in bytes that arrived
    with the don't-fragment bit, and `mtu_local` the MTU of the source's interface. `rtt_s` and `rate` (bytes/s) are of
    TCP.
    `rate` is also None if the hosts were too busy to measure it. `possible` is what it may be, in bytes/s, when the
    hosts need not wait for a core; None means that they did not.
    `clock_s` is the target's clock minus the source's, and `clock_error_s` how wrong that can be. `resolved` has the
    addresses that the target's name has on the source. `ssh` says how the cluster's own ssh failed from the head's node
    to the target's: "" if it works.
    """

    source: str
    target: str
    address: str
    ports: tuple[Port, ...] = ()
    mtu: int | None = None
    mtu_local: int | None = None
    rtt_s: float | None = None
    rate: float | None = None
    possible: float | None = None
    clock_s: float | None = None
    clock_error_s: float | None = None
    resolved: tuple[str, ...] = ()
    ssh: str | None = None


class Lost(Struct, frozen=True, kw_only=True):
    """A host, or a part of it, that kit could not examine: why, and what to type."""

    host: str
    message: str
    hint: str = ""


class Examined(Struct, frozen=True, kw_only=True):
    """Everything that the checks judge. `deployed`: the cluster's nodes run, and kit looked inside.

    `hosts` has only the hosts that kit could read. `lost` has the others, and those that it could not observe.
    `head` is the name of the cluster's head, or "" if only some files are judged.
    """

    spec: ClusterSpec
    hosts: tuple[Seen, ...]
    lost: tuple[Lost, ...] = ()
    pairs: tuple[PairSeen, ...] = ()
    pairing: Pairing = "none"
    deployed: bool = False
    head: str = ""


class Sight(Struct, frozen=True, kw_only=True):
    """What a check saw on one host, or from one host to another (`hosts` has both then).

    `seen` is a short text, the same for hosts with the same problem: they are folded. `fix` is what to type, if that
    depends on the host; `severity` replaces the check's.
    """

    hosts: tuple[str, ...]
    seen: str
    fix: str = ""
    severity: Severity | None = None


class Check(Struct, frozen=True, kw_only=True):
    """One check of kit doctor. docs/doctor.md is made from these.

    `reads`: what it needs of each host; `facts`: it needs what a deploy observes; `measures`: it needs pairs.
    `leads_to` says what happens if nobody fixes it, and `fix` what to type, both in Markdown. `lab` is the command
    that provokes it on a lab host; if the lab cannot, it is "" and `untested` says why. `deploy`: kit deploy runs it.
    """

    id: str
    title: str
    area: Area
    severity: Severity
    judge: Callable[[Examined], Iterable[Sight]]
    leads_to: str
    fix: str
    reads: tuple[Read, ...] = ()
    facts: bool = False
    measures: bool = False
    lab: str = ""
    untested: str = ""
    deploy: bool = False


class Finding(Struct, frozen=True, kw_only=True):
    """One problem. `seen` has each text once, with all hosts for which a check saw it; in the area `pair`, it has each
    pair.
    """

    id: str
    title: str
    severity: Severity
    area: Area
    seen: Sequence[Sight]
    leads_to: str
    fix: str


class FailedCheck(Struct, frozen=True, kw_only=True):
    """A check that could not judge, because of a bug in kit."""

    id: str
    error: str


EXIT_CODES: Mapping[Severity, int] = {"breaks": 4, "slows": 3, "watch": 0}
# A check that could not judge may have missed something that breaks runs.
NOT_JUDGED = 4


class DoctorResult(Struct, frozen=True, kw_only=True):
    """What kit doctor reports. `checks` and `pairs` count what it did.

    `unsure` has the links that looked slow, and that no finding has: kit had no time to measure them again, or their
    hosts were too busy. `gpu_models` has the names of the hosts' GPUs, each once.
    """

    cluster: str
    hosts: tuple[str, ...]
    deployed: bool
    pairing: Pairing
    pairs: int
    checks: int
    findings: tuple[Finding, ...]
    failed: tuple[FailedCheck, ...] = ()
    unsure: tuple[tuple[str, str], ...] = ()
    gpu_models: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        worst = max((EXIT_CODES[finding.severity] for finding in self.findings), default=0)
        return max(worst, NOT_JUDGED) if self.failed else worst
