"""Which flavor the hosts need, and whether their drivers can run its CUDA."""

from __future__ import annotations

from typing import Any

import pytest

from kit.errors import StepError
from kit.model.host import Host
from kit.model.observed import HostFacts
from kit.model.spec import ClusterSpec, ImageSpec
from kit.model.values import replace
from kit.plan import flavour
from kit.plan.image import CUDA
from tests.fakes.facts import facts, gpus


def with_gpus(number: int, count: int = 2, **more: Any) -> HostFacts:
    return facts(number, gpus=gpus(count), driver="535.104.05", **more)


def spec(setting: Any, *frameworks: Any, **more: Any) -> ClusterSpec:
    image = ImageSpec(flavour=setting, frameworks=frameworks) if frameworks else ImageSpec(flavour=setting)
    return ClusterSpec(image=image, **more)


@pytest.mark.parametrize(
    ("frameworks", "on_cpus", "on_gpus"),
    [
        (("tensorflow", "mxnet"), "cpu", "cuda-tensorflow"),
        (("mxnet", "tensorflow"), "cpu", "cuda-tensorflow"),
        (("tensorflow",), "cpu", "cuda-tensorflow"),
        (("mxnet",), "cpu", "cuda-mxnet"),
        (("pytorch",), "pytorch", "cuda-pytorch"),
    ],
)
def test_the_wanted_framework_decides(frameworks: tuple[Any, ...], on_cpus: str, on_gpus: str) -> None:
    image = ImageSpec(frameworks=frameworks)
    assert image.flavour == "auto"
    assert flavour.with_flavour(image, gpus=False).flavour == on_cpus
    assert flavour.with_flavour(image, gpus=True).flavour == on_gpus
    assert {gpus: one.flavour for gpus, one in flavour.candidates(image).items()} == {False: on_cpus, True: on_gpus}


@pytest.mark.parametrize("setting", ["gpu", "cuda"])
def test_gpu_and_cuda_require_gpus(setting: str) -> None:
    wanted = spec(setting)
    assert [one.flavour for one in flavour.candidates(wanted.image).values()] == ["cuda-tensorflow"]
    assert flavour.needs_gpus(wanted, [with_gpus(1), with_gpus(2)])
    with pytest.raises(StepError, match=f"image.flavour is {setting}, but gpu2 has no GPU; nothing was changed"):
        flavour.needs_gpus(wanted, [with_gpus(1), facts(2)])


@pytest.mark.parametrize("setting", ["cpu", "pytorch", "cuda-mxnet", "ssh-layer"])
def test_a_definite_flavor_stays(setting: str) -> None:
    image = ImageSpec(flavour=setting, base="b")  # type: ignore[arg-type]
    assert flavour.with_flavour(image, gpus=True) == image
    assert list(flavour.candidates(image).values()) == [image]


@pytest.mark.parametrize(
    ("observed", "head_runs_ranks", "expected"),
    [
        ([facts(1), facts(2)], True, False),
        ([with_gpus(1), with_gpus(2)], True, True),
        # A head without ranks needs no GPU.
        ([facts(1), with_gpus(2)], False, True),
        ([with_gpus(1), facts(2)], False, False),
        ([with_gpus(1)], False, True),
    ],
)
def test_auto(observed: list[HostFacts], head_runs_ranks: bool, expected: bool) -> None:
    assert flavour.needs_gpus(spec("auto", head_runs_ranks=head_runs_ranks), observed) is expected


def test_some_hosts_with_gpus_are_an_error() -> None:
    hosts = [with_gpus(1), *(facts(n) for n in range(2, 9)), facts(9, gpu_fault="No devices were found")]
    with pytest.raises(StepError) as caught:
        flavour.needs_gpus(spec("auto"), hosts)
    assert caught.value.message == (
        "gpu1 has GPUs, and gpu2, gpu3, gpu4, gpu5, gpu6 and 3 more hosts have none (nvidia-smi on gpu9: No devices "
        "were found): one image serves all hosts; nothing was changed"
    )
    assert "image.flavour in kit.yaml: cpu" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("setting", "warns"), [("cpu", True), ("pytorch", True), ("cuda-mxnet", False), ("auto", False)]
)
def test_gpus_that_the_image_cannot_use(setting: str, warns: bool) -> None:
    warning = flavour.unused_gpus(spec(setting), [with_gpus(1, 8), facts(2)])
    assert (warning is not None) is warns
    if warning:
        assert "gpu1 has GPUs (8 × NVIDIA A100-SXM4-40GB), but image.flavour is" in warning[0]
        assert "kit deploy" in warning[1]
    assert flavour.unused_gpus(spec(setting), [facts(1)]) is None


