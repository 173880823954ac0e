"""Images and labels from TFRecords, as TensorFlow's own tools write ImageNet: image/encoded, image/class/label.

Each rank reads its share, in its own order. Separate threads decode, resize and flip images. Errors are sentences that
name the file (Unreadable).
"""

import re

import _data
import kit_records

IMAGE, LABEL = "image/encoded", "image/class/label"
# Encoded images in the shuffle buffer, and files that are read at the same time.
SHUFFLED, SIDE_BY_SIDE = 2048, 8


class Unreadable(Exception):
    """The records cannot be used. The text says why."""


def plain(error):
    """Return the sentence in an error of TensorFlow, without the names of internal operations."""
    text = error.message.strip().splitlines()[0]
    text = re.sub(r"\{\{[^}]*\}\}|\s*\[(Op|\[).*", "", text).strip()
    assertion = re.match(r"assertion failed: \[(.*)\]", text)
    return (assertion.group(1) if assertion else text).replace("\\'", "'")


def check(tf, name, first_label, classes):
    """Return what is wrong with the first record of a file, or None. What is wrong with all records shows there."""
    try:
        _check(tf, name, first_label, classes)
    except Unreadable as error:
        return str(error)
    return None


def _check(tf, name, first_label, classes):
    try:
        raw = next(iter(tf.data.TFRecordDataset(name).take(1)), None)
    except tf.errors.OpError as error:
        raise Unreadable(
            "%s cannot be read as TFRecords (compressed ones are not): %s" % (name, plain(error))
        ) from None
    if raw is None:
        raise Unreadable("%s has no record" % name)
    try:
        features = tf.train.Example.FromString(raw.numpy()).features.feature
    except Exception:  # of protobuf, whose kinds of error differ from version to version
        raise Unreadable("%s: its records are no tf.train.Example" % name) from None
    missing = [
        feature
        for feature, kind in ((IMAGE, "bytes_list"), (LABEL, "int64_list"))
        if feature not in features or not getattr(features[feature], kind).value
    ]
    if missing:
        present = ", ".join("%s (%s)" % (key, features[key].WhichOneof("kind") or "empty") for key in sorted(features))
        raise Unreadable(
            "%s: its records lack %s; they have: %s"
            % (
                name,
                " and ".join("%s (%s)" % (feature, "bytes" if feature == IMAGE else "int64") for feature in missing),
                present or "nothing",
            )
        )
    label = features[LABEL].int64_list.value[0]
    if not first_label <= label < first_label + classes:
        raise Unreadable("%s: %s" % (name, _data.outside(label, first_label, classes)))
    try:
        tf.io.decode_image(features[IMAGE].bytes_list.value[0], channels=3)
    except tf.errors.OpError:
        raise Unreadable("%s: %s of its first record is no JPEG, PNG, GIF or BMP" % (name, IMAGE)) from None


def images_of(tf, hvd, prog, args, labels):
    """Return this rank's share of --data."""
    place = _data.Place(hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size())

    def check_first(piece):
        return check(tf, piece.path, **labels)

    return _data.share(prog, args, "tfrecord", place, hvd.allgather_object, check_first=check_first)


def batches(tf, pieces, *, batch_size, image_size, first_label, classes, calls):
    """Return an endless dataset of (images [batch, size, size, 3] in -1..1, labels [batch] from 0), of this rank.

    `pieces`: its records (kit_shards.Piece). `calls`: images decoded at a time; 0 lets TensorFlow choose.
    """

    def records(name, skip, size):
        return tf.data.TFRecordDataset(name, buffer_size=4 << 20).skip(skip).take(size)

    def decoded(raw):
        features = tf.io.parse_single_example(
            raw, {IMAGE: tf.io.FixedLenFeature([], tf.string), LABEL: tf.io.FixedLenFeature([], tf.int64)}
        )
        image = tf.io.decode_image(features[IMAGE], channels=3, expand_animations=False)
        image = tf.image.resize(image, [image_size, image_size])
        image = tf.image.random_flip_left_right(image)
        label = features[LABEL] - first_label
        message = _data.outside("of a record", first_label, classes)
        with tf.control_dependencies([tf.debugging.Assert(tf.logical_and(label >= 0, label < classes), [message])]):
            return image / 127.5 - 1.0, tf.identity(label)

    parallel = calls or tf.data.AUTOTUNE
    columns = [[piece.path for piece in pieces]]
    columns += [tf.constant(values, tf.int64) for values in zip(*((piece.skip, piece.size) for piece in pieces))]
    dataset = tf.data.Dataset.from_tensor_slices(tuple(columns)).shuffle(len(pieces), reshuffle_each_iteration=True)
    dataset = dataset.interleave(
        records, cycle_length=min(len(pieces), SIDE_BY_SIDE), num_parallel_calls=tf.data.AUTOTUNE, deterministic=False
    )
    dataset = dataset.shuffle(SHUFFLED, reshuffle_each_iteration=True).repeat()
    dataset = dataset.map(decoded, num_parallel_calls=parallel, deterministic=False)
    dataset = dataset.batch(batch_size, drop_remainder=True).prefetch(2)
    options = tf.data.Options()
    # Separate threads: training may have only one, which would decode images only while nothing trains.
    options.threading.private_threadpool_size = calls
    return dataset.with_options(options)


def broken(tf, error, pieces):
    """Return the words for an error while images are read. TensorFlow names the place of damaged bytes alone."""
    if not isinstance(error, tf.errors.OpError):
        return "its share has no record"
    text = plain(error)
    place = re.search(r"record at (\d+)", text)
    names = kit_records.broken_at([piece.path for piece in pieces], int(place.group(1))) if place else []
    return "%s: %s" % (names[0], text) if names else text


def fed(tf, hvd, learn, dataset, made_up):
    """Return (once() -> loss, synthetic() -> loss, watch()): a step on real images, a step on synthetic ones, and
    figures of all ranks since the last watch.

    loss and accuracy are means over the trained batches. input_wait is the share of their time that the ranks waited
    for images. `made_up`: a batch of synthetic images and labels, as the dataset has.
    """
    source = iter(dataset)
    loss_sum, right = tf.Variable(0.0, trainable=False), tf.Variable(0.0, trainable=False)
    clock, steps = _data.Clock(), [0]

    @tf.function
    def train(images, labels):
        loss, scores = learn(images, labels)
        loss_sum.assign_add(loss)
        right.assign_add(tf.reduce_mean(tf.cast(tf.equal(tf.argmax(scores, axis=1), labels), tf.float32)))
        return loss

    def once():
        images, labels = clock.wait(lambda: next(source))
        steps[0] += 1
        return train(images, labels)

    def synthetic():
        return train(*made_up)

    def watch():
        count = max(1, steps[0])
        means = hvd.allreduce(tf.stack([loss_sum / count, right / count, clock.share()]), name="watch").numpy()
        loss_sum.assign(0.0)
        right.assign(0.0)
        steps[0] = 0
        clock.share()
        return {"loss": float(means[0]), "accuracy": float(means[1]), _data.WAITED: round(float(means[2]), 4)}

    return once, synthetic, watch
