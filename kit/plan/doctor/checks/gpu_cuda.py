"""A driver that is too old for the CUDA of the image, or a GPU that is too old for its kernels."""

from __future__ import annotations

from collections.abc import Iterator

from kit.errors import KitError
from kit.model.doctor import Check, Examined, Sight
from kit.model.values import replace
from kit.plan.doctor.sights import facts_of, idle_of, sights_of
from kit.plan.flavour import OPEN, driver_problems, model_problems, needs_gpus, with_flavour


def judge(examined: Examined) -> Iterator[Sight]:
    observed, image = facts_of(examined), examined.spec.image
    if image.flavour in OPEN:
        # The first of the observed hosts may be another than the head.
        ranking = [facts for facts in observed if facts.host.name != idle_of(examined)] or observed
        try:
            image = with_flavour(image, gpus=needs_gpus(replace(examined.spec, head_runs_ranks=True), ranking))
        except KitError as error:
            # Only some hosts have GPUs, and one image serves all.
            yield Sight(hosts=tuple(facts.host.name for facts in ranking), seen=error.message, fix=error.hint or "")
            return
    if any(facts.gpus for facts in observed):
        yield from sights_of([*driver_problems(image, observed), *model_problems(image, observed)])


CHECK = Check(
    id="gpu-cuda",
    title="The hosts' GPUs do not fit the image",
    area="gpu",
    severity="breaks",
    judge=judge,
    facts=True,
    leads_to="kit deploy changes nothing. CUDA would fail: `driver version is insufficient`, or `no kernel image is "
    "available`.",
    fix="Install a newer NVIDIA driver and reboot, or set `image.flavour` to one with an older CUDA. Leave out hosts "
    "whose GPUs are too old for the image.",
    untested="It also depends on the image: unit tests have it. To see it: "
    "kit lab up --gpus 1 --gpu-driver 450.51.05, then KIT_IMAGE_FLAVOUR=cuda-tensorflow kit doctor.",
)
