"""Top-k sparse all-reduce with error feedback, for TensorFlow 2 and Horovod.

Each rank sends only the values of a gradient with the largest magnitude, 1 % by default. The others are not lost: they
stay in a residual on the rank and are added to the gradient of the next step, so that every value is sent sooner or
later. The result is the exact average of what the ranks sent, the same on every rank.

    import horovod.tensorflow as hvd
    from kit_topk import TopK

    topk = TopK(model.trainable_variables, ratio=0.01)        # after hvd.init(), once

    with tf.GradientTape() as tape:                            # in your training loop
        loss = ...
    gradients = topk.tape(tape).gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    model.compile(optimizer=topk.optimizer(SGD(0.1)), ...)     # or model.fit

Sources: Aji and Heafield 2017, "Sparse Communication for Distributed Gradient Descent", arXiv:1704.05021 (the largest
values, the rest kept for later); Stich, Cordonnier and Jaggi 2018, "Sparsified SGD with Memory", arXiv:1809.07599 (why
that converges as plain SGD does); Lin, Han, Mao, Wang and Dally 2018, "Deep Gradient Compression", arXiv:1712.01887
(momentum correction and masking, a threshold estimated from a sample, a dense beginning).
"""

from typing import Any

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from kit_topk_plan import LARGEST, PAIR_BYTES, VALUE_BYTES, buckets, kept, ring_bytes, sampling

__all__ = ["TopK"]

_TINY = float(np.finfo(np.float32).tiny)


