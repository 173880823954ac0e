"""Images and labels from TFRecords, as TensorFlow's own tools write ImageNet: image/encoded, image/class/label.

Each rank reads its share, in an order of its own; images are decoded, resized and flipped by threads that training does
not have. Errors are told as sentences (Unreadable), each with the file.
"""

import os
import re
import time

import _benchmark

IMAGE, LABEL = "image/encoded", "image/class/label"
# Encoded images that are held to be shuffled, and files that are read side by side.
SHUFFLED, SIDE_BY_SIDE = 2048, 8


class Unreadable(Exception):
    """What is wrong with the records, in words."""


def plain(error):
    """The sentence in an error of TensorFlow, without the names of its inner parts."""
    said = error.message.strip().splitlines()[0]
    said = re.sub(r"\{\{[^}]*\}\}|\s*\[(Op|\[).*", "", said).strip()
    found = re.match(r"assertion failed: \[(.*)\]", said)
    return (found.group(1) if found else said).replace("\\'", "'")


def files(tf, patterns):
    """The names that the patterns match, in order, each once."""
    names = set()
    for pattern in patterns:
        try:
            found = tf.io.gfile.glob(pattern)
        except tf.errors.OpError as error:
            raise Unreadable("--data %s: %s" % (pattern, plain(error))) from None
        folders = [name for name in found if tf.io.gfile.isdir(name)]
        if folders:
            there = folders[0]
            raise Unreadable("--data %s: %s is a folder; say which files, '%s/train-*'" % (pattern, there, there))
        if not found:
            raise Unreadable(
                "--data %s: no file matches. Paths are the container's; volumes: in kit.yaml adds folders" % pattern
            )
        names.update(found)
    return sorted(names)


def check(tf, name, first_label, classes):
    """Looks into the first record of a file: what is wrong with all of them is told before anything is computed."""
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
    lacking = [
        feature
        for feature, kind in ((IMAGE, "bytes_list"), (LABEL, "int64_list"))
        if feature not in features or not getattr(features[feature], kind).value
    ]
    if lacking:
        there = ", ".join("%s (%s)" % (key, features[key].WhichOneof("kind") or "empty") for key in sorted(features))
        raise Unreadable(
            "%s: its records lack %s; they have: %s" % (
                name, " and ".join("%s (%s)" % (f, "bytes" if f == IMAGE else "int64") for f in lacking), there or "nothing",
            )
        )  # fmt: skip
    label = features[LABEL].int64_list.value[0]
    if not first_label <= label < first_label + classes:
        raise Unreadable("%s: %s" % (name, outside(label, first_label, classes)))
    try:
        tf.io.decode_image(features[IMAGE].bytes_list.value[0], channels=3)
    except tf.errors.OpError:
        raise Unreadable("%s: %s of its first record is no JPEG, PNG, GIF or BMP" % (name, IMAGE)) from None


def outside(label, first_label, classes):
    return "label %s is not within %d to %d: --first-label says where labels begin (1, as in ImageNet's records), --classes how many there are" % (
        label, first_label, first_label + classes - 1,
    )  # fmt: skip


def batches(tf, names, rank, size, batch_size, image_size, first_label, classes, calls):
    """An endless dataset of (images [batch, size, size, 3] in -1..1, labels [batch] from 0), for this rank.

    Files are dealt out when there are at least as many as ranks; else every rank reads all of them and takes each
    size-th record. `calls`: images decoded at a time; 0 lets TensorFlow choose.
    """
    whole = len(names) >= size
    mine = names[rank::size] if whole else names

    def records(name):
        found = tf.data.TFRecordDataset(name, buffer_size=4 << 20)
        return found if whole else found.shard(size, rank)

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
    found = tf.data.Dataset.from_tensor_slices(mine).shuffle(len(mine), reshuffle_each_iteration=True)
    found = found.interleave(
        records, cycle_length=min(len(mine), SIDE_BY_SIDE), num_parallel_calls=tf.data.AUTOTUNE, deterministic=False
    )
    found = found.shuffle(SHUFFLED, reshuffle_each_iteration=True).repeat()
    found = found.map(decoded, num_parallel_calls=parallel, deterministic=False)
    found = found.batch(batch_size, drop_remainder=True).prefetch(2)
    options = tf.data.Options()
    # Threads of its own: within those of training, which may be one, an image would be decoded only while nothing trains.
    options.threading.private_threadpool_size = calls
    return found.with_options(options)


def _agree(prog, hvd, problem):
    """Ends all ranks if one of them has a problem; the first tells whose and which. Paths differ from host to host."""
    problems = hvd.allgather_object((os.uname().nodename, problem))
    for rank, (host, said) in enumerate(problems):
        if said:
            alike = all(other == said for _, other in problems)
            _benchmark.wrong(prog, said if alike else "rank %d on %s: %s" % (rank, host, said))


def found(tf, hvd, prog, patterns, first_label, classes):
    """The names of the files of --data, or the end of all ranks where one cannot read what it should."""
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
    """(once() -> loss, watch()): steps on real images, and what was seen since the last watch, over all ranks.

    loss and accuracy are means over the batches that were trained on; input_wait is the share of its time in which this
    rank waited for images.
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
