"""A Docker from snap on a host with GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from kit.model.doctor import Check, Examined, Sight
from kit.plan.doctor.checks.gpu_hook import problems
from kit.plan.doctor.sights import sights_of


def judge(examined: Examined) -> Iterator[Sight]:
    return sights_of(problems(examined, snap=True))


CHECK = Check(
    id="gpu-snap",
    title="The engine is a snap",
    area="gpu",
    severity="breaks",
    judge=judge,
    facts=True,
    leads_to="A snap cannot give GPUs to containers.",
    fix="Replace it by Docker's packages. Removing the snap deletes its images and volumes.",
    untested="The lab has no snapd.",
)