def test_a_driver_that_fails_is_named() -> None:
    broken = facts(3, gpu_fault="Failed to initialize NVML: Driver/library version mismatch")
    ((host, text, hint),) = flavour.broken_drivers([facts(1), broken])
    assert host == "gpu3"
    assert "reports no GPUs" in text
    assert "version mismatch" in text
    assert "kit ssh gpu3 -- nvidia-smi" in hint


def test_a_gpu_that_failed_is_named_with_its_reset() -> None:
    ((_, text, hint),) = flavour.broken_drivers([facts(3, gpus=gpus(8), gpu_fault="GPU 5: GPU requires reset")])
    assert text == "gpu3: nvidia-smi reports 8 GPUs, and: GPU 5: GPU requires reset"
    assert "kit ssh gpu3 -- sudo nvidia-smi --gpu-reset -i 5;" in hint


def test_an_nvidia_smi_that_is_only_slow_needs_no_reboot() -> None:
    """Eight GPUs without persistence mode take half a minute, also after a reboot."""
    late = facts(1, gpu_fault="nvidia-smi did not answer within 20 s")
    ((_, text, hint),) = flavour.broken_drivers([late])
    assert text.endswith("reports no GPUs, and: nvidia-smi did not answer within 20 s")
    assert "kit setup --only clocks" in hint


@pytest.mark.parametrize(
    ("deployed", "fault", "lost"),
    [
        ("kit:cuda-mxnet-0123456789ab", "Failed to initialize NVML", True),
        # Without nvidia-smi, the VM is another one, or somebody removed the driver.
        ("kit:cuda-mxnet-0123456789ab", "", False),
        ("kit:cpu-0123456789ab", "Failed to initialize NVML", False),
        ("", "Failed to initialize NVML", False),
    ],
)
def test_gpus_that_a_cluster_lost_do_not_make_its_image_one_for_cpus(deployed: str, fault: str, lost: bool) -> None:
    error = flavour.lost_gpus([facts(1, gpu_fault=fault)], deployed)
    assert (error is not None) is lost
    if error:
        assert "gpu1 has no GPU (nvidia-smi on gpu1: Failed" in error.message


@pytest.mark.parametrize(
    ("tag", "expected"), [("kit:cuda-mxnet-0123456789ab", "cuda-mxnet"), ("kit:cpu-0123456789ab", "cpu"), ("", "")]
)
def test_the_flavor_in_a_tag(tag: str, expected: str) -> None:
    assert flavour.flavour_of(tag) == expected


@pytest.mark.parametrize("name", sorted(CUDA))
def test_the_driver_that_cuda_needs(name: str) -> None:
    image = ImageSpec(flavour=name)  # type: ignore[arg-type]
    needed = CUDA[name].driver
    major = int(needed.partition(".")[0])
    drivers = {needed: False, f"{major + 1}.1": False, f"{major - 1}.999.99": True, "": False, str(major): True}
    for driver, fails in drivers.items():
        host = facts(1, gpus=gpus(1), driver=driver)
        problems = flavour.driver_problems(image, [host, facts(2, host=Host(name="cpu2", address="10.0.0.2"))])
        assert bool(problems) is fails, driver
        for problem in problems:
            assert problem.host == "gpu1"
            assert f"driver {driver}" in problem.message
            assert f"needs {needed} or newer" in problem.message
            assert "reboot" in str(problem.hint)
            assert f"{name} (" not in str(problem.hint)


