"""The disks and the network devices of a host: what they count, and the rates between two looks."""

import re
from typing import Any, Dict, List, Mapping, Optional, Tuple

from kitwatch import files

SECTOR = 512
MOST = 32
# Devices that only pass on what a real one carries, or that no packet has left.
_VIRTUAL = re.compile(
    r"(lo|veth.*|docker\d+|docker_gwbridge|br-.*|virbr.*|cni.*|flannel.*|cali.*|ifb\d+|vxlan.*|dummy.*)$"
)
# Parts of disks, and disks that are no hardware.
_PART = re.compile(r"(loop|ram|zram|fd|sr|dm-|md)\d+$|(sd|vd|xvd|hd)[a-z]+\d+$|(nvme\d+n\d+|mmcblk\d+)p\d+$")
_RATE = re.compile(r"(\d+(?:\.\d+)?) Gb/sec")
# The counters of RDMA count words of 4 bytes.
_WORD = 4
# The kernel's number for this kind of network device.
_INFINIBAND = "32"

Totals = Mapping[str, Mapping[str, float]]


def disks() -> Dict[str, Dict[str, float]]:
    """Return {device: {"read_bytes", "written_bytes", "busy_s"}} of whole disks since the boot."""
    counters: Dict[str, Dict[str, float]] = {}
    for line in files.lines(files.PROC + "/diskstats"):
        words = line.split()
        if len(words) < 14 or _PART.match(words[2]) or len(counters) == MOST:
            continue
        read, written, busy = int(words[5]), int(words[9]), int(words[12])
        if read or written:
            counters[words[2]] = {
                "read_bytes": read * SECTOR,
                "written_bytes": written * SECTOR,
                "busy_s": busy / 1000.0,
            }
    return counters


def disk_rates(now: Totals, before: Optional[Totals], seconds: float) -> Dict[str, Dict[str, Any]]:
    """Return {device: {"read", "written" (bytes/s), "busy" (percent), and the totals}}.

    Rates are None without an earlier look.
    """
    rates = {}
    for name, totals in now.items():
        passed = _passed(totals, (before or {}).get(name), seconds)
        busy = passed.get("busy_s")
        rates[name] = dict(
            totals,
            read=passed.get("read_bytes"),
            written=passed.get("written_bytes"),
            busy=None if busy is None else min(round(100 * busy, 1), 100.0),
        )
    return rates


def nics() -> Dict[str, Dict[str, float]]:
    """Return {name: {"rx_bytes", "tx_bytes", "errors", "dropped"}} of the devices that have a link, since the boot.

    RDMA goes past the network devices. `mlx5_0/1` is port 1 of an adapter, if it is up and counts its bytes.
    """
    counters: Dict[str, Dict[str, float]] = {}
    for line in files.lines(files.PROC + "/net/dev")[2:]:
        name, _, rest = line.partition(":")
        name, words = name.strip(), rest.split()
        if len(words) < 12 or _VIRTUAL.match(name) or len(counters) == MOST or _is_down(name):
            continue
        counts = [int(word) for word in words[:12]]
        counters[name] = {
            "rx_bytes": counts[0],
            "tx_bytes": counts[8],
            "errors": counts[2] + counts[10],
            "dropped": counts[3] + counts[11],
        }
    for port in rdma_ports():
        totals = _rdma_bytes(port)
        if totals is not None:
            folder = _port(port) + "/counters/"
            counters[port] = {
                "rx_bytes": totals[0],
                "tx_bytes": totals[1],
                "errors": files.number(folder + "port_rcv_errors") + files.number(folder + "symbol_error"),
                "dropped": files.number(folder + "port_xmit_discards"),
            }
    return counters


