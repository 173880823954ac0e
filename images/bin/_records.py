"""Images and labels from TFRecords, as TensorFlow's own tools write ImageNet: image/encoded, image/class/label.

Each rank reads its share, in its own order. Separate threads decode, resize and flip images. Errors are sentences that
name the file (Unreadable).
"""

import os
import re
import time

import _benchmark

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


def files(tf, patterns):
    """Return the names that the patterns match, in order, each once."""
    names = set()
    for pattern in patterns:
        try:
            matches = tf.io.gfile.glob(pattern)
        except tf.errors.OpError as error:
            raise Unreadable("--data %s: %s" % (pattern, plain(error))) from None
        folders = [name for name in matches if tf.io.gfile.isdir(name)]
        if folders:
            raise Unreadable(
                "--data %s: %s is a folder; say which files, '%s/train-*'" % (pattern, folders[0], folders[0])
            )
        if not matches:
            raise Unreadable(
                "--data %s: no file matches. Paths are the container's; volumes: in kit.yaml adds folders" % pattern
            )
        names.update(matches)
    return sorted(names)


def check(tf, name, first_label, classes):
    """Check the first record of a file, to report what is wrong with all records before anything is computed."""
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
        raise Unreadable("%s: %s" % (name, outside(label, first_label, classes)))
    try:
        tf.io.decode_image(features[IMAGE].bytes_list.value[0], channels=3)
    except tf.errors.OpError:
        raise Unreadable("%s: %s of its first record is no JPEG, PNG, GIF or BMP" % (name, IMAGE)) from None


def outside(label, first_label, classes):
    return (
        "label %s is not within %d to %d: --first-label says where labels begin (1, as in ImageNet's records), "
        "--classes how many there are" % (label, first_label, first_label + classes - 1)
    )


def batches(tf, names, *, rank, size, batch_size, image_size, first_label, classes, calls):
    """Return an endless dataset of (images [batch, size, size, 3] in -1..1, labels [batch] from 0), for this rank.

    If there are at least as many files as ranks, each rank reads some of them. Otherwise every rank reads all files and
    takes each size-th record. `calls`: images decoded at a time; 0 lets TensorFlow choose.
    """
    whole = len(names) >= size
    mine = names[rank::size] if whole else names

    def records(name):
        records_of_file = tf.data.TFRecordDataset(name, buffer_size=4 << 20)
        return records_of_file if whole else records_of_file.shard(size, rank)

    def decoded(raw):
        features = tf.io.parse_single_example(
            raw, {IMAGE: tf.io.FixedLenFeature([], tf.string), LABEL: tf.io.FixedLenFeature([], tf.int64)}
        )
        image = tf.io.decode_image(features[IMAGE], channels=3, expand_animations=False)
        image = tf.image.resize(image, [image_size, image_size])
        image = tf.image.random_flip_left_right(image)
        label = features[LABEL] - first_label
        message = outside("of a record", first_label, classes)
        with tf.control_dependencies([tf.debugging.Assert(tf.logical_and(label >= 0, label < classes), [message])]):
            return image / 127.5 - 1.0, tf.identity(label)

    parallel = calls or tf.data.AUTOTUNE
    dataset = tf.data.Dataset.from_tensor_slices(mine).shuffle(len(mine), reshuffle_each_iteration=True)
    dataset = dataset.interleave(
        records, cycle_length=min(len(mine), SIDE_BY_SIDE), num_parallel_calls=tf.data.AUTOTUNE, deterministic=False
    )
    dataset = dataset.shuffle(SHUFFLED, reshuffle_each_iteration=True).repeat()
    dataset = dataset.map(decoded, num_parallel_calls=parallel, deterministic=False)
    dataset = dataset.batch(batch_size, drop_remainder=True).prefetch(2)
    options = tf.data.Options()
    # Separate threads: training may have only one, which would decode images only while nothing trains.
    options.threading.private_threadpool_size = calls
    return dataset.with_options(options)


def _agree(prog, hvd, problem):
    """End all ranks if one of them has a problem. The first rank prints it, with the rank and the host."""
    problems = hvd.allgather_object((os.uname().nodename, problem))
    for rank, (host, text) in enumerate(problems):
        if text:
            alike = all(other == text for _, other in problems)
            _benchmark.wrong(prog, text if alike else "rank %d on %s: %s" % (rank, host, text))


def readable(tf, hvd, prog, patterns, *, first_label, classes):
    """Return the names of the files of --data. If a rank cannot read its files, end all ranks."""
    names, problem = [], None
    try:
        names = files(tf, patterns)
        check(tf, names[hvd.rank() % len(names)], first_label, classes)
    except Unreadable as error:
        problem = str(error)
    _agree(prog, hvd, problem)
    counts = hvd.allgather_object(len(names))
    if len(set(counts)) > 1:
        seen = ", ".join("rank %d: %d" % pair for pair in enumerate(counts) if pair[1] != counts[0] or pair[0] == 0)
        _benchmark.wrong(prog, "--data: the ranks do not see the same files (%s)" % seen)
    return names


def fed(tf, hvd, learn, dataset):
    """Return (once() -> loss, watch()): a step on real images, and figures of all ranks since the last watch.

    loss and accuracy are means over the trained batches. input_wait is the share of its time that this rank waited for
    images.
    """
    source = iter(dataset)
    loss_sum, right = tf.Variable(0.0, trainable=False), tf.Variable(0.0, trainable=False)
    clock = {"since": time.monotonic(), "waited": 0.0, "steps": 0}

    @tf.function
    def train(images, labels):
        loss, scores = learn(images, labels)
        loss_sum.assign_add(loss)
        right.assign_add(tf.reduce_mean(tf.cast(tf.equal(tf.argmax(scores, axis=1), labels), tf.float32)))
        return loss

    def once():
        began = time.monotonic()
        images, labels = next(source)
        clock["waited"] += time.monotonic() - began
        clock["steps"] += 1
        return train(images, labels)

    def watch():
        share = clock["waited"] / max(1e-9, time.monotonic() - clock["since"])
        means = hvd.allreduce(tf.stack([loss_sum, right]) / max(1, clock["steps"]), name="watch").numpy()
        loss_sum.assign(0.0)
        right.assign(0.0)
        clock.update(since=time.monotonic(), waited=0.0, steps=0)
        return {"loss": float(means[0]), "accuracy": float(means[1]), "input_wait": round(share, 4)}

    return once, watch
