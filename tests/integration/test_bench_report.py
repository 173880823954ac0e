"""Reports of made-up sessions in a real browser: what a person sees on a screen, a phone and paper."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kit.flows.bench.report import load, write
from kit.model import values
from kit.model.bench import Sample, Session
from kit.plan.bench.report.charts import charts
from tests import benchdata
from tests.integration import chromium

# As root there is no sandbox; and nothing of the browser's own may go out.
PHONE, SCREEN = {"width": 375, "height": 812}, {"width": 1280, "height": 900}
# A4 less the margins of the page's style, in CSS pixels.
PAPER = {"width": 680, "height": 1000}
EVIL = """<script>alert(1)</script>"><img src="http://example.invalid/x" onerror="alert(2)">{{ 7*7 }}&amp;'"""


def hostile() -> tuple[Session, Sequence[Sample]]:
    """Whatever hosts and people may call things."""
    session, samples = benchdata.compression()
    cases = tuple(values.replace(case, title=EVIL, series=EVIL, x=f"{case.x}{EVIL}") for case in session.cases)
    failed = benchdata.sample(cases[0].id, 2, {}, failure=EVIL, disturbed=EVIL)
    facts = {"hosts": [{"name": EVIL, "os": EVIL}], EVIL: EVIL}
    return values.replace(session, cluster=EVIL, facts=facts, cases=cases, skipped={EVIL: EVIL}, started=EVIL), [
        *samples,
        failed,
    ]


def long_words() -> tuple[Session, Sequence[Sample]]:
    """Names that nothing can be broken at."""
    session, samples = benchdata.compression()
    word = "fusion-64MB,cycle-1ms," * 6
    cases = tuple(values.replace(case, title=word, series=word, x=f"{case.x}{word}") for case in session.cases)
    return values.replace(session, cluster="c" * 63, facts={"f" * 80: "g" * 300}, cases=cases), samples


def failures() -> tuple[Session, Sequence[Sample]]:
    session, samples = benchdata.egs()
    return session, [
        values.replace(sample, failure="rank 3 on gpu2 ended with signal 9", result={}) for sample in samples
    ]


def interrupted() -> tuple[Session, Sequence[Sample]]:
    session, samples = benchdata.ladder()
    return session, samples[:9]


SESSIONS: dict[str, Callable[[], tuple[Session, Sequence[Sample]]]] = {
    "ladder": benchdata.ladder,
    "egs": benchdata.egs,
    "compression": benchdata.compression,
    "networks": benchdata.networks,
    "many": benchdata.many,
    "failures": failures,
    "interrupted": interrupted,
    "hostile": hostile,
    "long words": long_words,
}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium.browser(tmp_path_factory.mktemp("profile")) as one:
        yield one


@pytest.fixture(params=SESSIONS)
def opened(request: pytest.FixtureRequest, browser: Any, tmp_path: Path) -> Iterator[Any]:
    """A report's page, opened from its file; at the end it must have asked for nothing and complained of nothing."""
    folder = benchdata.write(tmp_path / "session", SESSIONS[request.param]())
    write(folder)
    page = browser.new_page()
    page.folder = folder
    errors: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: errors.append(message.text))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("dialog", lambda dialog: errors.append(dialog.message))
    page.on("dialog", lambda dialog: dialog.dismiss())
    page.on("request", lambda request: requests.append(request.url))
    address = (folder / "report.html").as_uri()
    page.goto(address)
    yield page
    page.close()
    assert errors == []
    assert requests == [address]


def test_it_fits_a_phone_a_screen_and_paper(opened: Any) -> None:
    """No sideways scroll, every chart is drawn once and seen whole, and no two words of a chart lie on each other."""
    expected = len(charts(load(opened.folder)))
    for size, media in (
        (PHONE, "screen"),
        ({"width": 320, "height": 600}, "screen"),
        (SCREEN, "screen"),
        (PAPER, "print"),
    ):
        opened.set_viewport_size(size)
        opened.emulate_media(media=media)
        layout = opened.evaluate(LAID_OUT)
        assert layout["width"] <= size["width"], (size, media)
        assert len(layout["charts"]) == expected
        for chart in layout["charts"]:
            assert chart["drawings"] == 1, chart
            assert chart["width"] >= 250, chart
            assert chart["height"] >= 40, chart
            assert chart["outside"] == [], (size, chart)
            assert chart["overlapping"] == [], (size, chart)


