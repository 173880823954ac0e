"""Persistence mode and maximum application clocks of NVIDIA's GPUs."""

from __future__ import annotations

from kit.model.setup.facts import SetupFacts
from kit.model.setup.paths import CLOCKS_UNIT
from kit.model.setup.result import Remark
from kit.model.setup.steps import StartUnit, WriteSystemFile
from kit.plan.setup import docker
from kit.plan.setup.part import Part

# nvidia-smi prints memory, graphics in MHz. A GPU that refuses application clocks keeps its own.
_CLOCKS = b"""# Made by kit setup.
[Unit]
Description=Persistence mode and maximum application clocks of NVIDIA GPUs
After=nvidia-persistenced.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=-/usr/bin/env nvidia-smi -pm 1
ExecStart=/bin/sh -c 'nvidia-smi --query-gpu=index,clocks.max.memory,clocks.max.graphics \\
  --format=csv,noheader,nounits | while IFS=", " read -r gpu memory graphics; do \\
  nvidia-smi -i "$$gpu" -ac "$$memory,$$graphics" || true; done'

[Install]
WantedBy=multi-user.target
"""


def clocks(facts: SetupFacts) -> Part:
    """Return what keeps persistence mode and the maximum application clocks, also after a reboot."""
    part = Part()
    if not facts.clocks:
        return part
    name = facts.host.name
    if not facts.systemd:
        part.remarks.append(Remark(host=name, text="has no systemd, so kit does not set its clocks"))
        return part
    unit = CLOCKS_UNIT.rpartition("/")[2]
    known = any(value.kind == "unit" and value.key == unit for value in facts.saved_values)
    if facts.has(CLOCKS_UNIT, _CLOCKS) and known:
        slow = [str(gpu.index) for gpu in facts.clocks if not gpu.at_most]
        if slow:
            text = f"GPU {', '.join(slow)}: clocks are below their maximum, or persistence mode is off"
            part.remarks.append(Remark(host=name, text=text, hint=f"see: kit ssh {name} -- systemctl status {unit}"))
        return part
    if known and facts.running:
        # systemd has the former unit, and reads the new one only by a reload. Live-restore does not help against that.
        reason = f"systemd must reload to read the new {unit}, which can take the GPUs from"
        part.problems.append(docker.containers_run(facts, reason, then="kit setup --only clocks"))
        return part
    if known or not all(gpu.at_most for gpu in facts.clocks):
        part.steps += [
            WriteSystemFile(area="clocks", path=CLOCKS_UNIT, content=_CLOCKS, why="a reboot forgets clocks and mode"),
            StartUnit(area="clocks", unit=unit, why="the slowest GPU sets the pace of all"),
        ]
    return part
