"""What a stager says of a mount, decoded and checked."""

from __future__ import annotations

import json

import pytest

from kit.model.answer import OddAnswer
from kit.model.staging import Hello, Mounted, StagerAnswer, read


def line(**words: object) -> bytes:
    return json.dumps(words).encode()


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ({"mounted": {"already": True}}, StagerAnswer(mounted=Mounted(already=True))),
        ({"mounted": {}}, StagerAnswer(mounted=Mounted())),
        ({"hello": {"version": 1, "mounted": True}}, StagerAnswer(hello=Hello(version=1, mounted=True))),
        # A stager of an older image does not mount.
        ({"hello": {"version": 1}}, StagerAnswer(hello=Hello(version=1, mounted=False))),
    ],
)
def test_a_mount(words: dict[str, object], answer: StagerAnswer) -> None:
    assert read(line(**words)) == answer


@pytest.mark.parametrize(
    "words",
    [
        {"mounted": True},
        {"mounted": {"already": "yes"}},
        {"mounted": {"already": 1}},
        {"hello": {"version": 1, "mounted": "x"}},
    ],
)
def test_an_odd_mount_is_refused(words: dict[str, object]) -> None:
    with pytest.raises(OddAnswer):
        read(line(**words))
