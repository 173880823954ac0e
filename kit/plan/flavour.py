"""Which flavor of the image a cluster needs, where kit.yaml leaves that to the GPUs of its hosts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kit.errors import KitError, StepError
from kit.model.pretended import marked
from kit.model.values import replace

if TYPE_CHECKING:
    from kit.model.observed import HostFacts
    from kit.model.spec import ClusterSpec, Flavour, ImageSpec
    from kit.plan.image import CudaNeeds

# `gpu` and `cuda` are `auto` that requires GPUs.
OPEN = ("auto", "gpu", "cuda")
# Their images use no GPU.
ON_CPUS = ("cpu", "pytorch")
_ON_CPUS: Mapping[str, Flavour] = {"tensorflow": "cpu", "mxnet": "cpu", "pytorch": "pytorch"}
_ON_GPUS: Mapping[str, Flavour] = {
    "tensorflow": "cuda-tensorflow",
    "mxnet": "cuda-mxnet",
    "pytorch": "cuda-pytorch",
}
# How many hosts a message names.
_MOST = 5
# How the complaint of observe.sh about an nvidia-smi begins that did not end in time.
_LATE = "nvidia-smi did not answer"
# A listed GPU that failed, as kit.remote.cluster.gpus reports it. The driver's own complaints have no number there.
_FAILED_GPU = re.compile(r"GPU ([0-9]{1,5}|GPU-\S{1,64}): ")


def with_flavour(image: ImageSpec, *, gpus: bool) -> ImageSpec:
    """Return the image with a definite flavor. Of several frameworks, a CUDA image has the first that it can have."""
    if image.flavour not in OPEN:
        return image
    framework = next((name for name in _ON_GPUS if name in image.frameworks), "tensorflow")
    return replace(image, flavour=(_ON_GPUS if gpus or image.flavour != "auto" else _ON_CPUS)[framework])


def candidates(image: ImageSpec) -> dict[bool, ImageSpec]:
    """Return the image that hosts without and with GPUs need, or the only one."""
    if image.flavour == "auto":
        return {gpus: with_flavour(image, gpus=gpus) for gpus in (False, True)}
    return {image.flavour in OPEN: with_flavour(image, gpus=True)}


def flavour_of(tag: str) -> str:
    """Return the flavor in a tag such as kit:cuda-mxnet-0123456789ab."""
    return tag.rpartition(":")[2].rpartition("-")[0]


def needs_gpus(spec: ClusterSpec, observed: Sequence[HostFacts]) -> bool:
    """Return whether the hosts that run ranks have GPUs, for `auto`. Raises StepError if only some of them have."""
    ranking = ranked(spec, observed)
    without = [facts for facts in ranking if not facts.gpus]
    if spec.image.flavour in ("gpu", "cuda"):
        if without:
            raise _failed(
                f"image.flavour is {spec.image.flavour}, but {_hosts(without)} no GPU{_faults(without)}",
                "take these hosts out of the hosts file, or set image.flavour to cpu in kit.yaml",
            )
        return True
    if not without:
        return True
    if len(without) < len(ranking):
        raise _failed(
            marked(
                f"{_hosts([facts for facts in ranking if facts.gpus])} GPUs, and {_hosts(without)} none"
                f"{_faults(without)}: one image serves all hosts",
                [gpu.name for facts in ranking for gpu in facts.gpus],
            ),
            "take the hosts without GPUs out of the hosts file; or set image.flavour in kit.yaml: cpu uses no GPU, and "
            "cuda-tensorflow, cuda-mxnet or cuda-pytorch start everywhere",
        )
    return False


def lost_gpus(observed: Sequence[HostFacts], deployed: str) -> KitError | None:
    """Return the error of hosts that lost all GPUs since the deploy of the image `deployed`, a tag.

    `observed` has only hosts that run ranks.
    """
    broken = [facts for facts in observed if facts.gpu_fault and not facts.gpus]
    if not broken or not flavour_of(deployed).startswith("cuda-"):
        return None
    return _failed(
        f"the cluster has a CUDA image, and now {_hosts(broken)} no GPU{_faults(broken)}",
        "look at the driver: kit ssh HOST -- nvidia-smi; to go on without GPUs, set image.flavour: cpu",
    )


def driver_problems(image: ImageSpec, observed: Sequence[HostFacts]) -> list[KitError]:
    """Return a problem for each host whose driver is too old for the image's CUDA. `image` has a definite flavor.

    A base that kit does not know, and a driver that nvidia-smi does not report, have no check.
    """
    needs = cuda_needs(image)
    if needs is None:
        return []
    return [
        StepError(
            marked(
                f"has the NVIDIA driver {driver_and_need(facts.driver, image, needs)}",
                [gpu.name for gpu in facts.gpus],
            ),
            hint=newer_driver(needs, facts.driver, debian=facts.os.startswith("Debian")),
            host=facts.host.name,
        )
        for facts in observed
        if facts.gpus and facts.driver and is_older(facts.driver, needs.driver)
    ]


def cuda_needs(image: ImageSpec) -> CudaNeeds | None:
    """Return what the CUDA of this image, which has a definite flavor, needs of hosts with GPUs.

    None for an image without CUDA, and for a base that kit does not know.
    """
    from kit.plan.image import CUDA  # noqa: PLC0415  (it is not needed where no host has a GPU)

    return CUDA.get(image.flavour) if image.base is None else None


def driver_and_need(driver: str, image: ImageSpec, needs: CudaNeeds) -> str:
    """Return a driver's version, and which one the image needs."""
    return f"{driver}, and CUDA {needs.cuda} of the image ({image.flavour}) needs {needs.driver} or newer"


