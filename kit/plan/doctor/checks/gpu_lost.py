"""GPUs that a host or its running node no longer sees."""

from __future__ import annotations

from collections.abc import Iterator

from kit.errors import NotReadyError
from kit.model.doctor import Check, Examined, Severity, Sight
from kit.model.nvidia.values import WARNING
from kit.plan.cluster.gpus import lost
from kit.plan.cluster.record import from_text
from kit.plan.doctor.gpus import STATE, complaint, state_of, states
from kit.plan.doctor.sights import facts_of, idle_of, sights_of
from kit.plan.flavour import ON_CPUS, broken_drivers, has_failed_gpu, is_late, late_driver, lost_gpus


def judge(examined: Examined) -> Iterator[Sight]:
    observed = facts_of(examined)
    # A head without ranks needs no GPU, and its image may have the driver's programs without one.
    idle = idle_of(examined)
    for facts in observed:
        seen, name = lost(facts, examined.spec.env), facts.host.name
        if seen:
            severity: Severity | None = "watch" if name == idle else None
            yield Sight(hosts=(name,), seen=seen, fix="run: kit deploy", severity=severity)
    harmless = {idle, *(facts.host.name for facts in observed if facts.gpus and facts.gpu_fault.startswith(WARNING))}
    # The doctor's own call has more time: a run can use GPUs that it lists.
    listed = states(examined)
    harmless |= {facts.host.name for facts in observed if facts.host.name in listed and is_late(facts)}
    # The same goes for hosts of an image that uses no GPU.
    if examined.spec.image.flavour in ON_CPUS:
        harmless.update(facts.host.name for facts in observed)
    # gpu-ecc names a GPU that failed, if the doctor's own call lists it as such.
    failed = {name for name, one in listed.items() if any(gpu.failed for gpu in one.gpus)}
    for host, text, hint in broken_drivers(
        [facts for facts in observed if facts.host.name not in failed or not has_failed_gpu(facts)]
    ):
        seen = text.removeprefix(f"{host}: ")
        yield Sight(hosts=(host,), seen=seen, fix=hint, severity="watch" if host in harmless else None)
    yield from _unjudged(examined)
    if examined.spec.image.flavour == "auto":
        ranked = [facts for facts in observed if facts.host.name not in harmless]
        yield from sights_of([lost_gpus(ranked, _deployed_image(examined))])


def _unjudged(examined: Examined) -> Iterator[Sight]:
    """Yield hosts on which the other checks of GPUs have nothing to judge, and nothing else says so."""
    for host in examined.hosts:
        ran = host.ran(*STATE.argv)
        if ran is None or host.facts is None:
            continue
        # A warning says nothing about an answer that is missing.
        if host.facts.gpu_fault and not host.facts.gpu_fault.startswith(WARNING):
            continue
        if ran.code is None:
            why = f"nvidia-smi -q did not answer within {STATE.timeout_s:g} s"
            fix = late_driver(host.name)
        elif state_of(host) is None and not complaint(host):
            why = "kit cannot read what nvidia-smi -q -x prints"
            fix = f"look at it: kit ssh {host.name} -- nvidia-smi -q -x; if it is sound XML, that is a bug of kit"
        else:
            continue
        yield Sight(
            hosts=(host.name,), seen=f"{why}, so the doctor judges little of its GPUs", fix=fix, severity="watch"
        )


def _deployed_image(examined: Examined) -> str:
    """Return the tag in the record of the cluster, or ""."""
    text = next((facts.record for facts in facts_of(examined) if facts.record), None)
    try:
        return from_text(text).image if text else ""
    except NotReadyError:
        return ""


CHECK = Check(
    id="gpu-lost",
    title="GPUs are lost",
    area="gpu",
    severity="breaks",
    judge=judge,
    reads=(STATE,),
    facts=True,
    leads_to="Each call of CUDA fails in the node, or ranks find fewer GPUs than the host has.",
    fix="`kit deploy` recreates a node that lost GPUs. If the VM lost them, look at `nvidia-smi` there, and reboot it.",
    lab="kit lab gpu HOST --fault xid:79",
)
