"""What a ship brings: an image, or code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

from kit.model.answer import OddAnswer
from kit.remote.code.limits import MOST_PACK
from kit.remote.ship.faults import CODE, IMAGE, Words
from kit.remote.ship.porter.wire import MOST_SIZE
from kit.remote.ship.reports import Inspected, Report

if TYPE_CHECKING:
    from kit.remote.ship.packs import PackSpool
    from kit.remote.ship.spool import Spool

# For eight million small files.
_TARS = 16 << 30
# Fewer bytes than a new connection costs in time.
_LITTLE = 1 << 20


class Cargo(Struct, frozen=True, kw_only=True):
    """The words of a porter's order `begin`, and where this machine takes the layers from (None: it sends none).

    `sizes` has the bytes that each step of a build added, the last step's first. `bulk`: there are many bytes.
    """

    words: Words
    order: Mapping[str, Any]
    sizes: tuple[int, ...]
    spool: Spool | PackSpool | None = None
    bulk: bool = True


class ImageThere(Struct, frozen=True, kw_only=True):
    """An image of an engine, which has it as `origin`. `question` is the words of a porter's order `inspect` for it."""

    image: str
    origin: str

    @property
    def words(self) -> Words:
        return IMAGE

    @property
    def name(self) -> str:
        return self.image

    @property
    def renewal(self) -> str:
        """The command that makes the image again, or '' for an image that kit does not build.

        Without --force, kit builds nothing if the engine lists the image.
        """
        return "kit image build --builder head --force" if self.origin == self.image else ""

    @property
    def question(self) -> Mapping[str, Any]:
        return {"image": self.origin}

    def cargo(self, report: Report) -> Cargo | None:
        """Return the image as cargo, if this report answers the question."""
        return source_cargo(self.image, report.inspected) if report.inspected else None


class CodeThere(Struct, frozen=True, kw_only=True):
    """A snapshot in the folder `store` of another host. `question` is as of an image.

    All hosts have the snapshot `base`, so that only what differs from it goes; None: everything goes.
    """

    digest: str
    store: str
    base: str | None = None

    @property
    def words(self) -> Words:
        return CODE

    @property
    def name(self) -> str:
        return "the code"

    @property
    def renewal(self) -> str:
        return ""

    @property
    def question(self) -> Mapping[str, Any]:
        return {"code": {"digest": self.digest, "base": self.base, "store": self.store}}

    def cargo(self, report: Report) -> Cargo | None:
        """Return the code as cargo, if this report answers the question. Raises OddAnswer."""
        packed = report.packed
        if packed is None:
            return None
        if packed.size > MOST_PACK:
            raise OddAnswer("its pack is larger than code may be")
        order = {**self.question, "layers": [packed.sha256], "most": packed.size}
        return Cargo(words=CODE, order=order, sizes=(packed.size,))


There: TypeAlias = ImageThere | CodeThere


def image_cargo(image: str, spool: Spool) -> Cargo:
    """Return an image of this machine's engine as cargo."""
    most = most_bytes(spool.sizes, spool.size)
    order = {"image": image, "config": spool.config, "layers": spool.chain, "most": most}
    return Cargo(words=IMAGE, order=order, sizes=tuple(spool.sizes), spool=spool)


def source_cargo(image: str, facts: Inspected) -> Cargo:
    """Return an image of another host's engine as cargo."""
    most = most_bytes(facts.sizes, facts.size)
    order = {"image": image, "config": facts.config, "layers": facts.layers, "most": most}
    return Cargo(words=IMAGE, order=order, sizes=tuple(facts.sizes))


def most_bytes(sizes: Sequence[int], whole: int) -> int:
    """Return how many bytes an image's layers may have, by what the engine reports before they come.

    The engine counts the bytes of files. A layer is a tar, which needs up to 2 kB more a file.
    """
    return min(2 * max(sum(sizes), whole) + _TARS, MOST_SIZE)


def code_cargo(spool: PackSpool, store: str) -> Cargo:
    """Return a pack of code as cargo. Porters unpack it into the folder `store` of their VM."""
    pack = spool.pack
    order: dict[str, Any] = {
        "code": {"digest": pack.digest, "base": pack.base, "store": store},
        "layers": [pack.sha256],
    }
    order["most"] = pack.size
    return Cargo(words=CODE, order=order, sizes=(pack.size,), spool=spool, bulk=pack.size > _LITTLE)
