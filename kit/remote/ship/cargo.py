"""What a ship brings: an image, or code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kit.remote.ship.faults import CODE, IMAGE, Words
from kit.remote.ship.spool import PackSpool, Spool


@dataclass(frozen=True, kw_only=True, slots=True)
class Cargo:
    """The words of a porter's order `begin`, and where this machine takes the layers from (None: it sends none).

    `sizes` has the bytes that each step of a build added, the last step's first.
    """

    words: Words
    order: Mapping[str, Any]
    sizes: tuple[int, ...]
    spool: Spool | PackSpool | None = None


def image_cargo(image: str, spool: Spool) -> Cargo:
    order = {"image": image, "config": spool.config, "layers": spool.chain}
    return Cargo(words=IMAGE, order=order, sizes=tuple(spool.sizes), spool=spool)


def code_cargo(spool: PackSpool, store: str) -> Cargo:
    """Return a pack of code as cargo. Porters unpack it into the folder `store` of their VM."""
    pack = spool.pack
    order = {"code": {"digest": pack.digest, "base": pack.base, "store": store}, "layers": [pack.sha256]}
    return Cargo(words=CODE, order=order, sizes=(pack.size,), spool=spool)
