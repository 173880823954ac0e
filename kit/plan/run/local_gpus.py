"""Decides which GPUs of this machine the container of kit local gets, and how many ranks share them."""

from __future__ import annotations

from collections.abc import Sequence

from kit.errors import InputError, KitError, NotReadyError
from kit.model.local import LocalGpus
from kit.model.observed import Gpu, HostFacts
from kit.model.spec import ClusterSpec
from kit.model.values import replace
from kit.plan.cluster.gpus import cdi_names, compose_driver, generate


def wished(text: str | None) -> LocalGpus | None:
    """Return the GPUs that a value of --gpus means (kit.cli.verbs.values). None for none."""
    if text is None or text == "none":
        return LocalGpus() if text is None else None
    if text == "all":
        return LocalGpus(must=True)
    names = text.removeprefix("device=")
    return LocalGpus(count=int(text), must=True) if names == text else LocalGpus(names=(*names.split(","),), must=True)


def check_ranks(gpus: LocalGpus | None, share: int, np: int | None) -> None:
    """Raise InputError if the ranks cannot each get `share` of these GPUs."""
    if not share:
        return
    if gpus is None:
        raise InputError(
            f"--gpus none gives the container no GPU, and each rank gets {share}",
            hint="remove --gpus none, or write --gpus-per-rank 0",
        )
    needed = share * (np or 1)
    if gpus.known is not None and gpus.known < needed:
        ranks = f"{np or 1} rank{'s' if (np or 1) > 1 else ''}"
        raise InputError(
            f"--gpus gives the container {gpus.known}, and {ranks} with {share} each need {needed}",
            hint=f"use --gpus {needed}, fewer ranks, or --gpus-per-rank 0 so that the ranks share the GPUs",
        )


def ranks(spec: ClusterSpec, gpus: LocalGpus | None, share: int) -> int:
    """Return how many ranks start without --np: one for each share of the GPUs, else the slots of kit.yaml."""
    if share and gpus is not None and gpus.known is not None:
        return gpus.known // share
    return spec.slots if spec.slots != "auto" else 1


def resolved(wish: LocalGpus, facts: HostFacts) -> LocalGpus | KitError | None:
    """Return the GPUs in the words of the engine, or why it cannot give them. Return None for a machine without GPUs.

    Raises NotReadyError if the person asked for GPUs that this machine does not have or cannot give.
    """
    driver = compose_driver(facts)
    if isinstance(driver, KitError):
        if wish.must:
            raise driver
        return driver
    if not driver:
        if wish.must:
            fault = f": {facts.gpu_fault}" if facts.gpu_fault else ""
            raise NotReadyError(f"this machine has no GPU that nvidia-smi lists{fault}", hint="remove --gpus")
        return None
    wish = replace(wish, driver=driver)
    chosen = _chosen(wish, facts.gpus)
    if driver == "nvidia" or wish.known is None:
        return wish
    forms = [[*names, *(cdi_names(name)[1] for name in names)] for names in chosen]
    names = [next((name for name in form if name in facts.gpu_engine.cdi), None) for form in forms]
    if None not in names:
        return replace(wish, names=tuple(name for name in names if name is not None))
    if facts.gpu_engine.hook:
        # A CDI file may have no device but `all`.
        return replace(wish, driver="nvidia")
    raise NotReadyError(
        f"the engine's CDI devices are {', '.join(facts.gpu_engine.cdi)}, and none of them is GPU "
        f"{chosen[names.index(None)][0]}",
        hint=f"use all GPUs: --gpus all; or write the CDI file again: {generate(facts.gpu_engine)}",
    )


def _chosen(wish: LocalGpus, gpus: Sequence[Gpu]) -> list[tuple[str, ...]]:
    """Return all names of each wished GPU: the one on the command line, its number, its UUID."""
    devices = [names for gpu in gpus for names in _names(gpu)]
    if wish.count is not None and wish.count > len(gpus):
        has = "1 GPU" if len(gpus) == 1 else f"{len(gpus)} GPUs"
        raise NotReadyError(f"--gpus {wish.count}: this machine has {has}", hint=f"use --gpus {len(gpus)}")
    if wish.count is not None:
        return [_names(gpu)[0] for gpu in gpus[: wish.count]]
    chosen = []
    for name in wish.names:
        device = next((names for names in devices if name in names), None)
        if device is None:
            raise NotReadyError(f"this machine has no GPU {name}", hint="list its GPUs: nvidia-smi -L")
        chosen.append((name, *device))
    return chosen


def _names(gpu: Gpu) -> list[tuple[str, ...]]:
    """Return the names of a GPU, then those of each of its MIG devices."""
    whole = (*([str(gpu.index)] if gpu.index >= 0 else []), gpu.uuid)
    return [whole, *((f"{gpu.index}:{number}", uuid) for number, uuid in enumerate(gpu.mig or ()))]