class TopK(tf.Module):
    """Exchanges the gradients of `variables`, and keeps what each rank remembers between steps.

    variables     the trained variables. They must be built: their shapes are planned once.
    ratio         share of the values that are sent, 0 < ratio <= 1.
    momentum      0 for no momentum. Otherwise momentum is corrected for late values: it is applied here, before the
                  values are chosen, and the optimizer must not have any. Costs another copy of the gradients in memory.
    dense_below   tensors with fewer elements than this go dense (biases, normalization): there are many, and they cost
                  little.
    bucket_mb     MB of gradients that are ranked and sent together. Large buckets have less overhead. Small buckets
                  let the first one travel while the others are still computed.
    warmup_steps  number of dense steps at the beginning, when gradients change fastest.
    feedback      False discards what is not sent, to show what feedback is good for.

    As a tf.Module it can be part of a tf.train.Checkpoint. Residuals belong to their rank: never broadcast them. Save
    them on each rank, or not at all (training then continues from empty ones).

    A step in which a rank has an inf or a nan gives nan to every rank, as a dense all-reduce would, and leaves no trace
    in the residuals. With a loss scale, skip that step as usual. If the scale changes between steps, unscale gradients
    before they come here.
    """

    def __init__(  # noqa: PLR0917  (public; programs of users may pass any of them by position)
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
        # Other types than float32 go dense: half of a value's bits would not be smaller than its place.
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
        # Bytes that this rank has passed to Horovod since the beginning, and steps.
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
        """The plan in numbers: elements, pairs, and bytes of a step, as passed to Horovod and as rings send them."""
        return dict(self._plan)

    def exchange(self, gradients, variables=None):
        """Return the average over the ranks of what each rank chose to send, tensor by tensor.

        `gradients` are in the order of `variables`, by default those that TopK was made for. A gradient that is None
        stays None; sparse gradients (such as those of an embedding) become dense.
        """
        gradients = list(gradients)
        places = self._places_of(variables)
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

    def _places_of(self, variables):
        """Return the places of variables in the list that TopK was made for; None means all of them."""
        if variables is None:
            return list(range(len(self._shapes)))
        variables = list(variables)
        unknown = [variable.name for variable in variables if variable.ref() not in self._places]
        if unknown:
            raise ValueError("TopK was not made for %s" % ", ".join(unknown))
        return [self._places[variable.ref()] for variable in variables]

    def tape(self, tape):
        """Return a tape whose gradient() exchanges gradients, as hvd.DistributedGradientTape does for dense ones."""
        return _Tape(self, tape)

    def optimizer(self, optimizer):
        """Return an optimizer like this one that exchanges gradients before it applies them. For model.fit."""
        exchange = self.exchange

        def apply_gradients(this, grads_and_vars, *args, **kwargs):
            gradients, variables = zip(*grads_and_vars)
            averaged = exchange(gradients, variables)
            return kind.apply_gradients(this, list(zip(averaged, variables)), *args, **kwargs)

        kind = optimizer.__class__
        wrapped: Any = type("TopK" + kind.__name__, (kind,), {"apply_gradients": apply_gradients})
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
        # All ranks have made the same number of steps, so all of them take the same branch.
        return tf.cond(
            self.steps <= self.warmup_steps,
            lambda: self._exchange_whole(number, flat),
            lambda: self._exchange_sparse(number, flat),
        )

    def _exchange_whole(self, number, flat):
        """Exchange a dense bucket. Momentum is linear, so the average over ranks is that of the averaged gradient."""
        if self.momentum:
            velocity = self.velocities[number]
            flat = velocity.assign(self.momentum * velocity + flat)
        if self._size == 1:
            return tf.identity(flat)
        self._count(int(flat.shape[0]) * VALUE_BYTES)
        return _average(flat, "%s.whole.%d" % (self.name, number))

    def _exchange_sparse(self, number, flat):
        if self._size == 1:
            # Nothing has to travel, so every value counts.
            return self._exchange_whole(number, flat)
        residual, k = self.residuals[number], self._kept[number]
        velocity = self.velocities[number] if self.momentum else None
        # An inf or a nan makes the sum one, too. In the residual it would stay forever.
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
                # Momentum masking: values that were just sent lose their old direction. Padded places keep theirs.
                masked = tf.where(tf.equal(values, 0.0), tf.gather(velocity, places), 0.0)
                velocity.scatter_update(tf.IndexedSlices(masked, places))
            return 0

        tf.cond(all_sound, forget, lambda: 0)
        total = tf.zeros([int(flat.shape[0])])
        # Rank after rank: places differ within a rank, so the order of additions is fixed, and the sum is the same to
        # the last bit on every rank, on GPUs too.
        for rank in range(self._size):
            total = tf.tensor_scatter_nd_add(total, heard[0][rank][:, None], heard[1][rank])
        return total / self._size

    def _gather(self, number, k, places, values):
        """Return (places, values) of all ranks, each [ranks, k], from one message: values go as integers."""
        packed = tf.concat([places, tf.bitcast(values, tf.int32)], axis=0)
        heard = hvd.allgather(packed, name="%s.pairs.%d" % (self.name, number), ignore_name_scope=True)
        heard = tf.reshape(heard, [self._size, 2, k])
        return heard[:, 0], tf.bitcast(heard[:, 1], tf.float32)

    def _count(self, count):
        self.sent.assign_add(count)


class _Tape:
    """A tf.GradientTape whose gradient() exchanges. All other attributes are those of the tape."""

    def __init__(self, topk, tape):
        self._topk, self._tape = topk, tape

    def gradient(self, target, sources, output_gradients=None):
        gradients = self._tape.gradient(target, sources, output_gradients)
        return self._topk.exchange(gradients, sources)

    def __getattr__(self, name):
        return getattr(self._tape, name)


def select(values, k):
    """Return (places, values) of the k largest magnitudes of a vector, in any order.

    If fewer than k values differ from 0, (0, 0.0) fills the rest. A long vector is not ranked whole: a sample gives the
    magnitude that a value needs to be among the k, and only such values are ranked. If the sample is wrong, fewer than
    k values come out, but never one that is smaller than one left out.
    """
    magnitude = tf.abs(values)
    stride, place = sampling(int(values.shape[0]), k)
    if stride == 1:
        chosen_places = tf.math.top_k(magnitude, k, sorted=False).indices
        return chosen_places, tf.gather(values, chosen_places)
    threshold = tf.math.top_k(magnitude[::stride], place).values[-1]
    # If most values are 0, so is the threshold. Then all other values are candidates.
    candidates = tf.reshape(tf.where(magnitude >= tf.maximum(threshold, _TINY)), [-1])
    among = tf.math.top_k(tf.gather(magnitude, candidates), tf.minimum(k, tf.size(candidates)), sorted=False).indices
    chosen_places = tf.gather(candidates, among)
    padding = [[0, k - tf.size(chosen_places)]]
    places = tf.pad(tf.cast(chosen_places, tf.int32), padding)
    chosen = tf.pad(tf.gather(values, chosen_places), padding)
    return tf.ensure_shape(places, [k]), tf.ensure_shape(chosen, [k])


def _average(tensor, name):
    return hvd.allreduce(tensor, op=hvd.Average, name=name, ignore_name_scope=True)
