"""Settings of the kernel, limits of logins, huge pages and the MTU."""

from __future__ import annotations

from collections.abc import Sequence

from kit.errors import KitError, StepError
from kit.model.setup.facts import Nic, SetupFacts
from kit.model.setup.paths import GRUB, LIMITS, MTU_DISPATCHER, MTU_IFUPDOWN, MTU_NETPLAN, SYSCTL
from kit.model.setup.result import Remark
from kit.model.setup.steps import ChangeMtu, ReservePages, SetKernelValues, UpdateBootLoader, WriteSystemFile
from kit.model.spec import SetupSpec
from kit.model.text import plural
from kit.plan.cluster.network import pick_interface_of, usable
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
# What huge pages leave to the system at least.
GIB_KIB = 2**20
_LEAST_KIB = 2 * GIB_KIB
_NETPLAN = "10-netplan-"
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


def hugepages(facts: SetupFacts, spec: SetupSpec) -> Part:
    """Return what reserves huge pages of 1 GiB: now as far as there is room, and at the next boot."""
    part = _pages(facts, spec)
    if facts.grub and "grub" in facts.unfinished and not any(isinstance(step, UpdateBootLoader) for step in part.steps):
        part.steps.append(UpdateBootLoader(why="kit was killed before GRUB read its settings"))
    return part


def _pages(facts: SetupFacts, spec: SetupSpec) -> Part:
    part = Part()
    count, name = spec.hugepages, facts.host.name
    if not count:
        return part
    if facts.pages is None:
        part.problems.append(
            StepError(
                "its processor or kernel has no huge pages of 1 GiB",
                hint="see: grep pdpe1gb /proc/cpuinfo; remove setup.hugepages from kit.yaml, or choose other VMs",
                host=name,
            )
        )
        return part
    words = f"default_hugepagesz=2M hugepagesz=1G hugepages={count}"
    text = f'# Made by kit setup.\nGRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX {words}"\n'
    written = facts.has(GRUB, text.encode())
    enough = facts.pages >= count
    known = any(value.kind == "hugepages" for value in facts.saved_values)
    if enough and not known and GRUB not in facts.files:
        return part  # They are reserved by other means.
    if not enough and (problem := _too_many(facts, count)):
        part.problems.append(problem)
        return part
    new = not written if facts.grub else not known
    if new and not enough:
        why = f"it has {plural(facts.pages, 'page')} of 1 GiB, and kit.yaml wants {count}"
        part.steps.append(ReservePages(area="hugepages", count=count, why=why))
    if facts.grub and not written:
        part.steps += [
            WriteSystemFile(area="hugepages", path=GRUB, content=text.encode(), why="memory is whole only at boot"),
            UpdateBootLoader(why="its settings changed"),
        ]
    if not facts.grub and (new or not enough):
        reason = "kit knows no boot loader there but GRUB: the pages are gone after a reboot"
        part.remarks.append(
            Remark(host=name, text=reason, hint=f"add to its kernel's command line: hugepagesz=1G hugepages={count}")
        )
    if not enough and facts.boot_pages and written:
        text = f"the kernel reserved only {facts.pages} of {plural(count, 'page')} of 1 GiB at boot"
        part.remarks.append(Remark(host=name, text=text, hint="lower setup.hugepages in kit.yaml: see free -g"))
    elif not enough and facts.grub:
        later = ", if the kernel has no room for them now" if new else ""
        part.waiting.append(f"{plural(count, 'page')} of 1 GiB{later}")
    return part