def newer_driver(needs: CudaNeeds, driver: str, *, debian: bool) -> str:
    """Return what to do about a driver that is too old for the image. `debian`: the host's system is Debian."""
    from kit.plan.image import CUDA  # noqa: PLC0415  (it is not needed where no host has a GPU)

    package = f"nvidia-driver-{needs.driver.partition('.')[0]}-server"
    # Only Ubuntu has a package for each branch.
    newer = " from NVIDIA's own repository" if debian else f", for example: sudo apt-get install {package}"
    others = [f"{name} ({other.driver})" for name, other in sorted(CUDA.items()) if not is_older(driver, other.driver)]
    older = f"; or set image.flavour to one with an older CUDA: {', '.join(others)}" if others else ""
    return f"install a newer driver{newer}, then reboot{older}"


def is_older(driver: str, least: str) -> bool:
    """Return whether a driver's version, such as 550.163.01, is below another."""
    return _numbers(driver) < _numbers(least)


def model_problems(image: ImageSpec, observed: Sequence[HostFacts]) -> list[KitError]:
    """Return a problem for each host with GPUs that are too old for the image's kernels.

    `image` has a definite flavor. A base that kit does not know, and a GPU whose compute capability nvidia-smi does not
    report, have no check. A newer GPU than the image knows has none either: its driver may compile the kernels.
    """
    from kit.plan.image import CUDA  # noqa: PLC0415  (it is not needed where no host has a GPU)

    needs = cuda_needs(image)
    if needs is None:
        return []
    problems: list[KitError] = []
    for facts in observed:
        old = [gpu for gpu in facts.gpus if gpu.capability and _numbers(gpu.capability) < _numbers(needs.capability)]
        if old:
            models = dict.fromkeys(f"{gpu.name} (compute capability {gpu.capability})" for gpu in old)
            lowest = min(_numbers(gpu.capability) for gpu in old)
            fitting = [name for name, other in sorted(CUDA.items()) if _numbers(other.capability) <= lowest]
            ways = [
                "leave this host out of the hosts file",
                *([f"set image.flavour to one with kernels for these GPUs: {', '.join(fitting)}"] if fitting else []),
                "use an image.base that was built for them, with image.flavour: ssh-layer",
            ]
            text = (
                f"has {' and '.join(models)}, and the image ({image.flavour}, CUDA {needs.cuda}) has kernels for "
                f"{needs.capability} or newer"
            )
            problems.append(StepError(text, hint="; or ".join(ways), host=facts.host.name))
    return problems


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(word) for word in version.split("."))


