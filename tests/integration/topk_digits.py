"""Run by two ranks in the image: what kit_topk promises, and scikit-learn's digits learnt with it and without.

    mpirun -np 2 … python3 topk_digits.py FOLDER    FOLDER holds digits.npz; TFRecords of it come to FOLDER/records

Rank 0 ends with one JSON object: everything that test_tensorflow.py judges. Nothing is judged here.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
import tensorflow as tf

tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)

import horovod.tensorflow as hvd  # noqa: E402
from kit_topk import TopK, select  # noqa: E402

LAYERS = ((64, 256), (256,), (256, 256), (256,), (256, 10), (10,))
EPOCHS, BATCH, PER_EPOCH, RATE, TRAINED = 20, 32, 640, 0.1, 1297
# Above what is ranked as a whole, so that the sample is tried, too; 40 elements go dense.
SHAPES = ((700, 1000), (40,), (100, 200))


def average(array):
    return hvd.allreduce(tf.constant(np.float32(array)), op=hvd.Average).numpy()


def unfold(topk, states):
    """The states of the buckets as arrays of the variables' shapes; 0 where a variable goes dense."""
    tensors = [np.zeros(shape, "f4") for shape in SHAPES]
    for places, sizes, state in zip(topk._buckets, topk._sizes, states, strict=True):
        for place, part in zip(places, np.split(state.numpy(), np.cumsum(sizes)[:-1]), strict=True):
            tensors[place] = part.reshape(SHAPES[place])
    return tensors


def bookkeeping(report):
    """Three steps of random gradients: nothing is lost, what is sent is the largest, a nan leaves no trace."""
    random = np.random.default_rng(hvd.rank())
    variables = [tf.Variable(tf.zeros(shape)) for shape in SHAPES]
    topk = TopK(variables, ratio=0.01, dense_below=100, bucket_mb=1, name="books")
    came, left, smallest_sent, largest_kept = [np.zeros(())] * 3, [np.zeros(())] * 3, [], []
    for _ in range(3):
        gradients = [random.normal(size=shape).astype("f4") for shape in SHAPES]
        before = topk.residuals[-1].numpy() + gradients[0].ravel()
        result = topk.exchange([tf.constant(tensor) for tensor in gradients])
        kept = topk.residuals[-1].numpy()
        smallest_sent.append(float(np.abs(before[kept == 0]).min()))
        largest_kept.append(float(np.abs(kept).max()))
        came = [a + b for a, b in zip(came, gradients, strict=True)]
        left = [a + b.numpy() for a, b in zip(left, result, strict=True)]
    residual = [average(tensor) for tensor in unfold(topk, topk.residuals)]
    report["lost"] = max(float(np.abs(average(a) - b - c).max()) for a, b, c in zip(came, left, residual, strict=True))
    report["smallest_sent"], report["largest_kept"] = smallest_sent, largest_kept
    report["share"] = float(np.mean(result[0].numpy() != 0))
    report["bytes_sent"], report["plan"] = int(topk.sent), topk.plan

    before = [tensor.numpy() for tensor in topk.residuals]
    broken = [np.zeros(shape, "f4") for shape in SHAPES]
    if hvd.rank() == 1:
        broken[0][3, 3] = np.nan
    result = topk.exchange([tf.constant(tensor) for tensor in broken])
    heard = hvd.allgather_object(bool(np.isnan(result[0].numpy()).any()))
    same = all(np.array_equal(a, b.numpy()) for a, b in zip(before[-1:], topk.residuals[-1:], strict=True))
    report["nan_heard"], report["nan_left_no_trace"] = heard, hvd.allgather_object(same)

    # A dense beginning is momentum SGD to the last bit but rounding: the average of the ranks' velocities.
    topk = TopK(variables, momentum=0.9, warmup_steps=3, dense_below=100, name="warm")
    velocity, worst = [np.zeros(())] * 3, 0.0
    for _ in range(3):
        gradients = [random.normal(size=shape).astype("f4") for shape in SHAPES]
        velocity = [0.9 * a + b for a, b in zip(velocity, gradients, strict=True)]
        result = topk.exchange([tf.constant(tensor) for tensor in gradients])
        worst = max(worst, *(float(np.abs(average(a) - b).max()) for a, b in zip(velocity, result, strict=True)))
    report["momentum_error"] = worst
    report["momentum_residual"] = max(float(np.abs(tensor.numpy()).max()) for tensor in topk.residuals)


def states(topk):
    """All that a rank remembers, as copies."""
    return [tensor.numpy() for tensor in (*topk.residuals, *topk.velocities, *topk.dense_velocities.values())]


