"""kitdata.reports: what a member may report, and that nothing else gets through."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import launcher

reports, wire, source = (launcher.load(f"kitdata.{name}") for name in ("reports", "wire", "source"))

ENTRIES = [source.Entry("a", 3, 5, ""), source.Entry("b/c", 9 << 20, 5, "0" * 32)]
SCOPE = reports.Scope(2, ENTRIES, 3)
GOOD: list[list[Any]] = [
    ["linked"], ["gone", "it was silent"], ["failed", "disk", "its disk failed"], ["at", 0, 1 << 50],
    ["list", [["a", 3, 5], ["b/c", 9 << 20, 5, "0" * 32]]], ["list", []], ["unlisted", "source-lost", "no answer"],
    ["listed"], ["counted", 5, 1 << 60], ["version", "0123456789abcdef", 5, 1 << 60], ["unknown"],
    ["staged", True], ["parts", [[1, [0, 2]]]],
    ["have", {"whole": wire.digits([0], 2), "free": 1, "inodes": (1 << 64) - 1, "gone": 0}],
    ["have", {"whole": "", "free": 1, "inodes": 1, "gone": 0}],
    ["has", 2], ["over", 0], ["wrong", 2, 1], ["rotten", 1, 1], ["unread", 0, "source-lost", "no answer"],
    ["changed", 0, 0, ["a", 4, 6]], ["changed", 0, 1, None], ["sent", 0, 1, 7], ["unsent", 0, 1, False],
    ["broken", 1, 9], ["checked", [[0, None], [1, ["b/c", 1, 1, "0" * 32]]]], ["finished"], ["unfinished", 1],
]  # fmt: skip
BAD: list[Any] = [
    None, {}, "has", [], [[]], [{}], ["stop"], ["other"], ["has"], ["has", 0, 0], ["has", 3], ["has", -1],
    ["has", True],
    ["has", 1.0], ["has", "1"], ["at", 1, None], ["wrong", 0, 2], ["sent", 0, 2, 1], ["sent", 0, 1, (1 << 50) + 1],
    ["unsent", 0, 1, 1], ["broken", -1, 1], ["failed", "disk", "x" * 10_001], ["failed", 1, "x"], ["staged", 1],
    ["list", [["a", -1, 0]]], ["list", {"a": 1}], ["list", [None]], ["parts", [[1, [3]]]], ["parts", [[2, [0]]]],
    ["parts", [[1]]], ["have", []], ["have", {}], ["have", {"whole": "zz", "free": 1, "inodes": 1, "gone": 1}],
    ["have", {"whole": wire.digits([2], 3), "free": 1, "inodes": 1, "gone": 1}],
    ["have", {"whole": 5, "free": 1, "inodes": 1, "gone": 1}],
    ["have", {"whole": "", "free": -1, "inodes": 1, "gone": 1}],
    ["changed", 0, 0, ["../a", 4, 6]], ["changed", 0, 0, ["b/c", 4, 6]], ["checked", [[0, ["b/c", 4, 6]]]],
    ["checked", [[0]]], ["checked", [[2, None]]], ["counted", 1], ["counted", 1, (1 << 60) + 1], ["unknown", 1],
    ["version", "0123456789abcdeF", 1, 1], ["version", "0", 1, 1], ["version", 5, 1, 1], ["version", "0" * 16, -1, 1],
]  # fmt: skip


@pytest.mark.parametrize("report", GOOD, ids=repr)
def test_a_report_as_members_send_it_gets_through(report: list[Any]) -> None:
    word, values = reports.checked(report, SCOPE)
    assert word == reports.word_of(report) == report[0]
    assert len(values) == len(report) - 1


@pytest.mark.parametrize("report", BAD, ids=repr)
def test_a_report_that_cannot_be_is_refused(report: Any) -> None:
    with pytest.raises(wire.Broken):
        reports.checked(report, SCOPE)


def test_a_path_of_the_source_that_no_file_may_have_is_the_fault_of_the_source() -> None:
    with pytest.raises(source.SourceError) as raised:
        reports.checked(["list", [["../a", 1, 1]]], SCOPE)
    assert raised.value.kind == "source-name"


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 4)
    | st.floats(allow_nan=False)
    | st.sampled_from(["", "a", "b/c", "ff"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["whole", "free", "inodes"]), inner),
    max_leaves=8,
)


@given(st.one_of(VALUES, st.tuples(st.sampled_from([good[0] for good in GOOD]), st.lists(VALUES, max_size=4))))
def test_any_json_gets_through_with_numbers_that_exist_or_is_refused(value: Any) -> None:
    report = [value[0], *value[1]] if isinstance(value, tuple) else value
    try:
        word, values = reports.checked(report, SCOPE)
    except wire.Broken:
        return
    except source.SourceError:
        assert report[0] == "list"
        return
    if word in ("has", "over", "wrong", "rotten", "unread", "changed", "sent", "unsent"):
        assert values[0] in range(3)
