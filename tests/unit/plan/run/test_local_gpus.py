"""Tests which GPUs of this machine kit local requests from the engine."""

from __future__ import annotations

from typing import Any

import pytest

from kit.errors import KitError
from kit.model.local import LocalGpus
from kit.model.observed import GpuEngine, HostFacts
from kit.model.values import replace
from kit.plan.run.local_gpus import resolved, wished
from tests.fakes.facts import GPU_ENGINE, facts, gpus

MIG = ("MIG-a", "MIG-b")


def machine(count: int = 2, **engine: Any) -> HostFacts:
    """This machine with GPUs, the last of which has two MIG devices."""
    there = [replace(gpu, index=number) for number, gpu in enumerate(gpus(count))]
    there[-1:] = [replace(gpu, mig=MIG) for gpu in there[-1:]]
    return facts(1, gpus=tuple(there), gpu_engine=replace(GPU_ENGINE, **engine))


def names(text: str, **engine: Any) -> tuple[str, tuple[str, ...], int | None]:
    wish = wished(text)
    assert wish is not None
    result = resolved(wish, machine(**engine))
    assert isinstance(result, LocalGpus)
    return result.driver, result.names, result.count


CDI = {"cdi_enabled": True, "cdi": ("0", "1", "1:0", "1:1", "all")}


@pytest.mark.parametrize(
    ("text", "engine", "expected"),
    [
        ("all", {}, ("nvidia", (), None)),
        ("2", {}, ("nvidia", (), 2)),
        ("device=1,GPU-0", {}, ("nvidia", ("1", "GPU-0"), None)),
        ("all", CDI, ("cdi", (), None)),
        ("1", CDI, ("cdi", ("0",), 1)),
        # The CDI file has numbers, or UUIDs.
        ("device=GPU-1", CDI, ("cdi", ("1",), None)),
        ("device=MIG-b", CDI, ("cdi", ("1:1",), None)),
        ("device=MIG-b", {"cdi_enabled": True, "cdi": ("gpu0", "mig1:0", "mig1:1", "all")}, ("cdi", ("mig1:1",), None)),
        ("device=0", {"cdi_enabled": True, "cdi": ("GPU-0", *MIG, "all")}, ("cdi", ("GPU-0",), None)),
        # A CDI file with `all` alone.
        ("device=0", {"cdi_enabled": True, "cdi": ("all",)}, ("nvidia", ("0",), None)),
    ],
)
def test_names(text: str, engine: dict[str, Any], expected: tuple[str, tuple[str, ...], int | None]) -> None:
    assert names(text, **engine) == expected


@pytest.mark.parametrize(
    ("text", "seen", "message"),
    [
        ("3", machine(), "--gpus 3: this machine has 2 GPUs"),
        ("device=2", machine(), "this machine has no GPU 2"),
        ("all", facts(1), "this machine has no GPU that nvidia-smi lists"),
        ("all", replace(machine(), gpu_engine=GpuEngine()), "the engine cannot give them to containers"),
        ("1", replace(machine(), gpu_engine=GpuEngine(cdi_enabled=True, cdi=("all",))), "none of them is GPU 0"),
    ],
)
def test_a_wish_that_this_machine_cannot_fulfil(text: str, seen: HostFacts, message: str) -> None:
    wish = wished(text)
    assert wish is not None
    with pytest.raises(KitError, match=message):
        resolved(wish, seen)


def test_without_a_wish_a_machine_may_have_no_gpu() -> None:
    wish = wished(None)
    assert wish == LocalGpus()
    assert resolved(wish, facts(1)) is None
    assert isinstance(resolved(wish, replace(machine(), gpu_engine=GpuEngine())), KitError)
    assert wished("none") is None
