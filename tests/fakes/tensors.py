"""As much of TensorFlow and Horovod as kit_topk uses, on numpy, for one of two ranks: the test is the other one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class DType:
    """A type of TensorFlow, which has a size."""

    of: np.dtype[Any]

    @property
    def size(self) -> int:
        return self.of.itemsize


FLOAT32, INT32, INT64 = (DType(np.dtype(name)) for name in ("float32", "int32", "int64"))


class Tensor(np.ndarray[Any, Any]):
    """An array whose type is one of TensorFlow, and which may be a variable."""

    @property
    def dtype(self) -> Any:
        return DType(np.asarray(self).dtype)

    def assign(self, values: Any) -> Tensor:
        self[...] = values
        return self

    def assign_add(self, values: Any) -> Tensor:
        return self.assign(self + values)

    def read_value(self) -> Tensor:
        return self.copy()

    def scatter_sub(self, slices: tuple[Array, Array]) -> None:
        np.subtract.at(self, slices[1], slices[0])

    def scatter_update(self, slices: tuple[Array, Array]) -> None:
        self[slices[1]] = slices[0]

    def ref(self) -> int:
        return id(self)


def tensor(values: Any, kind: DType = FLOAT32) -> Tensor:
    return np.array(values, kind.of).view(Tensor)


class Module:
    def __init__(self, name: str) -> None:
        self.name = name


class OtherRank:
    """What the other rank answers: by default it does as this one. `names` are the exchanges in their order."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.answers: Callable[[str, Array], Array] = lambda _, mine: mine

    def allreduce(self, mine: Array, *, name: str, **_: Any) -> Tensor:
        self.names.append(name)
        return tensor((mine + self.answers(name, mine)) / 2)

    def allgather(self, mine: Array, *, name: str, **_: Any) -> Tensor:
        self.names.append(name)
        return tensor(np.concatenate([mine, self.answers(name, mine)]), INT32)


def modules(other: OtherRank) -> dict[str, ModuleType]:
    """Return the modules that kit_topk imports."""
    tf, hvd, horovod = ModuleType("tensorflow"), ModuleType("horovod.tensorflow"), ModuleType("horovod")
    vars(hvd).update(size=lambda: 2, Average=None, allreduce=other.allreduce, allgather=other.allgather)
    vars(horovod).update(tensorflow=hvd)
    vars(tf).update(
        float32=FLOAT32,
        int32=INT32,
        int64=INT64,
        Module=Module,
        Variable=lambda values, dtype=FLOAT32, **_: tensor(values, dtype),
        IndexedSlices=lambda values, places: (values, places),
        abs=np.abs,
        bitcast=lambda values, kind: np.asarray(values).view(kind.of).view(Tensor),
        concat=lambda rows, axis: np.concatenate(rows, axis).view(Tensor),
        cond=lambda choice, one, two: one() if choice else two(),
        convert_to_tensor=tensor,
        equal=np.equal,
        gather=lambda values, places: values[places],
        reduce_all=np.all,
        reshape=np.reshape,
        split=_split,
        tensor_scatter_nd_add=_added,
        where=lambda choice, one, two: tensor(np.where(choice, one, two)),
        zeros=lambda shape: tensor(np.zeros(shape)),
        zeros_like=lambda values: tensor(np.zeros(values.shape)),
    )
    tf.math = type("math", (), {"is_finite": np.isfinite, "top_k": _top_k})  # type: ignore[attr-defined]
    return {"tensorflow": tf, "horovod": horovod, "horovod.tensorflow": hvd}


def _split(values: Array, sizes: Sequence[int]) -> list[Array]:
    return np.split(values, np.cumsum(sizes)[:-1])


def _added(values: Tensor, places: Array, more: Array) -> Tensor:
    total = values.copy()
    np.add.at(total, np.asarray(places)[:, 0], more)
    return total


def _top_k(values: Array, k: int, **_: Any) -> Any:
    places = np.argsort(-np.asarray(values), kind="stable")[:k]
    return type("TopK", (), {"values": values[places], "indices": tensor(places, INT32)})
