"""Settings of the kernel, and limits of logins."""

from __future__ import annotations

from collections.abc import Sequence

from kit.model.setup.facts import SetupFacts
from kit.model.setup.paths import LIMITS, SYSCTL
from kit.model.setup.result import Remark
from kit.model.setup.steps import SetKernelValues, WriteSystemFile
from kit.plan.cluster.network import usable
from kit.plan.setup.part import Part

# (key, value, reason). A higher value of the host stays.
_VALUES: tuple[tuple[str, str, str], ...] = (
    ("net.core.rmem_max", "67108864", "the largest buffer that a program may set; 64 MiB fill 100 Gbit/s at 5 ms"),
    ("net.core.wmem_max", "67108864", "the same for sending"),
    ("net.ipv4.tcp_rmem", "4096 131072 67108864", "how far the kernel lets a TCP connection's buffer grow"),
    ("net.ipv4.tcp_wmem", "4096 65536 67108864", "the same for sending"),
    ("net.ipv4.neigh.default.gc_thresh1", "4096", "a full table of neighbors loses packets on large networks"),
    ("net.ipv4.neigh.default.gc_thresh2", "8192", "as above"),
    ("net.ipv4.neigh.default.gc_thresh3", "16384", "as above"),
)
# (key, value, reason). They are no amounts: the value itself is wanted.
_SWITCHES: tuple[tuple[str, str, str], ...] = (
    ("net.ipv4.tcp_slow_start_after_idle", "0", "an exchange of gradients follows a pause, and must not start slowly"),
    ("net.ipv4.tcp_mtu_probing", "1", "a path that drops large packets slows a connection, and does not hang it"),
)
_LOOSE = (
    "net.ipv4.conf.all.rp_filter",
    "2",
    "with several cards, an answer may come in by another card: strict (1) drops it",
)
KEYS = tuple(key for key, _, _ in (*_VALUES, *_SWITCHES, _LOOSE))
_LIMITS = b"""# Made by kit setup. RDMA and NCCL pin memory; a head has files open for each rank.
# root does not follow *.
* soft memlock unlimited
* hard memlock unlimited
* soft nofile 1048576
* hard nofile 1048576
root soft memlock unlimited
root hard memlock unlimited
root soft nofile 1048576
root hard nofile 1048576
"""


def sysctl(facts: SetupFacts) -> Part:
    """Return what raises buffers, tables and limits. kit lowers nothing."""
    part = Part()
    there = _lines_of(facts)
    wanted: list[tuple[str, str, str]] = []
    for key, value, reason in _VALUES:
        now = facts.kernel_settings.get(key)
        # A key that the kernel does not have (in a container, for example) is left out.
        if now is not None and (key in there or not _reaches(now, value)):
            wanted.append(
                (key, there[key] if key in there and _reaches(there[key], value) else _raised(now, value), reason)
            )
    for key, value, reason in _SWITCHES:
        now = facts.kernel_settings.get(key)
        if now is not None and (key in there or now != value):
            wanted.append((key, value, reason))
    key, value, reason = _LOOSE
    if _is_strict(facts) or key in there:
        wanted.append((key, value, reason))
    if wanted:
        lines = "".join(f"# {reason}\n{key} = {value}\n" for key, value, reason in wanted)
        text = f"# Made by kit setup.\n{lines}".encode()
        if not facts.has(SYSCTL, text):
            part.steps.append(
                WriteSystemFile(area="sysctl", path=SYSCTL, content=text, why="a reboot forgets kernel settings")
            )
        now_wrong = tuple((key, value) for key, value, _ in wanted if facts.kernel_settings.get(key) != value)
        if now_wrong:
            first = now_wrong[0][0]
            why = f"{first} is {facts.kernel_settings.get(first)}"
            part.steps.append(SetKernelValues(area="sysctl", values=now_wrong, why=why))
    part.remarks += _overridden(facts, wanted)
    if not facts.has(LIMITS, _LIMITS):
        why = "RDMA pins memory, and a login may pin only a little"
        part.steps.append(WriteSystemFile(area="sysctl", path=LIMITS, content=_LIMITS, why=why))
    return part


def _overridden(facts: SetupFacts, wanted: Sequence[tuple[str, str, str]]) -> list[Remark]:
    """Return a remark for each file of the host that takes back settings at the next boot. It may be a choice."""
    amounts = {key for key, _, _ in _VALUES}
    files: dict[str, list[str]] = {}
    for key, value, _ in wanted:
        path, later = facts.later_settings.get(key, ("", value))
        if not _reaches(later, value) if key in amounts else later != value:
            files.setdefault(path, []).append(f"{key} = {later}")
    name = facts.host.name
    return [
        Remark(
            host=name,
            text=f"{path} wins over kit's {SYSCTL} at the next boot: {', '.join(lines)}",
            hint=f"remove these lines unless somebody wants them: kit ssh {name} -- sudo nano {path}",
        )
        for path, lines in files.items()
    ]


def _is_strict(facts: SetupFacts) -> bool:
    """Return whether the host has several cards, and the kernel drops what comes in by another card than expected."""
    cards = {interface.name for interface in facts.interfaces if usable(interface)}
    of_all = facts.kernel_settings.get(_LOOSE[0])
    if of_all is None or len(cards) < 2:
        return False
    own = [facts.kernel_settings.get(f"net.ipv4.conf.{card}.rp_filter", "0") for card in cards]
    # The kernel takes the larger one of the two. As text, because they are 0, 1 or 2.
    return "1" in {max(of_all, value) for value in own}


def _lines_of(facts: SetupFacts) -> dict[str, str]:
    """Return what kit's own file has."""
    file = facts.files.get(SYSCTL)
    text = (file.content or b"").decode(errors="replace") if file is not None else ""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line and not line.startswith("#"))
    return {key.strip(): value.strip() for key, _, value in pairs}


def _numbers(text: str) -> list[int]:
    return [int(word) if word.isdecimal() else 0 for word in text.split()]


def _reaches(now: str, wanted: str) -> bool:
    """Return whether the last number, which is the limit, is at least the wanted one."""
    return _numbers(now)[-1:] >= _numbers(wanted)[-1:]


def _raised(now: str, wanted: str) -> str:
    """Return the wanted numbers, none of them lower than it is now."""
    have, want = _numbers(now), _numbers(wanted)
    return " ".join(str(max(a, b)) for a, b in zip(have, want, strict=True)) if len(have) == len(want) else wanted