LAID_OUT = """() => {
  const seen = element => { const box = element.getBoundingClientRect(); return box.width > 0 && box.height > 0 }
  const inside = (a, b) => a.left >= b.left - 1 && a.right <= b.right + 1
  const cross = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3
  return {
    width: document.documentElement.scrollWidth,
    charts: [...document.querySelectorAll('figure')].map(figure => {
      const drawings = [...figure.querySelectorAll('svg[role=img]')].filter(seen)
      const page = {left: 0, right: document.documentElement.clientWidth}
      const box = drawings[0]?.getBoundingClientRect() ?? {width: 0, height: 0}
      const words = drawings.flatMap(each => [...each.querySelectorAll('text')]).map(
        each => ({text: each.textContent, box: each.getBoundingClientRect()}))
      return {
        id: figure.id, drawings: drawings.length, width: box.width, height: box.height,
        outside: words.filter(each => !inside(each.box, page)).map(each => each.text),
        overlapping: words.flatMap((one, at) => words.slice(at + 1).filter(other => cross(one.box, other.box))
          .map(other => one.text + ' | ' + other.text)),
      }
    }),
  }
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("opened", ["ladder", "compression"], indirect=True)
def test_everything_can_be_read_in_light_and_dark(opened: Any, scheme: str) -> None:
    """Text has a contrast of 4.5 at least (WCAG 2.2, AA), and what is drawn of 3."""
    opened.emulate_media(color_scheme=scheme)
    pale = opened.evaluate(CONTRAST)
    assert pale["checked"] > 50
    assert pale["found"] == []
    paper = opened.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")


CONTRAST = """() => {
  const parsed = text => { const found = text.match(/[\\d.]+/g); return found ? found.map(Number) : [0, 0, 0, 0] }
  const light = ([r, g, b]) => { const [x, y, z] = [r, g, b].map(v => v / 255).map(
    v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * x + 0.7152 * y + 0.0722 * z }
  const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((m, n) => n - m); return (x + 0.05) / (y + 0.05) }
  const behind = element => {
    for (let at = element; at; at = at.parentElement) {
      const color = parsed(getComputedStyle(at).backgroundColor)
      if (color.length < 4 || color[3] > 0) return color
    }
    return [255, 255, 255]
  }
  const found = []
  let checked = 0
  const check = (element, color, least) => {
    checked += 1
    const value = ratio(parsed(color), behind(element))
    const name = element.className?.baseVal ?? element.className
    if (value < least) found.push(`${element.tagName}.${name} ${value.toFixed(2)}`)
  }
  for (const element of document.body.querySelectorAll('*')) {
    const style = getComputedStyle(element), box = element.getBoundingClientRect()
    if (box.width === 0 && box.height === 0) continue
    if (element.matches('text')) check(element, style.fill, 4.5)
    else if (element.matches('.mark, .bar, .base')) check(element, style.fill, 3)
    else if (element.matches('.line, .spread, .ideal')) check(element, style.stroke, 3)
    else if (!element.closest('svg') && [...element.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()))
      check(element, style.color, 4.5)
  }
  return {checked, found}
}"""


@pytest.mark.parametrize("opened", ["ladder", "compression", "many"], indirect=True)
def test_paper_has_whole_charts(opened: Any, tmp_path: Path) -> None:
    """The first and the last words of each chart are on one page of A4."""
    from pypdf import PdfReader  # noqa: PLC0415

    opened.pdf(path=tmp_path / "report.pdf", prefer_css_page_size=True)
    pages = PdfReader(tmp_path / "report.pdf").pages
    assert len(pages) >= 2
    assert [round(float(side)) for side in pages[0].mediabox[2:]] == [595, 842]
    # Letters may have been drawn joined, and spaces wide.
    texts = [" ".join(unicodedata.normalize("NFKC", page.extract_text()).split()) for page in pages]
    for chart in charts(load(opened.folder)):
        words = [chart.title, chart.y_title, *(bar.label for bar in chart.bars), chart.x_title]
        words += [tick.text for tick in chart.y_ticks]
        assert any(all(word in text for word in words) for text in texts), (chart.title, texts)


@pytest.mark.parametrize("opened", ["hostile"], indirect=True)
def test_names_are_text_and_nothing_else(opened: Any) -> None:
    assert EVIL in opened.evaluate("document.querySelector('h1').textContent")
    assert opened.evaluate("document.querySelectorAll('script, img, iframe, object, link:not([rel=icon])').length") == 0
    assert opened.evaluate("document.title").startswith("Compression on <script>")


@pytest.mark.parametrize("opened", ["ladder"], indirect=True)
def test_it_can_be_read_without_eyes(opened: Any) -> None:
    """Charts say in words what they show, tables have heads, and headings go down one step at a time."""
    descriptions = opened.evaluate(
        "[...document.querySelectorAll('svg[role=img]')].map(each => each.getAttribute('aria-label'))"
    )
    assert descriptions
    assert all(len(text) > 40 for text in descriptions)
    assert opened.evaluate("document.querySelectorAll('th:not([scope])').length") == 0
    levels = opened.evaluate("[...document.querySelectorAll('h1,h2,h3,h4')].map(each => Number(each.tagName[1]))")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    names = opened.evaluate("[...document.querySelectorAll('[id]')].map(each => each.id)")
    assert len(set(names)) == len(names)
    # What scrolls can be scrolled with the keyboard.
    assert opened.evaluate("[...document.querySelectorAll('.scroll')].every(each => each.tabIndex === 0)")