def _rdma_bytes(port: str) -> Optional[Tuple[int, int]]:
    """Return what a port received and sent, or None if it does not count that: a 0 would be wrong.

    The port of a virtual function may say `N/A (no PMA)`. EFA has other counters, of bytes.
    """
    for names, unit in ((("counters/port_rcv_data", "counters/port_xmit_data"), _WORD),
                        (("hw_counters/rx_bytes", "hw_counters/tx_bytes"), 1)):  # fmt: skip
        received, sent = (files.number("%s/%s" % (_port(port), name), -1) for name in names)
        if received >= 0 and sent >= 0:
            return received * unit, sent * unit
    return None


def lowest(nics: Mapping[str, Any]) -> List[str]:
    """Return those of the devices (of `nics()`) whose sum has each byte once.

    A bond, a VLAN or a bridge counts what the devices below it count as well. So do the adapters that Azure and others
    give to a VM as a pair: eth0 also counts what its virtual function carries, and stays when that one goes. A port of
    InfiniBand also counts what IP sends over it (ib0), and a port of Ethernet only counts RDMA.
    """
    top = files.SYS + "/class/net/"
    entries = {name: files.names(top + name) for name in nics}
    lowers = {name: [word[len("lower_") :] for word in entries[name] if word.startswith("lower_")] for name in nics}
    adapters = {name for name in nics if "device" in entries[name]}
    doubles = {lower for name in adapters for lower in lowers[name]}
    doubles.update(
        name
        for name in nics
        if name not in adapters and ("bridge" in entries[name] or any(lower in nics for lower in lowers[name]))
    )
    doubles.update(name for name in nics if any(port in nics for port in _ports_of(top + name)))
    return [name for name in nics if name not in doubles]


def _ports_of(device: str) -> List[str]:
    """Return the port that carries the IP packets of a network device over InfiniBand; [] for another device."""
    if files.word(device + "/type") != _INFINIBAND:
        return []
    port = files.number(device + "/dev_port") + 1
    return ["%s/%d" % (adapter, port) for adapter in files.names(device + "/device/infiniband")]


def _is_down(name: str) -> bool:
    return files.word("%s/class/net/%s/operstate" % (files.SYS, name)) in ("down", "lowerlayerdown", "notpresent")


def rdma_ports() -> List[str]:
    """Return the ports of RDMA adapters that are up, such as `mlx5_0/1`."""
    top = files.SYS + "/class/infiniband"
    ports = ["%s/%s" % (name, port) for name in files.names(top) for port in files.names("%s/%s/ports" % (top, name))]
    return [port for port in ports[:MOST] if "ACTIVE" in files.word(_port(port) + "/state")]


def _port(port: str) -> str:
    return "%s/class/infiniband/%s/ports/%s" % (files.SYS, *port.split("/"))


def speed(name: str) -> Optional[int]:
    """Return the speed of the link in bytes per second, or None if the device does not know it, as in many VMs."""
    if "/" in name:
        match = _RATE.match(files.word(_port(name) + "/rate"))
        return int(float(match.group(1)) * 1e9 / 8) if match else None
    megabits = files.number("%s/class/net/%s/speed" % (files.SYS, name), -1)
    return megabits * 125000 if megabits > 0 else None


def nic_rates(now: Totals, before: Optional[Totals], seconds: float) -> Dict[str, Dict[str, Any]]:
    """Return {name: {"rx", "tx" (bytes/s), "speed" (bytes/s), and the totals}}; None without an earlier look."""
    rates = {}
    for name, totals in now.items():
        passed = _passed(totals, (before or {}).get(name), seconds)
        rates[name] = dict(totals, rx=passed.get("rx_bytes"), tx=passed.get("tx_bytes"), speed=speed(name))
    return rates


def _passed(now: Mapping[str, float], before: Optional[Mapping[str, float]], seconds: float) -> Dict[str, float]:
    """Return the change of each counter in a second, or {} if there was no earlier look.

    A counter that is lower than before began again: the device came back.
    """
    if before is None or seconds <= 0:
        return {}
    return {name: round(max(value - before.get(name, 0.0), 0.0) / seconds, 3) for name, value in now.items()}
