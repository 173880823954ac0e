"""What tests of the head's programs share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.head import Head

MakeHead = Callable[..., Head]


@pytest.fixture
def make_head(tmp_path: Path) -> Iterator[MakeHead]:
    heads: list[Head] = []

    def make(**values: Any) -> Head:
        folder = tmp_path / f"head{len(heads)}"
        folder.mkdir()
        heads.append(Head(folder, **values))
        return heads[-1]

    yield make
    for each in heads:
        each.close()


@pytest.fixture
def head(make_head: MakeHead) -> Head:
    return make_head()