def unused_gpus(spec: ClusterSpec, observed: Sequence[HostFacts]) -> tuple[str, str] | None:
    """Return the warning, and its hint, about GPUs that the image cannot use."""
    having = [facts for facts in observed if facts.gpus]
    if not having or spec.image.flavour not in ON_CPUS:
        return None
    models = ", ".join(dict.fromkeys(f"{len(facts.gpus)} × {facts.gpus[0].name}" for facts in having))
    return (
        f"{_hosts(having)} GPUs ({models}), but image.flavour is {spec.image.flavour}: ranks compute on CPUs",
        "to use the GPUs, remove flavour: from kit.yaml, then: kit deploy"
        + ("" if spec.image.flavour == "cpu" else "; and write frameworks: [pytorch]"),
    )


def broken_drivers(observed: Sequence[HostFacts]) -> list[tuple[str, str, str]]:
    """Return (host, warning, hint) for each host on which nvidia-smi fails, or misses a GPU."""
    return [
        (
            facts.host.name,
            marked(
                f"{facts.host.name}: nvidia-smi reports {len(facts.gpus) or 'no'} GPUs, and: {facts.gpu_fault}",
                [gpu.name for gpu in facts.gpus],
            ),
            _repair(facts),
        )
        for facts in observed
        if facts.gpu_fault
    ]


def _repair(facts: HostFacts) -> str:
    host = facts.host.name
    if is_late(facts):
        return late_driver(host)
    if failed := _FAILED_GPU.match(facts.gpu_fault):
        return (
            f"end the programs on it, and reset it: kit ssh {host} -- sudo nvidia-smi --gpu-reset -i {failed[1]}; or "
            "reboot the VM"
        )
    return f"if it has more GPUs, repair the driver: kit ssh {host} -- nvidia-smi; a reboot often helps"


def has_failed_gpu(facts: HostFacts) -> bool:
    """Return whether nvidia-smi lists a GPU of a host that no longer works, and has no other complaint."""
    return _FAILED_GPU.match(facts.gpu_fault) is not None


def is_late(facts: HostFacts) -> bool:
    """Return whether nvidia-smi did not answer in time on a host. It may be slow only."""
    return facts.gpu_fault.startswith(_LATE)


def late_driver(host: str) -> str:
    """Return what to do about an nvidia-smi that does not answer in time."""
    # Without persistence mode, the driver starts each GPU again for each program.
    return (
        f"try it: kit ssh {host} -- nvidia-smi; if it is only slow: kit setup --only clocks, which sets persistence "
        "mode; if it hangs, reboot the VM"
    )


def ranked(spec: ClusterSpec, observed: Sequence[HostFacts]) -> Sequence[HostFacts]:
    """Return the hosts that run ranks. A head without ranks needs no GPU."""
    return observed if spec.head_runs_ranks or len(observed) == 1 else observed[1:]


def _hosts(observed: Sequence[HostFacts]) -> str:
    """Return `gpu1 has`, or `gpu1, gpu2 and 3 more hosts have`."""
    names = [facts.host.name for facts in observed]
    if len(names) == 1:
        return f"{names[0]} has"
    more = f" and {len(names) - _MOST} more hosts" if len(names) > _MOST else ""
    return f"{', '.join(names[:_MOST])}{more} have"


def _faults(observed: Sequence[HostFacts]) -> str:
    fault = next((facts for facts in observed if facts.gpu_fault), None)
    return f" (nvidia-smi on {fault.host.name}: {fault.gpu_fault})" if fault else ""


def _failed(text: str, hint: str) -> StepError:
    return StepError(f"{text}; nothing was changed", hint=hint)
