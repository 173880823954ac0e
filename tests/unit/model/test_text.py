"""Names of hosts, folded for reading and unfolded as the hosts file does it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.config.hostrange import expand
from kit.model.text import fold


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        ([], ""),
        (["head"], "head"),
        (["gpu1"], "gpu1"),
        (["gpu1", "gpu2", "gpu3", "gpu5"], "gpu[1-3,5]"),
        (["gpu08", "gpu09", "gpu10", "gpu11"], "gpu[08-11]"),
        (["gpu8", "gpu9", "gpu10"], "gpu[8-10]"),
        (["gpu0", "gpu1", "gpu10"], "gpu[0-1,10]"),
        (["gpu1", "gpu01"], "gpu1,gpu01"),
        (["10.0.0.4", "10.0.0.5"], "10.0.0.[4-5]"),
        (["a1.x", "a2.x", "b1.x", "head"], "a[1-2].x,b1.x,head"),
        (["gpu3", "gpu1", "gpu2"], "gpu[1-3]"),
    ],
)
def test_fold(names: list[str], folded: str) -> None:
    assert fold(names) == folded


@pytest.mark.parametrize(
    ("names", "most", "folded"),
    [
        (["gpu1", "gpu2", "gpu4", "gpu6", "gpu7"], 2, "gpu[1-2,4] and 2 more"),
        (["gpu1", "gpu2", "gpu4"], 2, "gpu[1-2,4]"),
        (["a", "b", "gpu1", "gpu2"], 1, "a and 3 more"),
        (["a1.x", "b1.x", "b2.x", "c"], 2, "a1.x,b[1-2].x and 1 more"),
    ],
)
def test_fold_names_some_and_counts_the_rest(names: list[str], most: int, folded: str) -> None:
    assert fold(names, most=most) == folded


NAMES = st.from_regex(r"(gpu|10\.0\.|n)[0-9]{1,4}(\.lan)?|head", fullmatch=True)


@given(st.lists(NAMES, unique=True, max_size=40))
def test_folding_loses_and_invents_nothing(names: list[str]) -> None:
    words, depth = [""], 0
    for letter in fold(names):
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth == 0:
            words.append("")
        else:
            words[-1] += letter
    unfolded = [name for word in words if word for name in expand(word, most=10_000)]
    assert sorted(unfolded) == sorted(names)
