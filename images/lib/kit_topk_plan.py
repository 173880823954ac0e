"""What of a top-k exchange is arithmetic: which tensors go together, how many values are kept, how many bytes travel.

Neither TensorFlow nor Horovod is needed here. Sizes are elements; tensors are known by their place in a list.
"""

import math

# A pair on its way: the place in the bucket (int32) and the value (float32).
PAIR_BYTES = 8
VALUE_BYTES = 4
# Up to here all of a bucket is ranked; above, a sample of about SAMPLE magnitudes says first which are worth it.
RANK_ALL = 1 << 18
SAMPLE = 1 << 16
# How many more than k the sample should let through, so that there are seldom fewer than k.
MARGIN = 1.25
# Places in a bucket are int32.
LARGEST = 2**31 - 1


def kept(size, ratio):
    """How many of `size` values are sent: the ratio, rounded up, and at least one."""
    return min(size, max(1, math.ceil(size * ratio)))


def buckets(sizes, dense_below, bucket_size):
    """(places of the tensors that go dense, places of each bucket), both in the order of the backward pass.

    A gradient is ready the sooner the later its layer is: buckets are filled from the last tensor on, so that the first
    can travel while the others are still computed. A tensor is never split; one that is larger than a bucket has its own.
    """
    dense, full, current, filled = [], [], [], 0
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


def sampling(size, k):
    """(stride, place) by which the threshold is guessed: every `stride`-th magnitude, of which the `place`-th largest counts.

    (1, 0) where all are ranked at once. The stride is odd: lengths of layers are mostly even, and a stride that divides
    them would see the same few columns again and again.
    """
    if size <= RANK_ALL or k * 4 >= size:
        return 1, 0
    stride = (size // SAMPLE) | 1
    sampled = -(-size // stride)
    return stride, min(sampled, max(1, math.ceil(sampled * MARGIN * k / size)))


def ring_bytes(ranks, dense, pairs):
    """Bytes that a rank puts on the wire in one step, as rings do it: all-reduce of `dense` values, all-gather of `pairs`."""
    return int(2 * (ranks - 1) / ranks * dense * VALUE_BYTES + (ranks - 1) * pairs * PAIR_BYTES)


def even_at(ratio):
    """The number of ranks at which a top-k exchange puts as much on the wire as a dense one; with more, more.

    An all-reduce moves about twice the gradients per rank, however many ranks there are; an all-gather moves what
    every other rank has to say: ring_bytes(n, N, 0) = ring_bytes(n, 0, ratio * N) at n = 1 / ratio.
    """
    return math.ceil(1 / ratio)
