"""The arithmetic of kit_topk: what is packed together, how many values are kept, how many bytes travel."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import launcher

plan = launcher.load("kit_topk_plan")

SIZES = st.lists(st.integers(1, 5_000_000), max_size=40)


@given(SIZES, st.integers(1, 100_000), st.integers(1, 8_000_000))
def test_every_tensor_goes_once(sizes: list[int], dense_below: int, bucket_size: int) -> None:
    dense, buckets = plan.buckets(sizes, dense_below, bucket_size)
    assert sorted([*dense, *(place for bucket in buckets for place in bucket)]) == list(range(len(sizes)))
    assert all(sizes[place] < dense_below for place in dense)
    for bucket in buckets:
        assert bucket
        assert min(sizes[place] for place in bucket) >= dense_below
        assert len(bucket) == 1 or sum(sizes[place] for place in bucket) <= bucket_size


def test_buckets_are_filled_as_gradients_come() -> None:
    assert plan.buckets([50, 60, 5, 70, 80], 10, 130) == ([2], [[4], [3, 1], [0]])
    assert plan.buckets([], 10, 130) == ([], [])


def test_a_tensor_that_no_place_can_count_is_refused() -> None:
    with pytest.raises(ValueError, match="tensor 1 has 2147483648 elements"):
        plan.buckets([1, 2**31], 10, 130)


@pytest.mark.parametrize(
    ("size", "ratio", "k"), [(1000, 0.01, 10), (1001, 0.01, 11), (5, 0.01, 1), (5, 1.0, 5), (3, 0.5, 2)]
)
def test_kept(size: int, ratio: float, k: int) -> None:
    assert plan.kept(size, ratio) == k


@given(st.integers(1, 2**31 - 1), st.floats(1e-5, 1.0))
def test_the_sample_is_within_bounds(size: int, ratio: float) -> None:
    k = plan.kept(size, ratio)
    stride, place = plan.sampling(size, k)
    if stride == 1:
        assert place == 0
        assert size <= plan.RANK_ALL or 4 * k >= size
        return
    sampled = len(range(0, size, stride))
    assert stride % 2 == 1
    assert plan.SAMPLE // 2 < sampled <= 2 * plan.SAMPLE
    # The place-th of the sample represents more than k of all values.
    assert 1 <= place <= sampled
    assert place * size / sampled >= k * 1.2


def test_bytes_on_the_wire() -> None:
    # A ring all-reduce of 100 values on 4 ranks: 2 · 3/4 · 400 bytes; pairs of every rank but one pass each link.
    assert plan.ring_bytes(4, 100, 0) == 600
    assert plan.ring_bytes(4, 0, 10) == 240
    assert plan.ring_bytes(1, 100, 0) == 0


@pytest.mark.parametrize("ratio", [0.001, 0.01, 0.1])
def test_where_topk_stops_being_less(ratio: float) -> None:
    ranks, size = plan.even_at(ratio), 10_000_000
    sparse = [plan.ring_bytes(n, 0, plan.kept(size, ratio)) for n in (ranks - 1, ranks + 1)]
    dense = [plan.ring_bytes(n, size, 0) for n in (ranks - 1, ranks + 1)]
    assert sparse[0] < dense[0]
    assert sparse[1] > dense[1]
