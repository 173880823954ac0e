"""Gives metrics to Prometheus, by its own client library: over HTTP, as a file, or as text."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prometheus_client import generate_latest, start_http_server, write_to_textfile
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector, CollectorRegistry

from kit.errors import StepError
from kit.model.metrics import Family

Now = Callable[[], Iterable[Family]]


class _Collected(Collector):
    def __init__(self, now: Now) -> None:
        self._now = now

    def collect(self) -> Iterator[Any]:
        for family in self._now():
            metric = family.metric
            kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            made = kind(metric.name.removesuffix("_total"), metric.help, labels=metric.labels)
            for labels, value in family.samples:
                made.add_metric(labels, value)
            yield made


def registry(now: Now) -> CollectorRegistry:
    """Return a registry that asks `now` for each scrape. It has nothing else, such as metrics of kit's own process."""
    made = CollectorRegistry(auto_describe=False)
    made.register(_Collected(now))
    return made


def text(now: Now) -> str:
    """Return the metrics in Prometheus' text format."""
    return generate_latest(registry(now)).decode()


def write(now: Now, file: Path) -> None:
    """Replace the file by the metrics. A reader sees the old ones or the new ones. Raises StepError."""
    try:
        write_to_textfile(str(file), registry(now))
    except OSError as error:
        raise StepError(
            f"{file} cannot be written: {error.strerror}", hint="choose another: --textfile FILE"
        ) from error


@contextmanager
def served(now: Now, address: str, port: int) -> Iterator[int]:
    """Serve the metrics at http://address:port/metrics. Yield the port: that of the system for port 0.

    Raises StepError if this machine cannot listen there.
    """
    try:
        server, thread = start_http_server(port, address, registry(now))
    except OSError as error:
        raise StepError(
            f"this machine cannot listen on {address}:{port}: {error.strerror or error}",
            hint="choose another address: --listen 127.0.0.1:9401",
        ) from error
    try:
        yield server.server_port
    finally:
        # Its loop ends in half a second. Ctrl-C need not wait for that.
        threading.Thread(target=server.shutdown, daemon=True).start()
        server.server_close()
        thread.join(2)
