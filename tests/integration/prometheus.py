"""A real Prometheus that scrapes kit metrics, and the queries of kit's dashboard."""

from __future__ import annotations

import contextlib
import json
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.integration.conftest import missing
from tests.integration.rig import until
from tests.sockets import free_port

ROOT = Path(__file__).parents[2]
DASHBOARD = json.loads((ROOT / "docs" / "grafana" / "kit.json").read_text())
CONFIG = """
global: {{scrape_interval: 1s}}
scrape_configs:
  - job_name: kit
    static_configs: [{{targets: ["{target}"]}}]
"""


def programs() -> Path:
    """Return the folder of prometheus and promtool."""
    done = subprocess.run([ROOT / "scripts" / "prometheus"], capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        missing("there is no prometheus on this machine", "scripts/prometheus")
    return Path(done.stdout.strip())


class Prometheus:
    """A running server, and its HTTP API."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def get(self, path: str, **words: str) -> Any:
        url = f"{self._url}/api/v1/{path}?{urllib.parse.urlencode(words)}"
        with urllib.request.urlopen(url, timeout=20) as answer:  # noqa: S310  (a test's own address)
            return json.load(answer)["data"]

    def query(self, expr: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.get("query", query=expr)["result"]
        return rows

    def answers(self) -> bool:
        try:
            return bool(self.query("up{job='kit'} == 1"))
        except OSError:
            return False

    def empty_panels(self) -> set[str]:
        """Ask each query of the dashboard. Return the titles of the panels that got no rows."""
        empty = set()
        for panel in DASHBOARD["panels"]:
            for target in panel.get("targets", []):
                expr = target["expr"].replace("$host", ".*").replace("$run", ".*").replace("$__rate_interval", "30s")
                if not self.query(expr):
                    empty.add(panel["title"])
        return empty


@contextlib.contextmanager
def scraping(url: str, folder: Path) -> Iterator[Prometheus]:
    """Start a Prometheus that scrapes this address of kit metrics each second, and wait until it knows rates."""
    (folder / "prometheus.yml").write_text(CONFIG.format(target=url.removeprefix("http://").removesuffix("/metrics")))
    port = free_port("127.0.0.1")
    argv = [
        str(programs() / "prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'db'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "log").open("wb") as log, subprocess.Popen(argv, stdout=log, stderr=log) as process:
        server = Prometheus(port)
        try:
            until("Prometheus has scraped kit metrics", server.answers)
            # A rate needs two scrapes.
            until("it knows rates", lambda: server.query("rate(kit_host_cpu_seconds_total[30s])"))
            yield server
        finally:
            process.terminate()
