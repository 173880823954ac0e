"""A secret shows itself in no way but `reveal`."""

from __future__ import annotations

import copy
import json
import pickle

import pytest

from kit.model.plan import WriteFile
from kit.model.secret import Secret
from kit.model.values import asdict

SECRET = Secret(b"opensesame")


@pytest.mark.parametrize("show", [repr, str, format, lambda s: f"{s!r:>40}{s}", lambda s: f"{[s]}{ {'a': s} }", ascii])
def test_nothing_prints_it(show: object) -> None:
    assert "opensesame" not in show(SECRET)  # type: ignore[operator]


def test_a_step_taken_apart_does_not_show_it() -> None:
    step = WriteFile(path="ssh/id_ed25519", content=SECRET, mode="600", why="x")
    assert "opensesame" not in json.dumps(asdict(step), default=str)
    assert "opensesame" not in repr(asdict(step))


def test_it_is_neither_json_nor_pickle() -> None:
    with pytest.raises(TypeError):
        json.dumps(SECRET)
    with pytest.raises(TypeError):
        pickle.dumps(SECRET)


def test_it_is_a_value() -> None:
    assert Secret(b"opensesame") == SECRET == copy.deepcopy(SECRET)
    assert Secret(b"x") != SECRET
    assert hash(Secret(b"opensesame")) == hash(SECRET)
    assert SECRET.reveal() == b"opensesame"