def broken(report):
    """With momentum, rank 1 has an inf in each tensor of the second step: nothing that a rank remembers may change."""
    report["inf_left_no_trace"] = []
    for warmup in (0, 9):
        random = np.random.default_rng(hvd.rank())
        variables = [tf.Variable(tf.zeros(shape)) for shape in SHAPES]
        topk = TopK(variables, momentum=0.9, warmup_steps=warmup, dense_below=100, name=f"broken_{warmup}")
        gradients = [random.normal(size=shape).astype("f4") for shape in SHAPES]
        topk.exchange([tf.constant(tensor) for tensor in gradients])
        before = states(topk)
        for tensor in gradients:
            tensor[3] = np.inf if hvd.rank() == 1 else 1
        topk.exchange([tf.constant(tensor) for tensor in gradients])
        same = all(np.array_equal(a, b) for a, b in zip(before, states(topk), strict=True))
        report["inf_left_no_trace"] += hvd.allgather_object(same)


def absent(report):
    """One of two variables in a bucket has no gradient in a step: what is left of it waits."""
    gradient = tf.constant(np.random.default_rng(hvd.rank()).normal(size=20000).astype("f4"))
    topk = TopK([tf.Variable(tf.zeros([20000])) for _ in range(2)], name="absent")
    topk.exchange([gradient, 100 * gradient])
    before = topk.residuals[0].numpy().reshape(2, -1)
    result = topk.exchange([gradient, None])
    after = topk.residuals[0].numpy().reshape(2, -1)
    # A bucket begins with the last variable.
    report["absent_waits"] = result[1] is None and np.array_equal(before[0], after[0])
    report["absent_went_on"] = not np.array_equal(before[1], after[1])


def scaled(report):
    """A loss scale of Keras: one rank has an inf in the second of three steps, so that both skip it."""
    report["scaled"] = {}
    for kind in (tf.keras.optimizers.SGD, tf.keras.optimizers.legacy.SGD):
        weight = tf.Variable(tf.zeros([20000]))
        topk = TopK([weight], ratio=1.0, name="scaled_" + kind.__module__.split(".")[-2])
        optimizer = tf.keras.mixed_precision.LossScaleOptimizer(topk.optimizer(kind(1.0)), initial_scale=8)

        @tf.function
        def step(gradient, optimizer=optimizer, weight=weight):
            optimizer.apply_gradients([(gradient, weight)])

        for value in (1.0, np.inf if hvd.rank() == 1 else 1.0, 1.0):
            step(tf.fill([20000], np.float32(value)))
        mine = [float(weight[0]), float(optimizer.loss_scale), int(topk.steps)]
        report["scaled"][topk.name] = hvd.allgather_object(mine)


def wire(report):
    """Return the bytes that went over the loopback (mpirun uses TCP): ten exchanges of 1 M values, both ways.

    The least of twelve times ten. Horovod's ranks agree every millisecond, also while they have nothing to exchange. On
    a busy machine, where an exchange takes long, that is more than the exchange itself.
    """

    def counted(exchange):
        counter = Path("/sys/class/net/lo/statistics/tx_bytes")
        exchange()
        sizes = []
        for _ in range(12):
            hvd.allreduce(tf.zeros([1]), name="before")
            before = int(counter.read_text())
            for _ in range(10):
                exchange()
            hvd.allreduce(tf.zeros([1]), name="after")
            sizes.append((int(counter.read_text()) - before) / 10)
        return min(sizes)

    gradient = tf.constant(np.random.default_rng(hvd.rank()).normal(size=1_000_000).astype("f4"))
    topk = TopK([tf.Variable(tf.zeros([1_000_000]))], ratio=0.01, name="wire")
    report["wire_dense"] = counted(lambda: hvd.allreduce(gradient, op=hvd.Average, name="dense"))
    report["wire_topk"] = counted(lambda: topk.exchange([gradient]))
    report["wire_plan"] = topk.plan


def choosing(report):
    """CPU time to find the 1 % largest of 4 M values, in milliseconds for a million: the least of five."""
    values = tf.constant(np.random.default_rng(0).normal(size=4_000_000).astype("f4"))
    choose = tf.function(lambda: select(values, 40_000))
    taken = []
    for _ in range(6):
        began = time.process_time()
        choose()[1].numpy()
        taken.append(time.process_time() - began)
    report["choosing_ms"] = min(taken[1:]) * 1000 / 4


def predivide(report):
    """60,000 of each of two ranks: the sum is beyond half precision, the average is not."""
    weight = tf.Variable(1.0)
    report["predivide"] = {}
    for factor in (1.0, 2.0):
        with tf.GradientTape() as tape:
            loss = 60000.0 * weight
        tape = hvd.DistributedGradientTape(tape, compression=hvd.Compression.fp16, gradient_predivide_factor=factor)
        report["predivide"][str(factor)] = float(tape.gradient(loss, [weight])[0])


