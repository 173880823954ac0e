"""GPUs by the hook, with systemd as the engine's cgroup driver: a daemon-reload takes them away."""

from __future__ import annotations

from collections.abc import Iterator

from kit.model.doctor import Check, Examined, Sight
from kit.plan.cluster.gpus import generate, hook_problem
from kit.plan.doctor.sights import facts_of


def judge(examined: Examined) -> Iterator[Sight]:
    if examined.spec.orchestrator != "compose":
        return
    for facts in facts_of(examined):
        seen, engine = hook_problem(facts), facts.gpu_engine
        # A file in a folder before that of the engine's file would change nothing.
        fix = f"the CDI file does not fit the host, so write it again: {generate(engine)}; then: kit deploy"
        if seen:
            stale = engine.cdi_enabled and engine.cdi
            yield Sight(hosts=(facts.host.name,), seen=seen, fix=fix if stale else "")


CHECK = Check(
    id="gpu-cgroup",
    title="A daemon-reload takes the GPUs from running nodes",
    area="gpu",
    severity="watch",
    judge=judge,
    facts=True,
    leads_to="After `systemctl daemon-reload`, which updates run, CUDA fails in the nodes: "
    "`Failed to initialize NVML: Unknown Error`.",
    fix="Let the engine use CDI: `sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`. "
    'Before Docker 28.2, also write `"features": {"cdi": true}` into /etc/docker/daemon.json, and restart the engine: '
    "`sudo systemctl restart docker`, which ends runs there. Then: `kit deploy`.",
    untested="The lab's hosts have no systemd, so their engines have the cgroup driver cgroupfs.",
)
