"""An engine that cannot give the host's GPUs to containers."""

from __future__ import annotations

from collections.abc import Iterator

from kit.errors import StepError
from kit.model.doctor import Check, Examined, Sight
from kit.plan.cluster.gpus import compose_driver, swarm_driver
from kit.plan.doctor.sights import facts_of, sights_of


def problems(examined: Examined, *, snap: bool) -> Iterator[StepError]:
    """Yield why engines cannot give GPUs to containers: those that are a snap, or the others."""
    driver_of = swarm_driver if examined.spec.orchestrator == "swarm" else compose_driver
    for facts in facts_of(examined):
        driver = driver_of(facts) if facts.engine else ""
        if isinstance(driver, StepError) and facts.gpu_engine.snap == snap:
            yield driver


def judge(examined: Examined) -> Iterator[Sight]:
    return sights_of(problems(examined, snap=False))


CHECK = Check(
    id="gpu-hook",
    title="The engine cannot give GPUs to containers",
    area="gpu",
    severity="breaks",
    judge=judge,
    facts=True,
    leads_to="A container would start without GPUs, or fail with `could not select device driver`.",
    fix="`kit setup --only toolkit`. Or install nvidia-container-toolkit, then `sudo systemctl restart docker`.",
    lab="kit lab up --gpus 1 --gpu-toolkit none",
)
