"""Top-k sparse all-reduce with error feedback, for TensorFlow 2 and Horovod.

Of each gradient only the values with the largest magnitude are sent, 1 % by default. What is not sent is not lost: it
stays in a residual on its rank, and is added to the gradient of the next step, so that every value is sent sooner or
later. The result is the exact average of what the ranks sent, the same on every rank.

    import horovod.tensorflow as hvd
    from kit_topk import TopK

    topk = TopK(model.trainable_variables, ratio=0.01)        # after hvd.init(), once

    with tf.GradientTape() as tape:                            # a training loop of your own
        loss = ...
    gradients = topk.tape(tape).gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    model.compile(optimizer=topk.optimizer(SGD(0.1)), ...)     # or model.fit

Sources: Aji and Heafield 2017, "Sparse Communication for Distributed Gradient Descent", arXiv:1704.05021 (the largest
values, the rest kept for later); Stich, Cordonnier and Jaggi 2018, "Sparsified SGD with Memory", arXiv:1809.07599 (why
that converges as plain SGD does); Lin, Han, Mao, Wang and Dally 2018, "Deep Gradient Compression", arXiv:1712.01887
(momentum correction and masking, a threshold guessed from a sample, a dense beginning).
"""

import numpy as np
import tensorflow as tf

import horovod.tensorflow as hvd
from kit_topk_plan import LARGEST, PAIR_BYTES, VALUE_BYTES, buckets, kept, ring_bytes, sampling

__all__ = ["TopK"]

_TINY = float(np.finfo(np.float32).tiny)


