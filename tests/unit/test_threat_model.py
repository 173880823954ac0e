"""docs/threat-model.md names tests that exist, and every test that attacks a border."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.security import openings
from tests.security.openings import Opening

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "threat-model.md"


def rows() -> list[list[str]]:
    """Return the cells of each row of the table of borders."""
    section = PAGE.read_text().partition("## The borders and their tests")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]


def named(cell: str) -> set[Path]:
    return {(PAGE.parent / link).resolve() for link in re.findall(r"\]\(([^)]+)\)", cell)}


def test_each_border_has_a_test_that_exists() -> None:
    assert len(rows()) >= 10
    for cells in rows():
        assert len(cells) == 3, cells
        files = named(cells[2])
        assert files, f"no test: {cells[0]}"
        assert [file for file in files if not file.is_file()] == [], cells[0]


def test_each_test_that_attacks_a_border_is_in_the_table() -> None:
    """If this fails: add the file to the row of its border, or add a row."""
    listed = set[Path]().union(*(named(cells[2]) for cells in rows()))
    attacks = {*(ROOT / "tests" / "security").glob("test_*.py")}
    assert attacks
    assert sorted(file.name for file in attacks - listed) == []


@pytest.mark.parametrize("opening", openings.openings(), ids=lambda one: one.what)
def test_each_opening_can_still_be_made(opening: Opening) -> None:
    """scripts/open-borders makes them, and sees whether the tests fail."""
    assert openings.border_of(opening, openings.borders())
    text = (ROOT / opening.file).read_text()
    assert text.count(opening.old) == 1, f"change the opening with {opening.file}: {opening.old!r}"
    assert opening.new != opening.old
    files = [ROOT / "tests" / word.partition("::")[0] for word in opening.tests if "/" in word]
    assert files
    assert all(file.is_file() for file in files), opening.tests