def test_a_driver_that_the_distribution_does_not_have() -> None:
    image = ImageSpec(flavour="cuda-pytorch")
    ubuntu = facts(1, gpus=gpus(1), driver="550.54.15", os="Ubuntu 24.04.3 LTS")
    debian = facts(2, gpus=gpus(1), driver="470.1.1", os="Debian GNU/Linux 11 (bullseye)")
    assert [problem.hint for problem in flavour.driver_problems(image, [ubuntu, debian])] == [
        "install a newer driver, for example: sudo apt-get install nvidia-driver-580-server, then reboot; "
        "or set image.flavour to one with an older CUDA: cuda-mxnet (450.80.02), cuda-tensorflow (525.60.13)",
        "install a newer driver from NVIDIA's own repository, then reboot; "
        "or set image.flavour to one with an older CUDA: cuda-mxnet (450.80.02)",
    ]


@pytest.mark.parametrize(
    ("name", "model", "capability", "others"),
    [
        # A driver of branch 580 still runs Pascal and Volta, and CUDA 13 does not.
        ("cuda-pytorch", "Tesla P100-PCIE-16GB", "6.0", "cuda-mxnet, cuda-tensorflow"),
        ("cuda-pytorch", "Tesla V100-SXM2-16GB", "7.0", "cuda-mxnet, cuda-tensorflow"),
        ("cuda-pytorch", "Tesla M60", "5.2", ""),
        ("cuda-tensorflow", "Tesla M60", "5.2", ""),
        ("cuda-mxnet", "Tesla K80", "3.7", ""),
    ],
)
def test_gpus_that_are_too_old_for_the_images_kernels(name: Any, model: str, capability: str, others: str) -> None:
    old = replace(gpus(1)[0], name=model, capability=capability)
    host = facts(1, gpus=(old, old, replace(old, name="Tesla T4", capability="7.5")), driver="580.65.06")
    (problem,) = flavour.model_problems(ImageSpec(flavour=name), [host, with_gpus(2)])
    assert problem.host == "gpu1"
    assert problem.message == (
        f"has {model} (compute capability {capability}), and the image ({name}, CUDA {CUDA[name].cuda}) has kernels "
        f"for {CUDA[name].capability} or newer"
    )
    assert str(problem.hint).startswith("leave this host out of the hosts file; or ")
    assert ("one with kernels for these GPUs" in str(problem.hint)) is bool(others)
    assert others in str(problem.hint)


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        ("cuda-pytorch", "7.5"),
        ("cuda-pytorch", "10.0"),
        ("cuda-pytorch", "12.0"),
        ("cuda-tensorflow", "6.0"),
        ("cuda-mxnet", "7.0"),
        # A driver before 510 does not report it.
        ("cuda-pytorch", ""),
        ("cpu", "3.7"),
        ("ssh-layer", "3.7"),
    ],
)
def test_gpus_that_fit_or_are_not_known(name: Any, capability: str) -> None:
    host = facts(1, gpus=(replace(gpus(1)[0], capability=capability),))
    assert flavour.model_problems(ImageSpec(flavour=name), [host]) == []
    assert flavour.model_problems(ImageSpec(flavour="cuda-pytorch", base="mine:1"), [host]) == []


def test_what_is_said_of_pretended_gpus_says_so() -> None:
    lab = replace(gpus(1)[0], name="Tesla P100-PCIE-16GB (PRETENDED)", capability="6.0")
    host = facts(1, gpus=(lab,), driver="390.1", gpu_fault="Unable to determine the device handle")
    pytorch = ImageSpec(flavour="cuda-pytorch")
    texts = [
        *(problem.message for problem in flavour.driver_problems(pytorch, [host])),
        *(problem.message for problem in flavour.model_problems(pytorch, [host])),
        *(text for _, text, _ in flavour.broken_drivers([host])),
        *(flavour.unused_gpus(spec("cpu"), [host]) or ("",))[:1],
    ]
    with pytest.raises(StepError) as caught:
        flavour.needs_gpus(spec("auto"), [host, facts(2)])
    assert [text.count("(PRETENDED)") for text in (*texts, caught.value.message)] == [1] * 5


def test_no_check_of_what_kit_does_not_know() -> None:
    old = facts(1, gpus=gpus(1), driver="390.1")
    for image in (
        ImageSpec(flavour="cuda-mxnet", base="mine:1"),
        ImageSpec(flavour="cpu"),
        ImageSpec(flavour="ssh-layer"),
    ):
        assert flavour.driver_problems(image, [old]) == []