class TopK(tf.Module):
    """The exchange of the gradients of `variables`, with what each rank remembers between steps.

    variables     what is trained, built already: their shapes are planned once.
    ratio         share of the values that are sent, 0 < ratio <= 1.
    momentum      0: none. Else momentum is corrected for what is late: it is kept here, before the values are chosen, and
                  the optimizer must have none of its own. Costs another copy of the gradients in memory.
    dense_below   tensors with fewer elements than this go dense (biases, normalisation): they are many and cost little.
    bucket_mb     MB of gradients that are ranked and sent together. Fewer and larger: less overhead; more and smaller: the
                  first travel while the others are still computed.
    warmup_steps  the first steps are dense: gradients change fastest then.
    feedback      False throws away what is not sent. It is there to see what feedback is good for.

    As a tf.Module it can be put into a tf.train.Checkpoint. The residuals are each rank's own: broadcast them to nobody,
    and save them on each rank, or not at all (training goes on from empty ones).

    A step in which a rank has an inf or a nan gives nan to every rank, as a dense all-reduce would, and leaves no trace
    in the residuals: with a loss scale, skip that step as usual. Gradients have to be unscaled before they come here if
    their scale changes between steps.
    """

    def __init__(
        self,
        variables,
        ratio=0.01,
        momentum=0.0,
        dense_below=10000,
        bucket_mb=32,
        warmup_steps=0,
        feedback=True,
        name="kit_topk",
    ):
        super().__init__(name=name)
        variables = list(variables)
        if not 0 < ratio <= 1:
            raise ValueError("ratio is %r: it has to be above 0 and at most 1" % (ratio,))
        if not 0 <= momentum < 1:
            raise ValueError("momentum is %r: it has to be at least 0 and below 1" % (momentum,))
        if bucket_mb <= 0 or dense_below < 0 or warmup_steps < 0:
            raise ValueError("bucket_mb has to be above 0, dense_below and warmup_steps at least 0")
        self.ratio, self.momentum, self.feedback, self.warmup_steps = ratio, momentum, feedback, warmup_steps
        self._size = hvd.size()
        self._shapes = [tuple(variable.shape) for variable in variables]
        self._places = {variable.ref(): place for place, variable in enumerate(variables)}
        sizes = [int(np.prod(shape)) for shape in self._shapes]
        # What is not float32 goes as it is: half of a value's bits are no smaller than its place.
        others = [place for place, variable in enumerate(variables) if variable.dtype != tf.float32]
        ranked = [0 if place in others else size for place, size in enumerate(sizes)]
        self._dense, self._buckets = buckets(
            ranked, max(1, dense_below), min(LARGEST, int(bucket_mb * 1e6 / VALUE_BYTES))
        )
        self._sizes = [[sizes[place] for place in bucket] for bucket in self._buckets]
        self._kept = [kept(sum(part), ratio) for part in self._sizes]

        def state(shape, what):
            return tf.Variable(tf.zeros(shape), trainable=False, name="%s_%s" % (name, what))

        self.residuals = [state([sum(part)], "residual_%d" % number) for number, part in enumerate(self._sizes)]
        self.velocities, self.dense_velocities = [], {}
        if momentum:
            self.velocities = [state([sum(part)], "velocity_%d" % number) for number, part in enumerate(self._sizes)]
            self.dense_velocities = {
                str(place): state(self._shapes[place], "velocity_of_%d" % place)
                for place in self._dense
                if place not in others
            }
        # Bytes that this rank has handed to Horovod since the beginning, and steps.
        self.sent = tf.Variable(0, dtype=tf.int64, trainable=False, name=name + "_sent")
        self.steps = tf.Variable(0, dtype=tf.int64, trainable=False, name=name + "_steps")

        dense = sum(sizes[place] for place in self._dense)
        every = sum(sizes)
        pairs = sum(self._kept)
        self._plan = {
            "ratio": ratio,
            "elements": every,
            "dense_elements": dense,
            "pairs": pairs,
            "buckets": len(self._buckets),
            "dense_tensors": len(self._dense),
            "bytes_per_step": dense * VALUE_BYTES + pairs * PAIR_BYTES,
            "dense_bytes_per_step": every * VALUE_BYTES,
            "wire_bytes_per_step": ring_bytes(self._size, dense, pairs),
            "dense_wire_bytes_per_step": ring_bytes(self._size, every, 0),
        }

    # -- how it is used

    @property
    def plan(self):
        """What was planned, in numbers: elements, pairs, bytes a step as handed to Horovod and as rings put them on the wire."""
        return dict(self._plan)

    def exchange(self, gradients, variables=None):
        """The average over the ranks of what each chose to send, tensor by tensor.

        `gradients` are in the order of `variables`, by default those that TopK was made for. A gradient that is None stays
        None; sparse ones (of an embedding, say) become dense.
        """
        gradients = list(gradients)
        if variables is None:
            places = list(range(len(self._shapes)))
        else:
            variables = list(variables)
            unknown = [variable.name for variable in variables if variable.ref() not in self._places]
            if unknown:
                raise ValueError("TopK was not made for %s" % ", ".join(unknown))
            places = [self._places[variable.ref()] for variable in variables]
        if len(gradients) != len(places):
            raise ValueError("%d gradients for %d variables" % (len(gradients), len(places)))
        given = [None] * len(self._shapes)
        for place, gradient in zip(places, gradients):
            given[place] = None if gradient is None else tf.convert_to_tensor(gradient)
        self.steps.assign_add(1)
        averaged = list(given)
        for number, bucket in enumerate(self._buckets):
            if all(given[place] is None for place in bucket):
                continue
            flat = tf.concat([self._flat(given[place], place) for place in bucket], axis=0)
            parts = tf.split(self._exchange(number, flat), self._sizes[number])
            for place, part in zip(bucket, parts):
                if given[place] is not None:
                    averaged[place] = tf.reshape(part, self._shapes[place])
        for place in self._dense:
            if given[place] is not None:
                averaged[place] = self._exchange_dense(place, given[place])
        return [averaged[place] for place in places]

    def tape(self, tape):
        """`tape`, whose gradient() gives exchanged gradients: what hvd.DistributedGradientTape is for dense ones."""
        return _Tape(self, tape)

    def optimizer(self, optimizer):
        """A Keras optimizer like this one, which exchanges the gradients before it applies them. For model.fit."""
        exchange = self.exchange

        def apply_gradients(this, grads_and_vars, *args, **kwargs):
            gradients, variables = zip(*grads_and_vars)
            averaged = exchange(gradients, variables)
            return kind.apply_gradients(this, list(zip(averaged, variables)), *args, **kwargs)

        kind = optimizer.__class__
        wrapped = type("TopK" + kind.__name__, (kind,), {"apply_gradients": apply_gradients})
        return wrapped.from_config(optimizer.get_config())

    # -- how it works

    def _flat(self, gradient, place):
        if gradient is None:
            return tf.zeros([int(np.prod(self._shapes[place]))])
        return tf.reshape(gradient, [-1])

    def _exchange_dense(self, place, gradient):
        velocity = self.dense_velocities.get(str(place))
        if velocity is not None:
            gradient = velocity.assign(self.momentum * velocity + gradient)
        if self._size == 1:
            return gradient
        self._count(int(np.prod(self._shapes[place])) * gradient.dtype.size)
        return _average(gradient, "%s.dense.%d" % (self.name, place))

    def _exchange(self, number, flat):
        if not self.warmup_steps:
            return self._exchange_sparse(number, flat)
        # Every rank has made as many steps, so all of them take the same way.
        return tf.cond(
            self.steps <= self.warmup_steps,
            lambda: self._exchange_whole(number, flat),
            lambda: self._exchange_sparse(number, flat),
        )

    def _exchange_whole(self, number, flat):
        """A bucket goes dense. Momentum is linear: the average of the ranks' is that of the averaged gradient."""
        if self.momentum:
            velocity = self.velocities[number]
            flat = velocity.assign(self.momentum * velocity + flat)
        if self._size == 1:
            return tf.identity(flat)
        self._count(int(flat.shape[0]) * VALUE_BYTES)
        return _average(flat, "%s.whole.%d" % (self.name, number))

    def _exchange_sparse(self, number, flat):
        if self._size == 1:
            # Nothing has to travel, so nothing is left out.
            return self._exchange_whole(number, flat)
        residual, k = self.residuals[number], self._kept[number]
        velocity = self.velocities[number] if self.momentum else None
        # An inf or a nan makes the sum one. It must not stay in the residual, where it would be for good.
        sound = tf.math.is_finite(tf.reduce_sum(flat))

        def remember():
            added = flat
            if velocity is not None:
                added = velocity.assign(self.momentum * velocity + flat)
            residual.assign_add(added)
            return 0

        tf.cond(sound, remember, lambda: 0)
        whole = residual.read_value()
        places, values = select(whole, k)
        spoken = values + tf.where(sound, 0.0, np.nan)
        self._count(k * PAIR_BYTES)
        heard = self._gather(number, k, places, spoken)
        all_sound = tf.math.is_finite(tf.reduce_sum(heard[1]))

        def forget():
            if not self.feedback:
                residual.assign(tf.zeros_like(residual))
            else:
                # a - a is 0 exactly; a padded place takes 0 away.
                residual.scatter_sub(tf.IndexedSlices(values, places))
            if velocity is not None:
                # Momentum masking: what has just been sent does not push on in its old direction. Padded places stay.
                masked = tf.where(tf.equal(values, 0.0), tf.gather(velocity, places), 0.0)
                velocity.scatter_update(tf.IndexedSlices(masked, places))
            return 0

        tf.cond(all_sound, forget, lambda: 0)
        total = tf.zeros([int(flat.shape[0])])
        # Rank after rank: places are different from each other within a rank, so that no order of additions is left to
        # chance, and the sum is the same to the last bit on every rank, on GPUs too.
        for rank in range(self._size):
            total = tf.tensor_scatter_nd_add(total, heard[0][rank][:, None], heard[1][rank])
        return total / self._size

    def _gather(self, number, k, places, values):
        """(places, values) of all ranks, each [ranks, k]. One message: the bits of the values go as integers."""
        packed = tf.concat([places, tf.bitcast(values, tf.int32)], axis=0)
        heard = hvd.allgather(packed, name="%s.pairs.%d" % (self.name, number), ignore_name_scope=True)
        heard = tf.reshape(heard, [self._size, 2, k])
        return heard[:, 0], tf.bitcast(heard[:, 1], tf.float32)

    def _count(self, count):
        self.sent.assign_add(count)


