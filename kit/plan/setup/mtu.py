"""The MTU of the cluster's interface."""

from __future__ import annotations

from kit.errors import KitError, StepError
from kit.model.setup.facts import Nic, SetupFacts
from kit.model.setup.paths import MTU_DISPATCHER, MTU_IFUPDOWN, MTU_NETPLAN
from kit.model.setup.result import Remark
from kit.model.setup.steps import ChangeMtu, WriteSystemFile
from kit.model.spec import SetupSpec
from kit.plan.cluster.network import pick_interface_of
from kit.plan.setup.part import Part

_NETPLAN = "10-netplan-"


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


def _networkd_file(unit: str) -> str:
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
            return WriteSystemFile(area="mtu", path=_networkd_file(unit), content=text.encode(), why=why)
        case "ifupdown":
            text = f'{script}[ "$IFACE" != {interface} ] || {change}\n'
            return WriteSystemFile(area="mtu", path=MTU_IFUPDOWN, content=text.encode(), mode="755", why=why)
        case "NetworkManager":
            text = f'{script}[ "$1 $2" != "{interface} up" ] || {change}\n'
            return WriteSystemFile(area="mtu", path=MTU_DISPATCHER, content=text.encode(), mode="755", why=why)
        case _:
            return None
