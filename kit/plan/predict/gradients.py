"""Gradients of models: from the table images/lib/models.json, a user's file, or a number of parameters. Pure."""

from __future__ import annotations

import json
import re
from typing import Any

from kit.errors import InputError
from kit.model.scaling import Gradients, Layer

# For a model with only a known number of parameters. paced_benchmark does the same (images/lib/kit_gradients.py).
EQUAL_LAYERS = 50
# No real layer has more of anything; a larger number is a typing error.
MOST = 10**18
_UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9}


def named(name: str, table_text: str) -> Gradients:
    """Return the named model of the table. Only letters and digits count: ResNet-50 is resnet50.

    Raises InputError with all names.
    """
    table: dict[str, Any] = json.loads(table_text)
    plain = re.sub("[^a-z0-9]", "", name.lower())
    model = table.get(plain)
    if model is None:
        raise InputError(
            f"--model: '{name}' is not in the table of gradients",
            hint=f"choose one of {', '.join(sorted(table))}; or give --parameters 25.6m, or --gradients FILE",
        )
    return Gradients(model=plain, source=str(model["source"]), layers=_layers(model["layers"]))


def counted(text: str) -> Gradients:
    """Return gradients of this many parameters, in layers of equal size and work. Raises InputError for other text."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([kmb]?)", text.strip().lower(), re.ASCII)
    count = int(float(match[1]) * _UNITS[match[2]]) if match else 0
    if not EQUAL_LAYERS <= count <= 10**12:
        raise InputError(
            f"--parameters '{text}' is not a number of parameters from {EQUAL_LAYERS} to 1000b",
            hint="for example: --parameters 25.6m, or 1.5b",
        )
    sizes = [count // EQUAL_LAYERS + (number < count % EQUAL_LAYERS) for number in range(EQUAL_LAYERS)]
    layers = tuple(Layer(work=1.0, elements=(size,)) for size in sizes)
    return Gradients(model=f"{text} parameters", source=f"{EQUAL_LAYERS} equal layers", layers=layers)


def from_file(text: str, *, file: str) -> Gradients:
    """Return the layers of a gradients file. Raises InputError that shows the expected form."""
    try:
        data = json.loads(text)
        rows = data.get("layers") if isinstance(data, dict) else None
        if not isinstance(rows, list) or not all(isinstance(row, list) and row for row in rows):
            raise ValueError("expected an object whose layers are a list of lists")
        layers = _layers(rows)
        if not any(layer.elements for layer in layers):
            raise ValueError("it has no tensor")
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"this is not a file of gradients: {error}",
            file=file,
            hint='write {"layers": [[multiplications, elements, elements …], …]}, the last layer of the model first',
        ) from error
    return Gradients(model=file, source="your file", layers=layers)


def _layers(rows: list[list[Any]]) -> tuple[Layer, ...]:
    for number, (work, *elements) in enumerate(rows, start=1):
        # JSON's reader accepts Infinity, and the simulation would never end with it.
        if type(work) not in (int, float) or not 0 <= work <= MOST or not all(_is_count(n) for n in elements):
            raise ValueError(
                f"layer {number}: multiplications must be a number ≥ 0, and elements must be whole numbers ≥ 0"
            )
    return tuple(Layer(work=float(work), elements=tuple(elements)) for work, *elements in rows)


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= MOST
