"""Top-k sparse all-reduce with error feedback, for TensorFlow 2 and Horovod.

Each rank sends only the values of a gradient with the largest magnitude, 1 % by default. The others are not lost: they
stay in a residual on the rank and are added to the gradient of the next step, so that every value is sent sooner or
later. The result is the exact average of what the ranks sent, the same on every rank.

    import horovod.tensorflow as hvd
    from kit_topk import TopK

    hvd.broadcast_variables(model.variables, root_rank=0)     # after hvd.init(), once: TopK exchanges gradients only
    topk = TopK(model.trainable_variables, ratio=0.01)

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

    A bucket or dense tensor in which a rank has an inf or a nan gives nan to every rank, as a dense all-reduce would,
    and leaves no trace in residuals and velocities. With a loss scale, skip that step as usual; what other buckets sent
    in it is skipped, too. If the scale changes between steps, unscale gradients before they come here.
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
        stays None, and the variable keeps its residual and velocity; sparse gradients (such as those of an embedding)
        become dense.
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
            there = [given[place] is not None for place in bucket]
            if not any(there):
                continue
            flat = tf.concat([self._flat(given[place], place) for place in bucket], axis=0)
            parts = tf.split(self._exchange(number, flat, there), self._sizes[number])
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
        """Return an optimizer like this one that exchanges gradients before it applies them. For model.fit.

        Keras' LossScaleOptimizer may wrap it, as compile does for mixed_float16. As with any optimizer of Keras,
        apply_gradients with skip_gradients_aggregation=True applies gradients without an exchange.
        """
        exchange = self.exchange
        # True while apply_gradients applies what it has exchanged.
        exchanged = False

        def average(grads_and_vars):
            gradients, variables = zip(*grads_and_vars)
            return list(zip(exchange(gradients, variables), variables))

        def apply_gradients(this, grads_and_vars, *args, **kwargs):
            nonlocal exchanged
            # Optimizers of tf.keras.optimizers.legacy know the second name only.
            if kwargs.get("skip_gradients_aggregation") or not kwargs.get("experimental_aggregate_gradients", True):
                return kind.apply_gradients(this, grads_and_vars, *args, **kwargs)
            averaged, exchanged = average(grads_and_vars), True
            try:
                return kind.apply_gradients(this, averaged, *args, **kwargs)
            finally:
                exchanged = False

        def aggregating(name):
            # A LossScaleOptimizer calls this first, and applies the gradients only if they are finite. If it decided
            # that by those of its rank alone, the ranks that apply would wait forever for one that does not.
            def aggregate(this, grads_and_vars):
                return getattr(kind, name)(this, grads_and_vars if exchanged else average(grads_and_vars))

            return aggregate

        kind = optimizer.__class__
        names = [name for name in ("aggregate_gradients", "_aggregate_gradients") if hasattr(kind, name)]
        methods = {"apply_gradients": apply_gradients, **{name: aggregating(name) for name in names}}
        wrapped: Any = type("TopK" + kind.__name__, (kind,), methods)
        return wrapped.from_config(optimizer.get_config())

    # -- how it works

    def _flat(self, gradient, place):
        if gradient is None:
            return tf.zeros([int(np.prod(self._shapes[place]))])
        return tf.reshape(gradient, [-1])

    def _exchange_dense(self, place, gradient):
        size, what = int(np.prod(self._shapes[place])), "dense.%d" % place
        velocity = self.dense_velocities.get(str(place))
        if velocity is None:
            return self._average(gradient, size, what)
        moved = self.momentum * velocity + gradient
        averaged = self._average(moved, size, what)
        velocity.assign(tf.where(_finite(averaged), moved, velocity))
        return averaged

    def _average(self, tensor, size, what):
        """Return the average over the ranks. It is finite only if the tensors of all ranks are."""
        if self._size == 1:
            return tensor
        self._count(size * tensor.dtype.size)
        return hvd.allreduce(tensor, op=hvd.Average, name="%s.%s" % (self.name, what), ignore_name_scope=True)

    def _exchange(self, number, flat, there):
        if not self.warmup_steps:
            return self._exchange_sparse(number, flat, there)
        # All ranks have made the same number of steps, so all of them take the same branch.
        return tf.cond(
            self.steps <= self.warmup_steps,
            lambda: self._exchange_whole(number, flat, there),
            lambda: self._exchange_sparse(number, flat, there),
        )

    def _exchange_whole(self, number, flat, there):
        """Exchange a dense bucket. Momentum is linear, so the average over ranks is that of the averaged gradient."""
        size, what = sum(self._sizes[number]), "whole.%d" % number
        if not self.momentum:
            return self._average(flat, size, what)
        velocity = self.velocities[number]
        moved = self._moved(number, flat, there)
        averaged = self._average(moved, size, what)
        velocity.assign(tf.where(_finite(averaged), self._part(number, there, moved, velocity), velocity))
        return averaged

    def _exchange_sparse(self, number, flat, there):
        if self._size == 1:
            # Nothing has to travel, so every value counts.
            return self._exchange_whole(number, flat, there)
        residual, k = self.residuals[number], self._kept[number]
        velocity = self.velocities[number] if self.momentum else None
        moved = flat if velocity is None else self._moved(number, flat, there)
        whole = residual + moved
        # An inf or a nan would stay in the residual forever.
        sound = _finite(whole)
        # The residual of a variable that has no gradient in this step must wait: nobody would take its values.
        places, values = select(self._part(number, there, tf.cond(sound, lambda: whole, residual.read_value)), k)
        spoken = values + tf.where(sound, 0.0, np.nan)
        self._count(k * PAIR_BYTES)
        heard = self._gather(number, k, places, spoken)
        # Of all ranks or of none: where one rank has an inf, the others drop their gradients of this step, too.
        all_sound = _finite(heard[1])

        def remember():
            if self.feedback:
                residual.assign(whole)
                # a - a is 0 exactly; a padded place takes 0 away.
                residual.scatter_sub(tf.IndexedSlices(values, places))
            if velocity is not None:
                velocity.assign(self._part(number, there, moved, velocity))
                # Momentum masking: values that were just sent lose their old direction. Padded places keep theirs.
                masked = tf.where(tf.equal(values, 0.0), tf.gather(velocity, places), 0.0)
                velocity.scatter_update(tf.IndexedSlices(masked, places))
            return 0

        tf.cond(all_sound, remember, lambda: 0)
        total = tf.zeros([int(flat.shape[0])])
        # Rank after rank: places differ within a rank, so the order of additions is fixed, and the sum is the same to
        # the last bit on every rank, on GPUs too.
        for rank in range(self._size):
            total = tf.tensor_scatter_nd_add(total, heard[0][rank][:, None], heard[1][rank])
        return total / self._size

    def _moved(self, number, flat, there):
        """Return the new velocity of a bucket, and 0 for variables that have no gradient in this step."""
        return self._part(number, there, self.momentum * self.velocities[number] + flat)

    def _part(self, number, there, values, others=None):
        """Return a bucket's `values`, but `others` or 0 for variables that have no gradient in this step."""
        if all(there):
            return values
        rest = tf.zeros_like(values) if others is None else others
        rows = zip(there, tf.split(values, self._sizes[number]), tf.split(rest, self._sizes[number]))
        return tf.concat([value if has else other for has, value, other in rows], axis=0)

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


def _finite(tensor):
    return tf.reduce_all(tf.math.is_finite(tensor))
