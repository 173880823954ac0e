"""In which order the hosts of a run have its ranks (kit.plan.run.numbering)."""

from __future__ import annotations

from typing import Any

import pytest

from kit.model.run import Place, RunRecord
from kit.model.values import replace
from kit.plan.run.numbering import by_rank, was_reset

PLACES = tuple(Place(node=f"gpu{n}", address=f"10.0.0.{n}", ranks=2) for n in (9, 10, 11))
RUN = RunRecord(id="20261121-101500-3fa2", cluster="lab", image="", command=("true",), places=PLACES)
OUT = [{"node": "gpu9", "out": True}, {"node": "gpu10"}, {"node": "gpu11", "leaving": True}]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ["gpu9", "gpu10", "gpu11"]),
        # Of an earlier kit.
        ({"options": None}, ["gpu9", "gpu10", "gpu11"]),
        ({"options": {"launcher": "mpi"}}, ["gpu9", "gpu10", "gpu11"]),
        # As text, 10.0.0.10 comes before 10.0.0.9.
        ({"options": {"launcher": "torchrun"}}, ["gpu10", "gpu11", "gpu9"]),
        ({"options": {"launcher": "elastic"}, "places": OUT}, ["gpu10", "gpu11"]),
        # It waits for hosts.
        ({"places": [{"node": place.node, "out": True} for place in PLACES]}, ["gpu9", "gpu10", "gpu11"]),
    ],
)
def test_each_launcher_numbers_hosts_in_its_own_order(fields: dict[str, Any], expected: list[str]) -> None:
    assert [place.node for place in by_rank(RUN, fields)] == expected


@pytest.mark.parametrize(
    ("fields", "most_np", "expected"),
    [
        ({"elastic": {"min_np": 1}, "places": [{"node": "gpu9"}]}, 6, False),
        ({"elastic": {"min_np": 1}, "places": OUT}, 6, True),
        ({"elastic": {"min_np": 1}, "places": [{"node": "gpu9", "env": {"KIT_HELD_SLOTS": "gpu9=0"}}]}, 6, True),
        # A host was dropped.
        ({"elastic": {"min_np": 1}}, 8, True),
        ({"places": OUT}, 8, False),
    ],
    ids=["as it began", "one is out", "one came", "one left", "not elastic"],
)
def test_hosts_that_came_or_left_show_that_ranks_have_other_numbers(
    fields: dict[str, Any], most_np: int, *, expected: bool
) -> None:
    assert was_reset(replace(RUN, most_np=most_np), fields) == expected