def network(weights, images):
    for place in (0, 2, 4):
        images = images @ weights[place] + weights[place + 1]
        if place < 4:
            images = tf.nn.relu(images)
    return images


def learn(report, images, labels):
    """The same start, the same batches: dense, top-k, and top-k that forgets what it does not send."""
    kinds = {"dense": None, "topk": {"ratio": 0.01}, "forgetful": {"ratio": 0.01, "feedback": False}}
    runs = {}
    for name, options in kinds.items():
        start = np.random.default_rng(1)
        weights = [
            tf.Variable((start.normal(size=s) * np.sqrt(2 / s[0])).astype("f4") if len(s) == 2 else np.zeros(s, "f4"))
            for s in LAYERS
        ]
        topk = TopK(weights, dense_below=2000, name=name, **options) if options else None
        runs[name] = (weights, topk)

    # All three in one step: they wait for the other rank together.
    @tf.function
    def step(some, of_some):
        for weights, topk in runs.values():
            with tf.GradientTape() as tape:
                scores = network(weights, some)
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(of_some, scores))
            tape = topk.tape(tape) if topk else hvd.DistributedGradientTape(tape)
            for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
                weight.assign_sub(RATE * gradient)

    mine = slice(hvd.rank(), TRAINED, hvd.size())
    here, of_here = images[:TRAINED][mine], labels[:TRAINED][mine]
    order = np.random.default_rng(2)
    for _ in range(EPOCHS):
        shuffled = order.permutation(len(here))[:PER_EPOCH]
        for first in range(0, PER_EPOCH, BATCH):
            batch = shuffled[first : first + BATCH]
            step(here[batch], of_here[batch])
    report["accuracy"], report["alike"] = {}, {}
    for name, (weights, _) in runs.items():
        guessed = tf.argmax(network(weights, images[TRAINED:]), axis=1).numpy()
        report["accuracy"][name] = float(np.mean(guessed == labels[TRAINED:]))
        every = hvd.allgather_object([weight.numpy().tobytes() for weight in weights])
        report["alike"][name] = all(digest == every[0] for digest in every)
    topk = runs["topk"][1]
    assert topk
    report["learning_share"] = int(topk.sent) / (int(topk.steps) * topk.plan["dense_bytes_per_step"])


def fit(report, images, labels):
    """model.fit with the optimizer: the ranks see different images and have the same weights in the end."""
    model = tf.keras.Sequential([tf.keras.layers.Dense(300, activation="relu"), tf.keras.layers.Dense(10)])
    model.build((None, 64))
    hvd.broadcast_variables(model.variables, root_rank=0)
    start = model.get_weights()
    topk = TopK(model.trainable_variables, ratio=0.05, dense_below=400, name="fit")
    entropy = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=topk.optimizer(tf.keras.optimizers.SGD(0.1)), loss=entropy)
    mine = slice(hvd.rank(), 256, hvd.size())
    model.fit(images[mine], labels[mine], batch_size=32, epochs=2, verbose=0)
    every = hvd.allgather_object([weight.tobytes() for weight in model.get_weights()])
    report["fit_alike"] = every[0] == every[1]
    report["fit_moved"] = float(max(np.abs(a - b).max() for a, b in zip(start, model.get_weights(), strict=True)))
    report["fit_steps"], report["fit_type"] = int(topk.steps), type(model.optimizer).__name__


def write_records(folder, images, labels):
    """Three files as ImageNet's tools name and fill them, labels from 0; and one that lacks the image."""
    folder.mkdir()

    def example(image, label, name="image/encoded"):
        png = tf.io.encode_png(np.uint8(image.reshape(8, 8, 1) * 255)).numpy()
        features = {
            name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[png])),
            "image/class/label": tf.train.Feature(int64_list=tf.train.Int64List(value=[int(label)])),
        }
        return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()

    for shard in range(3):
        with tf.io.TFRecordWriter(str(folder / f"train-{shard:05d}-of-00003")) as writer:
            for place in range(shard, len(images), 3):
                writer.write(example(images[place], labels[place]))
    with tf.io.TFRecordWriter(str(folder / "odd")) as writer:
        writer.write(example(images[0], labels[0], "picture"))


def main():
    hvd.init()
    folder = Path(sys.argv[1])
    data = np.load(folder / "digits.npz")
    images, labels = data["images"].reshape(-1, 64), data["labels"]
    report = {"ranks": hvd.size()}
    if hvd.rank() == 0:
        write_records(folder / "records", images, labels)
    bookkeeping(report)
    broken(report)
    absent(report)
    scaled(report)
    wire(report)
    choosing(report)
    predivide(report)
    learn(report, images, labels)
    fit(report, images, labels)
    if hvd.rank() == 0:
        sys.stdout.write(json.dumps(report) + "\n")
    hvd.shutdown()


if __name__ == "__main__":
    main()
