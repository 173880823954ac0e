"""The mark of texts about GPUs that a lab pretends."""

from __future__ import annotations

import pytest

from kit.model.pretended import marked, pretended

H200, LAB = "NVIDIA H200", "NVIDIA H200 (PRETENDED)"


@pytest.mark.parametrize(
    ("text", "models", "expected"),
    [
        ("GPU 0", [LAB], "GPU 0 (PRETENDED)"),
        ("GPU 0", [H200, LAB], "GPU 0 (PRETENDED)"),
        ("GPU 0", [H200], "GPU 0"),
        ("GPU 0", [], "GPU 0"),
        # Once is enough, and nothing stays nothing.
        (f"2 × {LAB}", [LAB], f"2 × {LAB}"),
        ("", [LAB], ""),
    ],
)
def test_the_mark(text: str, models: list[str], expected: str) -> None:
    assert marked(text, models) == expected


def test_one_pretended_gpu_among_others() -> None:
    assert pretended([H200, LAB])
    assert not pretended([H200])
