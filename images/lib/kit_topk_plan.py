"""The arithmetic of a top-k exchange: which tensors go together, how many values are sent, how many bytes travel.

This module needs neither TensorFlow nor Horovod. Sizes are elements; a tensor is known by its place in a list.
"""

import math
from typing import List, Sequence, Tuple

# A pair that travels: the place in the bucket (int32) and the value (float32).
PAIR_BYTES = 8
VALUE_BYTES = 4
# A bucket up to this size is ranked whole. In a larger one, about SAMPLE magnitudes give a threshold first.
RANK_ALL = 1 << 18
SAMPLE = 1 << 16
# The sample should let this many times k pass, so that there are seldom fewer than k.
MARGIN = 1.25
# Places in a bucket are int32.
LARGEST = 2**31 - 1


def kept(size: int, ratio: float) -> int:
    """Return how many of `size` values are sent: the ratio, rounded up, and at least one."""
    return min(size, max(1, math.ceil(size * ratio)))


def buckets(sizes: Sequence[int], dense_below: int, bucket_size: int) -> Tuple[List[int], List[List[int]]]:
    """Return (places of the tensors that go dense, places of each bucket), both in the order of the backward pass.

    The gradients of the last layers are ready first. Buckets are filled from the last tensor on, so that the first
    bucket can travel while the others are still computed. A tensor is never split; a larger one has a bucket alone.
    """
    dense: List[int] = []
    full: List[List[int]] = []
    current: List[int] = []
    filled = 0
    for place in reversed(range(len(sizes))):
        size = sizes[place]
        if size > LARGEST:
            raise ValueError("tensor %d has %d elements: more than an int32 can count" % (place, size))
        if size < dense_below:
            dense.append(place)
            continue
        if current and filled + size > bucket_size:
            full.append(current)
            current, filled = [], 0
        current.append(place)
        filled += size
    if current:
        full.append(current)
    return dense, full


def sampling(size: int, k: int) -> Tuple[int, int]:
    """Return (stride, place): the threshold is the `place`-th largest of every `stride`-th magnitude.

    (1, 0) means that all values are ranked at once. The stride is odd: the lengths of layers are mostly even, and a
    stride that divides them would see the same few columns again and again.
    """
    if size <= RANK_ALL or k * 4 >= size:
        return 1, 0
    stride = (size // SAMPLE) | 1
    sampled = -(-size // stride)
    return stride, min(sampled, max(1, math.ceil(sampled * MARGIN * k / size)))


def ring_bytes(ranks: int, dense: int, pairs: int) -> int:
    """Return the bytes that a rank sends in one step in rings: all-reduce of `dense` values, all-gather of `pairs`."""
    return int(2 * (ranks - 1) / ranks * dense * VALUE_BYTES + (ranks - 1) * pairs * PAIR_BYTES)


def even_at(ratio: float) -> int:
    """Return the number of ranks at which a top-k exchange sends as much as a dense one. With more ranks it sends more.

    An all-reduce moves about twice the gradients per rank, for any number of ranks. An all-gather moves the values of
    every other rank: ring_bytes(n, N, 0) = ring_bytes(n, 0, ratio * N) at n = 1 / ratio.
    """
    return math.ceil(1 / ratio)
