"""Batches of images from RecordIO files, for mxnet_benchmark. MXNet's own reader decodes them, and splits the files."""

import _data

# Of a byte: images are from -1 to 1, as synthetic ones.
HALF = 127.5
# MXNet's own number of threads.
THREADS = 4


def reader(mx, share, *, batch_size, image_size, calls):
    """Return take() -> (images, labels): endless batches of this rank's images.

    Pictures are resized so that their shorter side fits, and cut at the middle.
    """
    source = mx.io.ImageRecordIter(
        path_imgrec=";".join(share.shards.paths),
        data_shape=(3, image_size, image_size),
        batch_size=batch_size,
        part_index=share.part,
        num_parts=share.parts,
        resize=image_size,
        shuffle=True,
        rand_mirror=True,
        round_batch=True,
        preprocess_threads=calls or THREADS,
        verbose=False,
        **{"%s_%s" % (what, name): HALF for what in ("mean", "std") for name in "rgb"},
    )

    def take():
        try:
            batch = source.next()
        except StopIteration:
            source.reset()
            batch = source.next()
        return batch.data[0], batch.label[0]

    return take


def fed(prog, take, learn, rank, *, first_label, classes):
    """Return (step(), clock): a step on real images, and the clock of this rank's waits for them."""
    clock = _data.Clock()

    def step():
        images, labels = clock.wait(take)
        numbers = labels.asnumpy()
        wrong = numbers[(numbers < first_label) | (numbers >= first_label + classes)]
        if len(wrong):
            _data.broken(prog, rank, _data.outside("%g" % wrong[0], first_label, classes))
        learn(images, labels - first_label)

    return step, clock
