"""docs/swarm.md has the table of properties that the integration tests compare."""

from __future__ import annotations

from tests.integration import properties


def test_the_table_is_written_from_the_rows() -> None:
    text = properties.PAGE.read_text()
    assert text == properties.page(text), "the page is stale; run: python -m tests.integration.properties"


def test_each_property_occurs_once() -> None:
    paths = [row.path for row in properties.ROWS]
    assert len(paths) == len(set(paths))


def test_what_differs_is_found_whatever_its_form() -> None:
    one = {"A": {"B": [], "C": "x", "D": 0}, "Id": "1", "L": [{"Name": "b"}, {"Name": "a"}]}
    other = {"A": {"B": None, "C": "y"}, "Id": "2", "L": [{"Name": "a"}, {"Name": "b"}]}
    assert properties.compared(one, other) == {"A.C": ("x", "y")}
