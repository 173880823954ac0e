"""The options of an existing lab, from its shape."""

from __future__ import annotations

import pytest

from kit.model.lab import LabSpec
from kit.plan.labshape import options


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (LabSpec(), ""),
        (LabSpec(name="other", hosts=2), "--hosts 2"),
        (LabSpec(slots=1, link_rate="200mbit", user="ubuntu"), "--slots 1 --link-rate 200mbit --user ubuntu"),
        (LabSpec(hosts=3, bare=True, system="debian-12", nics=2), "--bare --hosts 3 --system debian-12 --nics 2"),
        (LabSpec(bare=True), "--bare"),
        (LabSpec(gpus=4, slots=4), "--gpus 4"),
        (
            LabSpec(gpus=1, slots=2, gpu_model="t4", gpu_driver="535.1", gpu_toolkit="cdi"),
            "--slots 2 --gpus 1 --gpu-model t4 --gpu-driver 535.1 --gpu-toolkit cdi",
        ),
    ],
)
def test_the_options_make_the_same_lab_again(spec: LabSpec, words: str) -> None:
    assert options(spec.shape) == words


def test_other_text_has_no_options() -> None:
    assert options("two hosts") is None
    assert options(LabSpec().shape + "\nmore") is None