class _Tape:
    """A tf.GradientTape whose gradient() exchanges; all else is the tape's own."""

    def __init__(self, topk, tape):
        self._topk, self._tape = topk, tape

    def gradient(self, target, sources, output_gradients=None):
        gradients = self._tape.gradient(target, sources, output_gradients)
        return self._topk.exchange(gradients, sources)

    def __getattr__(self, name):
        return getattr(self._tape, name)


def select(values, k):
    """(places, values) of the k largest magnitudes of a vector, in no order; padded with (0, 0.0) where fewer than k differ from 0.

    A long vector is not ranked as a whole: a sample says which magnitude a value should have to be among the k, and those
    that have it are ranked. When the sample was wrong, fewer than k are found, never smaller ones than some left out.
    """
    magnitude = tf.abs(values)
    stride, place = sampling(int(values.shape[0]), k)
    if stride == 1:
        found = tf.math.top_k(magnitude, k, sorted=False).indices
        return found, tf.gather(values, found)
    threshold = tf.math.top_k(magnitude[::stride], place).values[-1]
    # Where most are 0, so is the threshold: then whatever is not 0.
    candidates = tf.reshape(tf.where(magnitude >= tf.maximum(threshold, _TINY)), [-1])
    among = tf.math.top_k(tf.gather(magnitude, candidates), tf.minimum(k, tf.size(candidates)), sorted=False).indices
    found = tf.gather(candidates, among)
    padding = [[0, k - tf.size(found)]]
    places = tf.pad(tf.cast(found, tf.int32), padding)
    chosen = tf.pad(tf.gather(values, found), padding)
    return tf.ensure_shape(places, [k]), tf.ensure_shape(chosen, [k])


def _average(tensor, name):
    return hvd.allreduce(tensor, op=hvd.Average, name=name, ignore_name_scope=True)
