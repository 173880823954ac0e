"""Metrics for Prometheus, and where kit metrics gives them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# The values of a metric's labels, or their names, in the order of the metric.
Labels = tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Address:
    """An address of this machine, and a port; 0 for any free one."""

    host: str
    port: int

    def shown(self, port: int) -> str:
        """Return it with this port, as in an URL."""
        return f"[{self.host}]:{port}" if ":" in self.host else f"{self.host}:{port}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Exported:
    """Where the metrics of these hosts are: the URL to scrape, or the file."""

    hosts: tuple[str, ...]
    url: str = ""
    file: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """A metric: its full name, and the names of its labels in the order of their values."""

    name: str
    kind: Literal["gauge", "counter"]
    help: str
    labels: Labels


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """A metric with its samples: the values of its labels, and a number."""

    metric: Metric
    samples: tuple[tuple[Labels, float], ...]
