"""Where kit metrics gives its metrics, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kit.model.metrics import Exported


def exported(value: Exported) -> str:
    hosts = f"{len(value.hosts)} host{'' if len(value.hosts) == 1 else 's'}"
    return f"{value.url or value.file}: metrics of {hosts}"
