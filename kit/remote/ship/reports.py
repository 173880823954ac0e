"""What a porter reports, decoded and checked. The host may be one that somebody broke into."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from kit.model.answer import OddAnswer, decode
from kit.remote.ship.porter.names import is_digest
from kit.remote.ship.porter.wire import MOST_LAYERS, MOST_SIZE

# The longest line. That of a source has the whole config of an image.
MOST_LINE = 4 << 20
# The longest text that goes into a message.
_MOST_TEXT = 4000
_MOST_PORT = 65535
# A week. A load takes minutes.
_MOST_SECONDS = 7 * 24 * 3600.0


class Ready(Struct, frozen=True, kw_only=True):
    """A porter is there: its port, the layers that it needs with the bytes it has, how many its engine has."""

    port: int
    need: dict[str, int]
    held: int


class Inspected(Struct, frozen=True, kw_only=True):
    """An image of a source's engine: config as JSON, layers, and the bytes that each step of the build added."""

    config: str
    layers: list[str]
    sizes: list[int]
    size: int = 0


class Packed(Struct, frozen=True, kw_only=True):
    """A snapshot of a source's store, as a pack of `size` bytes."""

    sha256: str
    size: int


class Report(Struct, frozen=True, kw_only=True):
    """One report of a porter. `kit.remote.ship.porter.main` lists them."""

    ready: Ready | None = None
    inspected: Inspected | None = None
    packed: Packed | None = None
    waits: bool = False
    entered: bool = False
    ask: dict[str, int] | None = None
    serial: int = 0
    at: int | None = None
    lost: str | None = None
    turn: int = 0
    corrupt: str | None = None
    received: bool = False
    done: bool = False
    load_s: float = 0.0
    failed: str | None = None
    kind: str = ""


def read(line: bytes) -> Report:
    """Return the report of one line. Raises OddAnswer."""
    report: Report = decode(line, Report, most=MOST_LINE)
    numbers = (report.serial, report.turn, report.at or 0)
    if not all(_is_size(number) for number in numbers):
        raise OddAnswer("a number is out of range", line)
    if not 0.0 <= report.load_s <= _MOST_SECONDS:
        raise OddAnswer("the seconds are out of range", line)
    if report.corrupt is not None and not is_digest(report.corrupt):
        raise OddAnswer("a layer is no SHA-256", line)
    if max(len(report.failed or ""), len(report.lost or ""), len(report.kind)) > _MOST_TEXT:
        raise OddAnswer("a text is too long", line)
    if report.ask is not None:
        _check_need(report.ask, line)
    if report.ready is not None:
        _check_need(report.ready.need, line)
        if not (0 <= report.ready.port <= _MOST_PORT and 0 <= report.ready.held <= MOST_LAYERS):
            raise OddAnswer("the port or a count is out of range", line)
    if report.packed is not None:
        _check_need({report.packed.sha256: report.packed.size}, line)
    if report.inspected is not None:
        _check_image(report.inspected, line)
    return report


def _check_need(need: Mapping[str, int], line: bytes) -> None:
    if len(need) > MOST_LAYERS or not all(is_digest(layer) for layer in need):
        raise OddAnswer("a layer is no SHA-256", line)
    if not all(_is_size(at) for at in need.values()):
        raise OddAnswer("a number is out of range", line)


def _check_image(image: Inspected, line: bytes) -> None:
    if len(image.layers) > MOST_LAYERS or not all(is_digest(layer) for layer in image.layers):
        raise OddAnswer("a layer is no SHA-256", line)
    if not all(_is_size(size) for size in (image.size, *image.sizes)):
        raise OddAnswer("a size is out of range", line)
    _check_config(image.config, image.layers)


def _check_config(config: str, layers: Sequence[str]) -> None:
    """Check that the config is that of an image of these layers: other hosts' engines get both."""
    try:
        value: Any = json.loads(config)
    except (ValueError, RecursionError):
        raise OddAnswer("the image's config is not JSON", config) from None
    root = value.get("rootfs") if isinstance(value, dict) else None
    if not isinstance(root, dict) or root.get("diff_ids") != ["sha256:" + layer for layer in layers]:
        raise OddAnswer("the image's config names other layers", config)


def _is_size(number: int) -> bool:
    return 0 <= number <= MOST_SIZE