def _too_many(facts: SetupFacts, count: int) -> StepError | None:
    """Return the error for pages that leave too little memory: the kernel gives it to them first, and does not boot."""
    least = max(_LEAST_KIB, facts.memory_kib // 10)
    if not facts.memory_kib or count * GIB_KIB <= facts.memory_kib - least:
        return None
    most = max(0, (facts.memory_kib - least) // GIB_KIB)
    return StepError(
        f"it has {facts.memory_kib / GIB_KIB:.1f} GiB of memory, and setup.hugepages: {count} takes {count} GiB of it, "
        "so it would not boot",
        hint=f"pages have 1 GiB, so write at most {most} (setup.hugepages, or --hugepages); "
        f"for some hosts alone: kit setup -H {facts.host.name} --hugepages N",
        host=facts.host.name,
    )


def mtu(facts: SetupFacts, spec: SetupSpec, network: str) -> Part:
    """Return what changes the MTU of the cluster's interface, and keeps it after a reboot."""
    part = Part()
    if spec.mtu is None:
        return part
    try:
        chosen = pick_interface_of(facts.host, facts.interfaces, facts.default_interface, network)
    except KitError as error:
        part.problems.append(error)
        return part
    nic = next((nic for nic in facts.nics if nic.name == chosen.name), None)
    if nic is None:
        part.problems.append(StepError(f"kit does not know the MTU of {chosen.name}", host=facts.host.name))
        return part
    # An MTU that nobody has confirmed must not become permanent.
    if nic.mtu != spec.mtu or nic.pending:
        why = f"it is {nic.mtu}, and kit.yaml or --mtu wants {spec.mtu}"
        if nic.mtu == spec.mtu:
            why = "it was changed, and nobody has confirmed that yet"
        part.steps.append(ChangeMtu(area="mtu", interface=nic.name, mtu=spec.mtu, why=why))
    manager = _manager(facts, nic)
    reason = _unkept(facts, nic, manager)
    keep = None if reason else _keep_mtu(nic.name, nic.unit, manager, spec.mtu)
    if keep is None:
        hint = "set it in your own files of the network"
        if facts.network_manager == "netplan" and MTU_NETPLAN in facts.files:
            hint = f"kit setup --undo --only mtu, which removes {MTU_NETPLAN}; then {hint}"
        text = f"{reason or 'kit knows no network manager there'}: a reboot forgets the MTU of {nic.name}"
        part.remarks.append(Remark(host=facts.host.name, text=text, hint=hint))
    elif not facts.has(keep.path, _bytes(keep), keep.mode):
        part.steps.append(keep)
    return part


def _bytes(step: WriteSystemFile) -> bytes:
    return step.content if isinstance(step.content, bytes) else b""


def networkd_file(unit: str) -> str:
    """Return the drop-in for a .network file of systemd-networkd."""
    return f"/etc/systemd/network/{unit.rpartition('/')[2]}.d/90-kit-mtu.conf"


def _manager(facts: SetupFacts, nic: Nic) -> str:
    """Return what configures this card. netplan writes units for networkd, which may have others, too."""
    own = nic.unit and not nic.unit.rpartition("/")[2].startswith(_NETPLAN)
    return "networkd" if facts.network_manager == "netplan" and own else facts.network_manager


def _unkept(facts: SetupFacts, nic: Nic, manager: str) -> str:
    """Return why kit must not write a file for this MTU, or ""."""
    if manager in ("netplan", "networkd") and nic.unit:
        others = [other.name for other in facts.nics if other.unit == nic.unit and other.name != nic.name]
        if others:
            return f"one entry configures {nic.name} and {', '.join(others)}, and kit changes only one of them"
    if manager == "netplan" and not nic.unit:
        return f"kit does not know which entry of netplan configures {nic.name}"
    # As an entry of `ethernets`, it would be another interface, and the next boot would fail.
    if manager == "netplan" and not nic.physical:
        return f"{nic.name} is a bond, a bridge or a VLAN, whose entry of netplan kit does not know"
    return ""


def _keep_mtu(interface: str, unit: str, manager: str, mtu: int) -> WriteSystemFile | None:
    """Return the step that keeps an MTU in the way of the host's network manager, or None if kit does not know it."""
    why = "a reboot forgets the MTU otherwise"
    script = "#!/bin/sh\n# Made by kit setup.\n"
    change = f"ip link set dev {interface} mtu {mtu}"
    match manager:
        case "netplan":
            # netplan names the unit after the entry, which need not be the interface's name.
            entry = unit.rpartition("/")[2].removeprefix(_NETPLAN).removesuffix(".network")
            text = f"# Made by kit setup.\nnetwork:\n  version: 2\n  ethernets:\n    {entry}:\n      mtu: {mtu}\n"
            return WriteSystemFile(area="mtu", path=MTU_NETPLAN, content=text.encode(), mode="600", why=why)
        case "networkd" if unit:
            text = f"# Made by kit setup.\n[Link]\nMTUBytes={mtu}\n"
            return WriteSystemFile(area="mtu", path=networkd_file(unit), content=text.encode(), why=why)
        case "ifupdown":
            text = f'{script}[ "$IFACE" != {interface} ] || {change}\n'
            return WriteSystemFile(area="mtu", path=MTU_IFUPDOWN, content=text.encode(), mode="755", why=why)
        case "NetworkManager":
            text = f'{script}[ "$1 $2" != "{interface} up" ] || {change}\n'
            return WriteSystemFile(area="mtu", path=MTU_DISPATCHER, content=text.encode(), mode="755", why=why)
        case _:
            return None
