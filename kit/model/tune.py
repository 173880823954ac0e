"""What kit tune sees of a cluster, what it measures, and what it would have in kit.yaml, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from kit.model.observed import Interface

# When a setting acts: at the next run, or once the cluster is deployed again.
Acts = Literal["run", "deploy"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """One host for the rules. `cores` are physical ones, `threads` what the system counts; 0 or None is not known.

    `nic` carries the cluster's network; `nic_mbit` is what the system says of it, which may be made up on a VM.
    `gpu_links` are the kinds of way between two GPUs as nvidia-smi topo names them (NV12, PIX, PHB, SYS …).
    `address` is that of the cluster's network; `addresses` are all that the host has, in the system's order, and `up`
    are the NICs that have a link.
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Wire:
    """A network that every host is in and that is not in use: `network` 10.1.0.0/24, host and address of each.

    `rate` is TCP's on the slowest link in bytes/s, all links in use at once; None where it could not be measured, which
    `failure` tells, or was not.
    """

    network: str
    addresses: tuple[tuple[str, str], ...]
    nics: tuple[str, ...]
    rate: float | None = None
    failure: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
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
        """Half of what lies between the quartiles: how far from the median a repeat usually is, in seconds."""
        ordered, n = sorted(self.seconds), len(self.seconds)
        return (ordered[(3 * (n - 1) + 2) // 4] - ordered[(n - 1) // 4]) / 2

    @property
    def busbw(self) -> float:
        """Bytes a second that a rank has to send, and to receive, at the median."""
        return 2 * (self.ranks - 1) / self.ranks * self.bytes / self.median


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """Parameters of Open MPI to try, and why they may help. The one without any is Open MPI as it comes."""

    name: str
    parameters: tuple[tuple[str, str], ...]
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Tried:
    """What a candidate made of an all-reduce; `failure` where it did not run to its end."""

    name: str
    parameters: tuple[tuple[str, str], ...]
    timing: Timing | None = None
    failure: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class AllReduces:
    """All-reduces of the same minutes: with the words of kit.yaml, with each candidate, and with what was chosen.

    `small_s` is one of 8 bytes, in seconds.
    """

    before: Tried
    after: Tried
    tried: tuple[Tried, ...] = ()
    small_s: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """A place in kit.yaml (env.OMP_NUM_THREADS), what should stand there, and why. `value` is as kit.yaml takes it."""

    path: str
    value: str
    reason: str
    acts: Acts


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """A place that a person has set. What tune would have there is told, and nothing is changed."""

    path: str
    value: str
    wanted: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Tuning:
    """What the rules make of facts and measurements: settings to write, and words for a person alone."""

    settings: tuple[Setting, ...] = ()
    advice: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class TuneResult:
    """All that kit tune found. `wire` is TCP's rate in bytes/s on the slowest link while all are in use.

    `before` is the all-reduce with kit.yaml as it was, `after` with what is in it now; both of the same minutes.
    `small_s` is one all-reduce of 8 bytes. `written`: kit.yaml was changed; `diff` says how, or how it would be.
    `networks` are those beside the one in use. Where one of them is to be used, no all-reduce was measured.
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
