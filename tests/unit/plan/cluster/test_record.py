"""cluster.json there and back, and what it says when it cannot be read."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.errors import NotReadyError
from kit.model.launch import ClusterRecord, Node
from kit.model.values import asdict
from kit.plan.cluster.record import from_text, to_text

TEXT = st.text(max_size=20)
NODES = st.builds(Node, name=TEXT, address=TEXT, slots=st.integers(1, 64), cores=st.integers(0, 512))
RECORDS = st.builds(
    ClusterRecord,
    name=TEXT,
    image=TEXT,
    network=TEXT,
    ssh_port=st.integers(1, 65535),
    nodes=st.lists(NODES, max_size=5).map(tuple),
    head_runs_ranks=st.booleans(),
    settings=st.dictionaries(TEXT, st.one_of(st.none(), TEXT, st.integers(), st.lists(TEXT, max_size=2)), max_size=3),
)


@given(RECORDS)
def test_there_and_back(record: ClusterRecord) -> None:
    assert from_text(to_text(record)) == record


@given(RECORDS)
def test_it_is_the_json_that_json_writes(record: ClusterRecord) -> None:
    """A cluster that an earlier kit deployed must not look changed."""
    assert to_text(record) == json.dumps({"kit": 1, **asdict(record)}, indent=1) + "\n"


@given(RECORDS)
def test_no_line_of_it_looks_like_a_section_of_the_observation(record: ClusterRecord) -> None:
    assert not any(line.startswith("@@") for line in to_text(record).splitlines())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        # A cluster made by hand (compose/README.md).
        ("", "the head has no record"),
        ("{", "cannot be read"),
        ("[]", "cannot be read"),
        ("null", "cannot be read"),
        ("{}", "cannot be read"),
        ('{"kit": 1}', "cannot be read"),
        ('{"kit": 1, "nodes": 3}', "cannot be read"),
        ('{"kit": 1, "nodes": [{"nam": "x"}]}', "cannot be read"),
        ('{"kit": 0, "nodes": []}', "another version of kit"),
    ],
)
def test_what_cannot_be_read(text: str, message: str) -> None:
    with pytest.raises(NotReadyError) as caught:
        from_text(text)
    assert message in caught.value.message
    assert caught.value.hint == "run: kit deploy"


def test_the_record_of_a_newer_kit_asks_for_a_newer_kit() -> None:
    with pytest.raises(NotReadyError) as caught:
        from_text('{"kit": 2, "nodes": []}')
    assert (caught.value.message, caught.value.hint) == (
        "a newer kit deployed the cluster", "update kit on this machine",
    )  # fmt: skip
