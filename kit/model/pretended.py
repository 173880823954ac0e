"""Marks texts about GPUs that a lab pretends, so that nobody takes them for those of a real GPU.

kit knows such a GPU by its name, which nvidia-smi of the lab prints (images/lab/pretended/models.py).
"""

from __future__ import annotations

from collections.abc import Iterable

MARK = "(PRETENDED)"


def pretended(models: Iterable[str]) -> bool:
    """Return whether one of these names of GPUs is that of a pretended GPU."""
    return any(MARK in model for model in models)


def gpus_word(models: Iterable[str]) -> str:
    """Return `; GPUs (PRETENDED)` for a title of an output that does not name the GPUs, or ""."""
    return f"; GPUs {MARK}" if pretended(models) else ""


def marked(text: str, models: Iterable[str]) -> str:
    """Return the text with the mark at its end, if one of these GPUs is pretended and the text does not say so."""
    return f"{text} {MARK}" if text and MARK not in text and pretended(models) else text
