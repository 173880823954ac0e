"""The rules of kit tune for Horovod: fusion and cycle from measured all-reduces, and half precision with consent."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from kit.model.tune import Timing
from kit.plan.tune import horovod as tune
from kit.plan.tune.candidates import MIB


def timing(*seconds: float, size: int = 64 * MIB, ranks: int = 8) -> Timing:
    return Timing(bytes=size, ranks=ranks, seconds=seconds)


def curve(**busbw: float) -> dict[int, Timing]:
    """`m4=20e6`: messages of 4 MB at that many bytes/s."""
    sizes = {int(name[1:]) * MIB: rate for name, rate in busbw.items()}
    return {size: timing(2 * 7 / 8 * size / rate, size=size) for size, rate in sizes.items()}


@pytest.mark.parametrize(
    ("rates", "now", "fusion"),
    [
        ({"m1": 10e6, "m4": 19.5e6, "m16": 20e6, "m64": 20e6}, None, 4),
        ({"m1": 5e6, "m4": 10e6, "m16": 15e6, "m64": 20e6}, None, None),
        # Tune wrote 16 MB the other day; today 4 MB would do, and 16 are no worse.
        ({"m1": 10e6, "m4": 19.5e6, "m16": 20e6, "m64": 20e6}, str(16 * MIB), 16),
        ({"m1": 10e6, "m4": 19.5e6, "m16": 20e6, "m64": 20e6}, str(MIB), 4),
        ({"m1": 10e6, "m4": 19.5e6, "m16": 20e6, "m64": 20e6}, "plenty", 4),
        ({"m1": 10e6}, None, None),
    ],
)
def test_fusion_is_the_smallest_that_is_near_the_best(
    rates: dict[str, float], now: str | None, fusion: int | None
) -> None:
    values = {s.path: s.value for s in tune.horovod(curve(**rates), None, fusion_now=now).settings}
    assert values == ({"env.HOROVOD_FUSION_THRESHOLD": str(fusion * MIB)} if fusion else {})


@pytest.mark.parametrize(
    ("spread", "fusion"), [((1.0, 1.0, 1.0, 1.0), 4), ((0.97, 0.99, 1.01, 1.03), 16), ((0.8, 0.9, 1.1, 1.2), 128)]
)
def test_noise_makes_no_fusion_buffer_smaller(spread: tuple[float, ...], fusion: int) -> None:
    """Medians of the same few repeats: 4 MB are near the best by little, and 16 MB by more."""
    rates = {1: 10e6, 4: 19.2e6, 16: 19.9e6, 64: 20e6}
    noisy = {
        mb * MIB: timing(*(2 * 7 / 8 * mb * MIB / rate * share for share in spread), size=mb * MIB)
        for mb, rate in rates.items()
    }
    result = tune.horovod(noisy, None)
    assert [s.value for s in (*result.settings, *result.defaults)] == [str(fusion * MIB)]
    assert bool(result.defaults) is (fusion == 128)


@pytest.mark.parametrize(
    ("rates", "now", "back"),
    [
        ({"m1": 5e6, "m4": 10e6, "m16": 15e6, "m64": 20e6}, None, True),
        ({"m1": 5e6, "m4": 10e6, "m16": 15e6, "m64": 20e6}, str(4 * MIB), True),
        # Still good enough.
        ({"m1": 5e6, "m4": 18e6, "m16": 18e6, "m64": 20e6}, str(4 * MIB), False),
        # This network is too slow to measure messages as large as those.
        ({"m1": 5e6, "m4": 10e6}, str(16 * MIB), False),
        ({"m1": 10e6}, str(4 * MIB), False),
        ({}, str(4 * MIB), False),
    ],
)
def test_fusion_of_another_network_goes_back_to_the_default(
    rates: dict[str, float], now: str | None, back: bool
) -> None:
    values = {s.path: s.value for s in tune.horovod(curve(**rates), None, fusion_now=now).defaults}
    assert values == ({"env.HOROVOD_FUSION_THRESHOLD": "134217728"} if back else {})


@pytest.mark.parametrize(("small_s", "now", "back"), [(20e-6, "10", True), (80e-6, "10", False), (None, "10", False)])
def test_a_cycle_of_another_network_goes_back_to_the_default(small_s: float | None, now: str, back: bool) -> None:
    values = {s.path: s.value for s in tune.horovod({}, small_s, cycle_now=now).defaults}
    assert values == ({"env.HOROVOD_CYCLE_TIME": "1"} if back else {})


def test_gradients_that_travel_by_nccl_get_no_fusion_of_mpi() -> None:
    rates = {"m1": 10e6, "m4": 19.5e6, "m16": 20e6, "m64": 20e6}
    result = tune.horovod(curve(**rates), 0.3e-3, fusion_now=str(4 * MIB), nccl=True)
    # The ranks agree by MPI on what is ready.
    assert {s.path: s.value for s in result.settings} == {"env.HOROVOD_CYCLE_TIME": "10"}
    assert {s.path: s.value for s in result.defaults} == {"env.HOROVOD_FUSION_THRESHOLD": "134217728"}
    (advice,) = result.advice
    assert "travel by NCCL, and kit tune measures MPI" in advice


@pytest.mark.parametrize(
    ("small_s", "now", "cycle"),
    [
        (20e-6, None, None),
        (80e-6, None, "2"),
        (0.3e-3, None, "10"),
        (0.1, None, "10"),
        (80e-6, "5", "5"),
        (80e-6, "50", "2"),
    ],
)
def test_the_cycle_leaves_time_to_work(small_s: float, now: str | None, cycle: str | None) -> None:
    values = {s.path: s.value for s in tune.horovod({}, small_s, cycle_now=now).settings}
    assert values == ({"env.HOROVOD_CYCLE_TIME": cycle} if cycle else {})


def test_half_the_bytes_that_take_less_are_written_with_their_price() -> None:
    (setting,) = tune.half(timing(2.0, 2.0, 2.0), timing(1.1, 1.1, 1.1, size=32 * MIB)).settings
    assert (setting.path, setting.value, setting.acts) == ("env.KIT_COMPRESSION", "fp16", "deploy")
    assert setting.reason.startswith(
        "an all-reduce of 64 MB on 8 ranks takes 2.000 s +-0.000, and of half the bytes 1.100 s +-0.000, and --fp16 "
        "allowed it. It changes the numbers"
    )
    readers = re.findall(r"\w+_benchmark", setting.reason)
    images = Path(__file__).parents[4] / "images/bin"
    assert sorted(readers) == sorted(
        program.name for program in images.glob("*_benchmark") if "settle_compression" in program.read_text()
    )


@pytest.mark.parametrize(
    ("whole", "half"), [((2.0, 2.0), (1.95, 1.95)), ((2.0, 2.0), (2.5, 2.5)), ((1.0, 2.0, 3.0, 4.0), (0.5, 2.0, 3.5))]
)
def test_half_the_bytes_that_gain_nothing_are_reported(whole: tuple[float, ...], half: tuple[float, ...]) -> None:
    result = tune.half(timing(*whole), timing(*half, size=32 * MIB))
    assert result.settings == ()
    assert [(s.path, s.value) for s in result.defaults] == [("env.KIT_COMPRESSION", "none")]
    assert result.advice[0].startswith(
        "half precision on the wire gains nothing beyond the noise: an all-reduce of 64 MB"
    )


def test_without_consent_fp16_is_advice_with_its_price() -> None:
    text = tune.half_advice(25e6, 8, None)
    assert text is not None
    whole = 2 * 7 / 8 * 25.6e6 * 4 / 25e6
    assert math.isclose(whole, 7.168)
    assert "7.17 s" in text
    assert "changes the numbers" in text
    assert "kit tune --fp16 measures it, and writes it" in text
    assert tune.half_advice(25e6, 8, "none") == text
    assert tune.half_advice(25e6, 8, "fp16") is None
    assert tune.half_advice(None, 8, None) is None


@pytest.mark.parametrize(("small_s", "share"), [(0.39e-3, "39%"), (2.5e-3, "100%")])
def test_the_cycle_says_how_much_of_the_default_one_the_ranks_need(small_s: float, share: str) -> None:
    (setting,) = tune.horovod({}, small_s).settings
    assert setting.reason.endswith(f"takes {small_s * 1e3:.2f} ms: {share} of the default cycle of 1 ms")
