"""Reads the table of gradients (models.json, written by scripts/gradient-table) for programs in the image.

Layers are [work, elements, ...] in the order in which the backward pass finishes them.
"""

import json
import os
import re
from typing import Any, List, Optional, Tuple

TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "models.json")
EQUAL_LAYERS = 50
# [work, elements, ...] of each layer.
Layers = List[List[Any]]
UNITS = {"": 1, "k": 1e3, "m": 1e6, "b": 1e9}


def chosen(names: Optional[str], path: Optional[str], parameters: Optional[str]) -> List[Tuple[str, Layers]]:
    """Return [(name, layers), ...] of names with commas, of a file, or of a number of parameters.

    Raises ValueError, whose text says what to write instead.
    """
    if path:
        return [(os.path.splitext(os.path.basename(path))[0], from_file(path))]
    if parameters:
        return [(parameters.lower(), equal(parameters))]
    with open(TABLE, encoding="utf-8") as file:
        table = json.load(file)
    models = []
    for name in (names or "resnet50").split(","):
        plain = re.sub("[^a-z0-9]", "", name.lower())
        if plain not in table:
            raise ValueError("no model '%s' in the table of gradients; there are: %s" % (name, " ".join(sorted(table))))
        models.append((plain, table[plain]["layers"]))
    return models


def equal(text: str) -> Layers:
    """Return this number of parameters, such as 25.6m, in layers of the same size and work."""
    match = re.fullmatch("([0-9]+(?:[.][0-9]+)?)([kmb]?)", text.strip().lower())
    count = int(float(match.group(1)) * UNITS[match.group(2)]) if match else 0
    if not EQUAL_LAYERS <= count <= 10**12:
        raise ValueError("--parameters '%s' is not a number of parameters, such as 25.6m or 1.5b" % text)
    # The first layers take the remainder.
    return [[1, count // EQUAL_LAYERS + (number < count % EQUAL_LAYERS)] for number in range(EQUAL_LAYERS)]


def from_file(path: str) -> Layers:
    try:
        with open(path, encoding="utf-8") as file:
            layers = json.load(file)["layers"]
        whole = all(type(n) is int and n >= 0 for layer in layers for n in layer[1:])
        if not (whole and layers and all(layer[0] >= 0 for layer in layers) and any(layer[1:] for layer in layers)):
            raise ValueError("numbers from 0 on, elements whole, at least one tensor")
    except (OSError, ValueError, TypeError, KeyError, IndexError) as error:
        message = '%s is not a file of gradients, {"layers": [[work, elements, ...], ...]}: %s'
        raise ValueError(message % (path, error)) from None
    return list(layers)
