"""kit_topk with numpy in TensorFlow's place: what a rank remembers after odd steps, and how Keras calls its optimizer.

The same on real tensors and two real ranks: tests/integration/topk_digits.py.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tests.fakes import launcher
from tests.fakes.tensors import Array, OtherRank, modules, tensor

SIZE, SMALL = 100, 5


@pytest.fixture
def other() -> OtherRank:
    return OtherRank()


@pytest.fixture
def topk(monkeypatch: pytest.MonkeyPatch, other: OtherRank) -> Callable[..., Any]:
    """Return a TopK of a variable that goes sparse and a small one that goes dense, or of others."""
    for name, module in modules(other).items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "kit_topk", raising=False)
    loaded = launcher.load("kit_topk")
    monkeypatch.delitem(sys.modules, "kit_topk")

    def make(sizes: Sequence[int] = (SIZE, SMALL), **given: Any) -> Any:
        variables = [tensor(np.zeros(size)) for size in sizes]
        return loaded.TopK(**{"variables": variables, "ratio": 0.1, "dense_below": 10, **given})

    return make


def drawn(seed: int, sizes: Sequence[int] = (SIZE, SMALL)) -> list[Array]:
    random = np.random.default_rng(seed)
    return [random.normal(size=size).astype("f4") for size in sizes]


def remembered(topk: Any) -> list[Array]:
    return [np.array(state) for state in (*topk.residuals, *topk.velocities, *topk.dense_velocities.values())]


def unsound(name: str, mine: Array) -> Array:
    """Answer as a rank with a nan would: it has chosen the same places."""
    values = np.full(len(mine) if "pairs" not in name else len(mine) // 2, np.nan, "f4")
    return np.concatenate([mine[: len(values)], values.view("i4")]) if "pairs" in name else values


@pytest.mark.parametrize("warmup_steps", [0, 9])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("broken", ["mine", "the other's"])
def test_a_step_with_an_inf_or_nan_changes_nothing_that_a_rank_remembers(
    topk: Callable[..., Any], other: OtherRank, warmup_steps: int, momentum: float, broken: str
) -> None:
    made = topk(warmup_steps=warmup_steps, momentum=momentum)
    made.exchange(drawn(1))
    before = remembered(made)
    gradients = drawn(2)
    if broken == "mine":
        for gradient in gradients:
            gradient[3] = np.inf
    else:
        other.answers = unsound
    assert not any(np.isfinite(result).all() for result in made.exchange(gradients))
    assert all(np.array_equal(a, b) for a, b in zip(before, remembered(made), strict=True))
    other.answers = lambda _, mine: mine
    assert all(np.isfinite(result).all() for result in made.exchange(drawn(3)))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_what_a_rank_has_not_sent_waits_while_its_variable_has_no_gradient(
    topk: Callable[..., Any], momentum: float
) -> None:
    made = topk((SIZE, SIZE), momentum=momentum)
    # A bucket begins with the last variable.
    one, two = drawn(1, (SIZE, SIZE))
    first = made.exchange([one, 100 * two])
    before = [state[:SIZE] for state in remembered(made)]
    result = made.exchange([one, None])
    assert result[1] is None
    assert np.count_nonzero(result[0]) == 20
    assert all(np.array_equal(a, b[:SIZE]) for a, b in zip(before, remembered(made), strict=True))
    if not momentum:
        assert np.allclose(first[1] + made.residuals[0][:SIZE], 100 * two)
        assert np.allclose(first[0] + result[0] + made.residuals[0][SIZE:], 2 * one)


def test_a_dense_beginning_keeps_the_velocity_of_a_variable_without_a_gradient(topk: Callable[..., Any]) -> None:
    made = topk((SIZE, SIZE), momentum=0.9, warmup_steps=9)
    one, two = drawn(1, (SIZE, SIZE))
    made.exchange([one, two])
    result = made.exchange([one, None])
    assert np.allclose(result[0], 1.9 * one)
    assert np.array_equal(made.velocities[0][:SIZE], two)


class Base:
    def __init__(self) -> None:
        self.applied: list[Array] = []

    @classmethod
    def from_config(cls, _: Any) -> Any:
        return cls()

    def get_config(self) -> dict[str, Any]:
        return {}


class Optimizer(Base):
    """As those of Keras 2.15: apply_gradients aggregates first, unless the caller has done that."""

    def aggregate_gradients(self, pairs: Any) -> Any:
        return pairs

    def apply_gradients(self, pairs: Any, skip_gradients_aggregation: bool = False) -> None:
        pairs = pairs if skip_gradients_aggregation else self.aggregate_gradients(pairs)
        self.applied += [gradient for gradient, _ in pairs]


class Legacy(Base):
    """As those of tf.keras.optimizers.legacy."""

    def _aggregate_gradients(self, pairs: Any) -> Any:
        return pairs

    def apply_gradients(self, pairs: Any, experimental_aggregate_gradients: bool = True) -> None:
        pairs = self._aggregate_gradients(pairs) if experimental_aggregate_gradients else pairs
        self.applied += [gradient for gradient, _ in pairs]


def scaled_apply(optimizer: Any, pairs: Any) -> None:
    """Apply as Keras' LossScaleOptimizer does: it aggregates, and applies only gradients that are finite."""
    old = isinstance(optimizer, Legacy)
    pairs = optimizer._aggregate_gradients(pairs) if old else optimizer.aggregate_gradients(pairs)
    flag = {"experimental_aggregate_gradients": False} if old else {"skip_gradients_aggregation": True}
    if all(np.isfinite(gradient).all() for gradient, _ in pairs):
        optimizer.apply_gradients(pairs, **flag)


@pytest.mark.parametrize("kind", [Optimizer, Legacy])
def test_an_optimizer_exchanges_each_step_once_also_below_a_loss_scale(
    topk: Callable[..., Any], other: OtherRank, kind: type[Base]
) -> None:
    variable = tensor(np.zeros(SMALL))
    made = topk(variables=[variable])
    optimizer = made.optimizer(kind())
    other.answers = lambda _, mine: 3 * mine
    ones = np.ones(SMALL, "f4")
    optimizer.apply_gradients([(ones, variable)])
    scaled_apply(optimizer, [(ones, variable)])
    assert [list(gradient) for gradient in optimizer.applied] == [[2.0] * SMALL] * 2
    # A rank with an inf exchanges as well, so that nobody waits for it; and the others hear of it.
    scaled_apply(optimizer, [(ones * np.inf, variable)])
    other.answers = lambda _, mine: np.nan * mine
    scaled_apply(optimizer, [(ones, variable)])
    assert (len(other.names), len(optimizer.applied)) == (4, 2)
