"""Programs on GPUs that no run of kit started."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from kit.model import names
from kit.model.doctor import Check, Command, Examined, Seen, Sight
from kit.plan.doctor.gpus import PROGRAM, STATE, named, state_of
from kit.plan.doctor.kernel import shown

_PROCESSES = Command(argv=("ps", "-eo", "pid=,user:32=,comm:20=,cgroup="), only_with=PROGRAM)
_NODES = Command(
    argv=("docker", "ps", "--no-trunc", "--filter", f"label={names.LABEL_CLUSTER}", "--format", "{{.ID}}"),
    only_with=PROGRAM,
)
_ROW = re.compile(r" {0,12}([0-9]{1,10}) (\S{1,64}) {1,40}(\S.{0,19}?) {2,20}(\S.*)")
_CONTAINER = re.compile(r"[0-9a-f]{64}")
# How many programs of a host a finding names.
_NAMED = 4


def judge(examined: Examined) -> Iterator[Sight]:
    for host in examined.hosts:
        state = state_of(host)
        if state is None or not any(gpu.processes for gpu in state.gpus):
            continue
        owners = _strangers(host)
        holders: dict[tuple[int, str], list[int]] = {}
        for gpu in state.gpus:
            for process in gpu.processes:
                # Programs that only draw hold little.
                if process.pid in owners and "C" in process.kind:
                    holders.setdefault((process.pid, owners[process.pid]), []).append(gpu.index)
        for (pid, owner), numbers in list(holders.items())[:_NAMED]:
            yield Sight(hosts=(host.name,), seen=f"{named(numbers)}: {owner}, process {pid}")


def _strangers(host: Seen) -> Mapping[int, str]:
    """Return user and program of each process that is in no container of kit."""
    listed, nodes = host.ran(*_PROCESSES.argv), host.ran(*_NODES.argv)
    if listed is None or listed.code != 0:
        return {}
    ours = set(_CONTAINER.findall(nodes.out)) if nodes and nodes.code == 0 else None
    strangers = {}
    for line in listed.out.splitlines():
        match = _ROW.match(line)
        if not match:
            continue
        container = _CONTAINER.search(match[4])
        # Without an answer of the engine, nobody knows whose container it is.
        if container is None or (ours is not None and container[0] not in ours):
            strangers[int(match[1])] = shown(f"{match[3]} of {match[2]}", most=100)
    return strangers


CHECK = Check(
    id="gpu-busy",
    title="Other programs use GPUs",
    area="gpu",
    severity="slows",
    judge=judge,
    reads=(STATE, _PROCESSES, _NODES),
    leads_to="Ranks on this GPU run out of memory, or share its time and slow down all others.",
    fix="Ask the user, or end the program on the VM: `sudo kill PID`. `kit run -H LIST …` can leave the host out.",
    lab="kit lab gpu HOST --fault busy",
)
