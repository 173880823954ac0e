"""A Docker from snap."""

from __future__ import annotations

from collections.abc import Iterator

from kit.model.doctor import Check, Examined, Links, Sight
from kit.plan.cluster.checks import snap_problem
from kit.plan.doctor.checks.gpu_hook import problems
from kit.plan.doctor.sights import sights_of

# A deploy looks at where the engine's files are only if the host has GPUs.
_SNAP = Links(pattern="/var/snap/docker/current")
_PACKAGED = Links(pattern="/usr/*bin/dockerd")


def judge(examined: Examined) -> Iterator[Sight]:
    yield from sights_of(problems(examined, snap=True))
    for host in examined.hosts:
        if host.link(_SNAP.pattern) and not host.link(_PACKAGED.pattern) and not (host.facts and host.facts.gpus):
            yield from sights_of([snap_problem(host.name)])


CHECK = Check(
    id="gpu-snap",
    title="The engine is a snap",
    area="gpu",
    severity="breaks",
    judge=judge,
    reads=(_SNAP, _PACKAGED),
    facts=True,
    leads_to="A snap can neither read the folders of the VM that kit's nodes need nor give GPUs to containers.",
    fix="Replace it by Docker's packages. Removing the snap deletes its images and volumes.",
    untested="The lab has no snapd: unit tests have it. To see it: "
    "kit lab up --gpus 1 --gpu-toolkit snap, then kit doctor.",
)
