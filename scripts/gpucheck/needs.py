"""Compares the driver with what the CUDA flavors of kit's image need."""

from __future__ import annotations

import ast
from pathlib import Path


def needs(root: Path) -> dict[str, tuple[str, str]]:
    """Return the CUDA version and the oldest driver of each flavor, as kit/plan/image.py lists them.

    The table is read as text, because that module needs a newer Python than this machine may have.
    """
    for node in ast.parse((root / "kit/plan/image.py").read_text()).body:
        names = [target.id for target in getattr(node, "targets", ()) if isinstance(target, ast.Name)]
        if isinstance(node, ast.Assign) and names == ["CUDA"] and isinstance(node.value, ast.Dict):
            table = {}
            for key, value in zip(node.value.keys, node.value.values):
                assert key is not None
                assert isinstance(value, ast.Call)
                words = [word for word in value.keywords if word.arg in ("cuda", "driver")]
                fields = {word.arg: str(ast.literal_eval(word.value)) for word in words}
                table[str(ast.literal_eval(key))] = (fields["cuda"], fields["driver"])
            return table
    raise LookupError("kit/plan/image.py has no table CUDA")


def numbers(version: str) -> tuple[int, ...]:
    """Return a version such as 525.60.13 as numbers."""
    return tuple(int(word) for word in version.split(".") if word.isdigit())
