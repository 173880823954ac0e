"""Batches of images from WebDataset shards, for torch_benchmark. Threads read, decode and resize them.

Nothing of PyTorch is used: Pillow decodes without Python's lock, so threads are enough.
"""

import collections
import io
import os
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import _data
import numpy
from PIL import Image

# Samples that are shuffled together, and batches that are prepared ahead.
SHUFFLED, AHEAD = 2048, 2
# Image.BILINEAR, which some versions of Pillow lack.
BILINEAR = 2


class Undecoded(Exception):
    """A sample cannot be used. The text names the file and the sample."""


def in_order(pieces, source):
    """Yield (open file, sample) without end: shards in random order, and samples shuffled among their neighbors.

    A shard is read nearly from front to back. Its file is closed when the last of its samples has been read.
    """
    while True:
        window = []
        for piece in source.sample(pieces, len(pieces)):
            file = open(piece.path, "rb", buffering=0)  # noqa: SIM115
            for sample in piece.samples:
                window.append((file, sample))
                if len(window) == SHUFFLED:
                    yield from _taken(window, source)
        yield from _taken(window, source)


def _taken(window, source):
    source.shuffle(window)
    while window:
        yield window.pop()


def decoded(file, sample, flip, *, image_size, first_label, classes):
    """Return (image, label): bytes [size, size, 3], and a number from 0. Raises Undecoded."""
    where = "%s: %s at byte %d" % (file.name, sample.key, sample.offset)
    text = os.pread(file.fileno(), sample.label[1], sample.label[0])
    try:
        label = int(text)
    except ValueError:
        raise Undecoded(
            "%s: its label (cls) is no number: %r" % (where, text[:20].decode("utf-8", "replace"))
        ) from None
    if not first_label <= label < first_label + classes:
        raise Undecoded("%s: %s" % (where, _data.outside(label, first_label, classes)))
    try:
        with Image.open(io.BytesIO(os.pread(file.fileno(), sample.image[1], sample.image[0]))) as picture:
            # A JPEG can be decoded at a half, a quarter or an eighth of its size.
            picture.draft("RGB", (image_size, image_size))
            image = numpy.asarray(picture.convert("RGB").resize((image_size, image_size), BILINEAR))
    except (OSError, SyntaxError, ValueError) as error:
        raise Undecoded("%s: its image cannot be decoded (%s)" % (where, str(error).splitlines()[0])) from None
    return (image[:, ::-1] if flip else image), label - first_label


def batches(pieces, *, batch_size, calls, seed, **sizes):
    """Yield (images [batch, size, size, 3] of bytes, labels [batch]) without end. `sizes` are those of decoded()."""
    source = random.Random(seed)  # noqa: S311
    samples = in_order(pieces, source)
    ahead: Any = collections.deque()
    with ThreadPoolExecutor(calls or None) as pool:

        def begun():
            file, sample = next(samples)
            return pool.submit(decoded, file, sample, source.random() < 0.5, **sizes)

        while True:
            while len(ahead) <= AHEAD:
                ahead.append([begun() for _ in range(batch_size)])
            parts = [future.result() for future in ahead.popleft()]
            yield numpy.stack([image for image, _ in parts]), numpy.array([label for _, label in parts])


def check(piece, **sizes):
    """Return what is wrong with the first sample of a piece, or None."""
    try:
        with open(piece.path, "rb") as file:
            decoded(file, piece.samples[0], False, **sizes)
    except Undecoded as error:
        return "--data: %s" % error
    return None
