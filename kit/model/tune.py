"""What kit tune reads from a cluster, what it measures, and its settings for kit.yaml, each with its reason."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from kit.model.observed import Interface

# When a setting acts: at the next run, or once the cluster is deployed again.
Acts = Literal["run", "deploy"]


class Machine(Struct, frozen=True, kw_only=True):
    """One host for the rules. `cores` are physical, `threads` are the system's CPUs; 0 or None means unknown.

    `nic` carries the cluster's network; `nic_mbit` is the rate that the system reports, which a VM may invent.
    `gpu_links` are the kinds of links between two GPUs, named as by nvidia-smi topo (NV12, PIX, PHB, SYS …).
    `address` is the one in the cluster's network; `addresses` are all of the host's, in the system's order; `up` are
    the NICs that have a link.
    """

    name: str
    slots: int
    threads: int
    cores: int = 0
    sockets: int = 1
    numa: int = 1
    gpus: tuple[str, ...] = ()
    gpu_links: tuple[str, ...] = ()
    nic: str = ""
    nic_mbit: int | None = None
    mtu: int | None = None
    congestion: str = ""
    others: tuple[tuple[str, int], ...] = ()
    address: str = ""
    addresses: tuple[Interface, ...] = ()
    up: tuple[str, ...] = ()


class Wire(Struct, frozen=True, kw_only=True):
    """A network that every host is in but that is not in use: `network` 10.1.0.0/24, host and address of each.

    `rate` is TCP's rate on the slowest link in bytes/s, with all links in use at once. It is None if it was not
    measured, or if the measurement failed with `failure`.
    """

    network: str
    addresses: tuple[tuple[str, str], ...]
    nics: tuple[str, ...]
    rate: float | None = None
    failure: str | None = None


class Timing(Struct, frozen=True, kw_only=True):
    """Seconds of one all-reduce of `bytes` on `ranks` ranks of `hosts` hosts, one for each repeat of all rounds."""

    bytes: int
    ranks: int
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        ordered, half = sorted(self.seconds), len(self.seconds) // 2
        return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2

    @property
    def noise(self) -> float:
        """Return half the distance between the quartiles, in seconds: the usual deviation from the median."""
        ordered, n = sorted(self.seconds), len(self.seconds)
        return (ordered[(3 * (n - 1) + 2) // 4] - ordered[(n - 1) // 4]) / 2

    @property
    def busbw(self) -> float:
        """Return the bytes per second that each rank sends, and receives, at the median."""
        return 2 * (self.ranks - 1) / self.ranks * self.bytes / self.median


class Candidate(Struct, frozen=True, kw_only=True):
    """Open MPI parameters to try, and why they may help. Empty parameters mean Open MPI's defaults."""

    name: str
    parameters: tuple[tuple[str, str], ...]
    reason: str


class Tried(Struct, frozen=True, kw_only=True):
    """A candidate's timing of an all-reduce, or its `failure`."""

    name: str
    parameters: tuple[tuple[str, str], ...]
    timing: Timing | None = None
    failure: str | None = None


class AllReduces(Struct, frozen=True, kw_only=True):
    """All-reduces of the same few minutes: with kit.yaml's arguments, with each candidate, and with the chosen one.

    `small_s` is one of 8 bytes, in seconds.
    """

    before: Tried
    after: Tried
    tried: tuple[Tried, ...] = ()
    small_s: float | None = None


class Setting(Struct, frozen=True, kw_only=True):
    """A setting of kit.yaml (env.OMP_NUM_THREADS), its wanted value as kit.yaml accepts it, and why."""

    path: str
    value: str
    reason: str
    acts: Acts


class Kept(Struct, frozen=True, kw_only=True):
    """A setting of the user that stays. kit tune only reports the value that it would write."""

    path: str
    value: str
    wanted: str
    reason: str


class Tuning(Struct, frozen=True, kw_only=True):
    """The result of the rules: settings to write, and advice for the user.

    `defaults` are for settings that no rule wants any more. kit writes them only where an earlier tune wrote a value.
    """

    settings: tuple[Setting, ...] = ()
    defaults: tuple[Setting, ...] = ()
    advice: tuple[str, ...] = ()


class TuneResult(Struct, frozen=True, kw_only=True):
    """The result of kit tune. `wire` is TCP's rate in bytes/s on the slowest link while all are in use.

    `before` is the all-reduce with the old kit.yaml, `after` with the new one, both of the same few minutes.
    `small_s` is one all-reduce of 8 bytes. `written` means that kit.yaml changed; `diff` is the change or proposal.
    `networks` are those that are not in use. If one of them should be used, kit measures no all-reduce.
    """

    machines: tuple[Machine, ...]
    wire: float | None
    before: Tried | None
    after: Tried | None
    tried: tuple[Tried, ...]
    small_s: float | None
    changed: tuple[Setting, ...]
    kept: tuple[Kept, ...]
    advice: tuple[str, ...]
    diff: str
    written: bool
    file: str
    seconds: float
    skipped: tuple[str, ...] = field(default=())
    networks: tuple[Wire, ...] = field(default=())
