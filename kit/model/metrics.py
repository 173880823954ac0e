"""Metrics for Prometheus, and where kit metrics gives them."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

# The values of a metric's labels, or their names, in the order of the metric.
Labels = tuple[str, ...]


class Address(Struct, frozen=True, kw_only=True):
    """An address of this machine, and a port; 0 for any free one."""

    host: str
    port: int

    def shown(self, port: int) -> str:
        """Return it with this port, as in an URL."""
        return f"[{self.host}]:{port}" if ":" in self.host else f"{self.host}:{port}"


class Exported(Struct, frozen=True, kw_only=True):
    """Where the metrics of these hosts are: the URL to scrape, or the file."""

    hosts: tuple[str, ...]
    url: str = ""
    file: str = ""


class Metric(Struct, frozen=True, kw_only=True):
    """A metric: its full name, and the names of its labels in the order of their values."""

    name: str
    kind: Literal["gauge", "counter"]
    help: str
    labels: Labels


class Family(Struct, frozen=True, kw_only=True):
    """A metric with its samples: the values of its labels, and a number."""

    metric: Metric
    samples: tuple[tuple[Labels, float], ...]
