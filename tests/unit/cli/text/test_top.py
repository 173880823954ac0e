"""kit top's screens as text, at several widths. After a change that is meant: KIT_UPDATE_GOLDEN=1."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.cli.screen.cells import cells
from kit.cli.text import top_tables
from kit.cli.text.top import Head, page, whole
from kit.cli.text.top_cells import Line, cropped, fit, text_of
from kit.cli.text.top_tables import plain
from kit.errors import StepError
from kit.model.pretended import MARK
from kit.model.values import replace
from kit.model.watch import Seen
from kit.plan.watch.rows import History, Tables, tables
from kit.plan.watch.state import Choice, pressed
from tests.fakes.readings import LAST, RUN, cluster, gpu, rank, reading

ROOT = Path(__file__).resolve().parents[4]
GOLDEN = ROOT / "tests" / "golden" / "top"
HEAD = Head(cluster="train", clock="10:15:42", note=f"run {RUN}: 4 ranks")


def rows() -> Tables:
    seen, history = cluster()
    return tables(seen, history, run=RUN, last=LAST)


@pytest.mark.parametrize(
    ("name", "size", "keys"),
    [
        ("80", (80, 30), ()),
        ("200", (200, 30), ()),
        ("80-gpus-by-temperature", (80, 24), ("tab", "T")),
        ("80-help", (80, 24), ("h",)),
        ("80-filter", (80, 24), ("\\", "g", "p", "u", "2")),
        ("40-low", (40, 10), ("tab", "tab", "end")),
    ],
)
def test_screens(name: str, size: tuple[int, int], keys: tuple[str, ...]) -> None:
    choice = Choice()
    for key in keys:
        choice = pressed(choice, key)
    lines = page(HEAD, rows(), choice, size).lines
    text = text_of(lines) + "\n"
    assert len(lines) == size[1]
    assert max(cells(line) for line in text.splitlines()) <= size[0]
    compare(name, text)


@pytest.mark.parametrize("width", [80, 200])
def test_once(width: int) -> None:
    compare(f"once-{width}", text_of(whole(HEAD, rows(), width)) + "\n")


def compare(name: str, text: str) -> None:
    golden = GOLDEN / f"{name}.txt"
    if os.environ.get("KIT_UPDATE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()


@pytest.mark.parametrize("name", ["80", "200"])
def test_the_documentation_shows_these_screens(name: str) -> None:
    assert (GOLDEN / f"{name}.txt").read_text().rstrip() in (ROOT / "docs" / "top.md").read_text()


@pytest.mark.parametrize("width", [40, 80, 109, 110, 200])
def test_the_first_line_says_that_gpus_are_pretended(width: int) -> None:
    seen, history = cluster()
    lab = [
        replace(one, reading=replace(one.reading, gpus=tuple(replace(g, name=f"{g.name} {MARK}") for g in gpus)))
        if one.reading and (gpus := one.reading.gpus)
        else one
        for one in seen
    ]
    everything = tables(tuple(lab), history, run=RUN, last=LAST)
    for lines in (whole(HEAD, everything, width), page(HEAD, everything, Choice(), (width, 24)).lines):
        assert text_of(lines).splitlines()[0].startswith(f"kit top  GPUs {MARK}  train: ")
    assert MARK not in text_of(whole(HEAD, rows(), width))


def test_no_hosts_yet_and_a_tiny_screen() -> None:
    empty = tables((), History())
    assert "0 hosts" in text_of(page(HEAD, empty, Choice(), (80, 24)).lines)
    for size in ((1, 1), (10, 3), (200, 2)):
        assert len(page(HEAD, rows(), Choice(), size).lines) == size[1]


def test_after_the_end_comes_the_row_before() -> None:
    choice = pressed(pressed(Choice(section="ranks"), "end"), "tab")
    assert page(HEAD, rows(), pressed(Choice(section="ranks"), "end"), (80, 10)).first == 3
    assert page(HEAD, rows(), choice, (80, 10)).first == 0


def test_a_screen_makes_only_the_rows_that_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 1,000 hosts, each key would take seconds."""
    made: list[Line] = []
    joined = top_tables._joined

    def counted(*words: Any) -> Line:
        made.append(joined(*words))
        return made[-1]

    monkeypatch.setattr(top_tables, "_joined", counted)
    hosts = [Seen(host=f"gpu{n}", reading=reading(gpus=(gpu(0),)), age=0.4, number=7) for n in range(1, 1001)]
    everything = tables(tuple(hosts), History())
    choice = pressed(Choice(), "pagedown")
    lines = page(HEAD, everything, choice, (80, 24)).lines
    assert len(made) <= len(lines) == 24
    # All lines are where they would be among all rows.
    everybody = text_of(whole(HEAD, everything, 80)).splitlines()
    shown = [line for line in text_of(lines).splitlines() if line.startswith("gpu")]
    assert len(shown) > 10
    assert set(shown) <= set(everybody)


def test_what_a_rank_prints_reaches_no_terminal() -> None:
    text = text_of(whole(HEAD, rows(), 200))
    assert text.replace("\n", "").isprintable()
    assert "WARNING reading shard 17 took 4.2 s of the data set" in text
    assert plain("a\x1b[2Jb\u202ec") == "ab\\u202ec"


def test_names_of_a_host_reach_no_terminal() -> None:
    odd = "a\x1b]52;c;x\x07\u202e\nb"
    ranks = (rank(0, wchan=odd, allowed=odd, comm=odd, state=odd),)
    host = reading(gpus=(gpu(0, name=odd, uuid=odd, throttle=(odd,)),), ranks=ranks)
    lost = StepError(odd, hint="look at the host: kit ssh gpu2", host="gpu2")
    one = (Seen(host="gpu1", reading=host, age=0.4, number=7), Seen(host="gpu2", reading=None, age=0.0, error=lost))
    text = text_of(whole(Head(cluster=odd, clock="10:15:42"), tables(one, History(), run=RUN, last={0: odd}), 250))
    assert text.replace("\n", "").isprintable()
    assert text.count("\\x1b]52;c;x") >= 4


def test_without_blocks() -> None:
    assert text_of(whole(HEAD, rows(), 80, ascii_only=True)).replace("验证集", "").replace("准确率", "").isascii()


def test_colors_of_pieces() -> None:
    painted = text_of(whole(HEAD, rows(), 80), lambda text, style: f"<{style}>{text}")
    assert "<red>  no SSH connection" in painted
    assert "<yellow> 140" in painted
    assert "<red>heat" in painted


@given(st.text(max_size=30), st.integers(1, 30), st.booleans())
def test_a_cell_has_its_width(text: str, width: int, right: bool) -> None:
    shown = plain(text)
    assert cells(fit(shown, width, right=right)) == width


@given(st.lists(st.text(max_size=20).map(plain), max_size=5), st.integers(0, 40))
def test_a_line_has_at_most_its_width(texts: list[str], width: int) -> None:
    line: Line = tuple((text, None) for text in texts)
    assert cells(text_of([cropped(line, width)])) <= width
