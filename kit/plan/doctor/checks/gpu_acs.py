"""PCIe switches that send traffic between GPUs through the CPU."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kit.model.doctor import Check, Command, Examined, File, Sight
from kit.plan.doctor.gpus import PROGRAM, STATE, state_of

# Class 0604: bridges between PCI buses. As root, lspci shows their control registers.
_BRIDGES = Command(argv=("lspci", "-vvv", "-d", "::0604"), only_with=PROGRAM)
_CPUS = File(path="/proc/cpuinfo")
_ON = re.compile(r"^\s{1,8}ACSCtl:\s{1,8}SrcValid\+", re.MULTILINE)
_VIRTUAL = re.compile(r"^flags\b.* hypervisor\b", re.MULTILINE)


def judge(examined: Examined) -> Iterator[Sight]:
    for host in examined.hosts:
        ran, state = host.ran(*_BRIDGES.argv), state_of(host)
        # A VM needs ACS between it and others, and cannot turn it off.
        virtual = _VIRTUAL.search(host.file(_CPUS.path) or "")
        if ran is None or ran.code != 0 or virtual or state is None or len(state.gpus) < 2:
            continue
        count = len(_ON.findall(ran.out))
        if count:
            yield Sight(hosts=(host.name,), seen=f"ACS is on in {count} PCIe {'bridge' if count == 1 else 'bridges'}")


CHECK = Check(
    id="gpu-acs",
    title="PCIe access control is on",
    area="gpu",
    severity="slows",
    judge=judge,
    reads=(STATE, _BRIDGES, _CPUS),
    leads_to="GPUs and NICs below one PCIe switch exchange data through the CPU. NCCL is slow, and hangs on some "
    "machines.",
    fix="Turn ACS or IOMMU off in the firmware. Or turn ACS off for each bridge until the next start: `sudo setpci "
    "-s BRIDGE ECAP_ACS+0x6.w=0000`. Only for machines without VMs.",
    lab="kit lab fault HOST gpu-acs",
)
