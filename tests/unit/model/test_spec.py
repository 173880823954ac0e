from __future__ import annotations

import pytest

from kit.model.spec import ClusterSpec, Flavour, ImageSpec


@pytest.mark.parametrize(
    ("flavour", "benchmark"),
    [("cpu", "tf_benchmark"), ("cuda-mxnet", "mxnet_benchmark"), ("pytorch", "torch_benchmark")],
)
def test_without_a_command_the_job_is_a_benchmark_that_the_image_has(flavour: Flavour, benchmark: str) -> None:
    assert ClusterSpec(image=ImageSpec(flavour=flavour)).job[0] == benchmark


def test_a_command_is_the_job_of_any_flavour() -> None:
    assert ClusterSpec(image=ImageSpec(flavour="pytorch"), command=("python3", "train.py")).job == (
        "python3",
        "train.py",
    )
