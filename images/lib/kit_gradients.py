"""The table of gradients (models.json, made by scripts/gradient-table), as programs in the image read it.

Layers are [work, elements, ...] in the order in which backward is done with them.
"""

import json
import os
import re

TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "models.json")
EQUAL_LAYERS = 50
UNITS = {"": 1, "k": 1e3, "m": 1e6, "b": 1e9}


def chosen(names, path, parameters):
    """[(name, layers), ...] of names with commas, or of a file, or of a number of parameters.

    Raises ValueError with what to write.
    """
    if path:
        return [(os.path.splitext(os.path.basename(path))[0], from_file(path))]
    if parameters:
        return [(parameters.lower(), equal(parameters))]
    with open(TABLE, encoding="utf-8") as file:
        table = json.load(file)
    found = []
    for name in (names or "resnet50").split(","):
        plain = re.sub("[^a-z0-9]", "", name.lower())
        if plain not in table:
            raise ValueError("no model '%s' in the table of gradients; there are: %s" % (name, " ".join(sorted(table))))
        found.append((plain, table[plain]["layers"]))
    return found


def equal(text):
    """So many parameters in layers of the same size and work."""
    match = re.fullmatch("([0-9]+(?:[.][0-9]+)?)([kmb]?)", text.strip().lower())
    count = int(float(match.group(1)) * UNITS[match.group(2)]) if match else 0
    if not EQUAL_LAYERS <= count <= 10**12:
        raise ValueError("--parameters '%s' is not a number of parameters, such as 25.6m or 1.5b" % text)
    # The first layers take what does not divide.
    return [[1, count // EQUAL_LAYERS + (number < count % EQUAL_LAYERS)] for number in range(EQUAL_LAYERS)]


def from_file(path):
    try:
        with open(path, encoding="utf-8") as file:
            layers = json.load(file)["layers"]
        whole = all(type(n) is int and n >= 0 for layer in layers for n in layer[1:])
        if not (whole and layers and all(layer[0] >= 0 for layer in layers) and any(layer[1:] for layer in layers)):
            raise ValueError("numbers from 0 on, elements whole, at least one tensor")
    except (OSError, ValueError, TypeError, KeyError, IndexError) as error:
        raise ValueError('%s is not a file of gradients, {"layers": [[work, elements, ...], ...]}: %s' % (path, error))
    return layers
