"""Gradients of models: from the table images/lib/models.json, a user's file, or a number of parameters. Pure."""

from __future__ import annotations

import json
import re
from typing import Any

from kit.errors import InputError
from kit.model.scaling import Gradients, Layer

# Where only a number of parameters is known; paced_benchmark does the same (images/lib/kit_gradients.py).
EQUAL_LAYERS = 50
# No layer has more of anything: what is beyond is a slip of the pen.
MOST = 10**18
_UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9}


def named(name: str, table_text: str) -> Gradients:
    """The model of the table whose letters and digits are these: ResNet-50 is resnet50. Raises InputError with all."""
    table: dict[str, Any] = json.loads(table_text)
    plain = re.sub("[^a-z0-9]", "", name.lower())
    found = table.get(plain)
    if found is None:
        raise InputError(
            f"--model: there is no '{name}' in the table of gradients",
            hint=f"there are: {', '.join(sorted(table))}; or give --parameters 25.6m, or --gradients FILE",
        )
    return Gradients(model=plain, source=str(found["source"]), layers=_layers(found["layers"]))


def counted(text: str) -> Gradients:
    """So many parameters in layers of equal size and work. Raises InputError where the text is no such number."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([kmb]?)", text.strip().lower(), re.ASCII)
    count = int(float(match[1]) * _UNITS[match[2]]) if match else 0
    if not EQUAL_LAYERS <= count <= 10**12:
        raise InputError(
            f"--parameters '{text}' is not a number of parameters from {EQUAL_LAYERS} to 1000b",
            hint="write, say, --parameters 25.6m, or 1.5b",
        )
    sizes = [count // EQUAL_LAYERS + (number < count % EQUAL_LAYERS) for number in range(EQUAL_LAYERS)]
    layers = tuple(Layer(work=1.0, elements=(size,)) for size in sizes)
    return Gradients(model=f"{text} parameters", source=f"{EQUAL_LAYERS} equal layers", layers=layers)


def from_file(text: str, *, file: str) -> Gradients:
    """The file's layers. Raises InputError with the form that it should have."""
    try:
        data = json.loads(text)
        rows = data.get("layers") if isinstance(data, dict) else None
        if not isinstance(rows, list) or not all(isinstance(row, list) and row for row in rows):
            raise ValueError("it is no object with a list of lists as its layers")
        layers = _layers(rows)
        if not any(layer.elements for layer in layers):
            raise ValueError("it has no tensor")
    except ValueError as error:
        raise InputError(
            f"this is not a file of gradients: {error}",
            file=file,
            hint='write {"layers": [[multiplications, elements, elements …], …]}, the last layer of the model first',
        ) from error
    return Gradients(model=file, source="your file", layers=layers)


def _layers(rows: list[list[Any]]) -> tuple[Layer, ...]:
    for number, (work, *elements) in enumerate(rows, start=1):
        # Infinite is a number to JSON's reader, and a step that never ends to the simulation.
        if type(work) not in (int, float) or not 0 <= work <= MOST or not all(_is_count(n) for n in elements):
            raise ValueError(
                f"layer {number}: multiplications are a number from 0 on, elements are whole numbers from 0 on"
            )
    return tuple(Layer(work=float(work), elements=tuple(elements)) for work, *elements in rows)


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= MOST
