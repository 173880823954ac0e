"""Ships an image or code to many hosts: only what they lack, once over this machine's link, from host to host.

A porter on each host (kit.remote.ship.porter) takes layers from the host before it, and passes them on while they come.
kit.remote.ship.lead leads a ship from its turn to its end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from kit.events import Reporter
from kit.remote.ship.cargo import CodeThere, ImageThere, code_cargo
from kit.remote.ship.lanes import Target
from kit.remote.ship.lead import Ship
from kit.remote.ship.result import Shipped
from kit.remote.ship.turn import Turn

if TYPE_CHECKING:
    from kit.model.code import Needed
    from kit.remote.ship.packs import PackSpool


def ship(
    image: str,
    *,
    owner: str,
    targets: Sequence[Target],
    reporter: Reporter,
    source: Target | None = None,
    origin: str = "",
) -> Shipped:
    """Bring `image` to every target, from this machine's engine or, with `source`, from that host's.

    There, the image is `origin` if that is not ''.
    `owner` is the cluster's name, which keeps its ships apart from those of other clusters. If a host fails, the others
    go on. Raises ImageError if no engine gives the image, and UnreachableError if this machine's does not answer.
    """
    there = ImageThere(image=image, origin=origin or image)
    with closing(Ship(owner, targets, reporter, there=there, source=source)) as this_ship:
        return this_ship.run()


def ship_code(
    spool: PackSpool,
    *,
    store: str,
    owner: str,
    targets: Sequence[Target],
    confirm: str,
    reporter: Reporter,
    needed: Needed,
    renewed: Callable[[], Needed],
) -> Shipped:
    """Bring the pack of `spool` to every target, into the folder `store` of its VM. If a host fails, the others go on.

    The host `confirm` then writes down which hosts have the code. A host that lacks the pack's base fails with
    BaseMissingError. Hosts keep the snapshots `needed` when they remove old ones. `renewed` lists those of now, for
    a ship that had to wait.
    """
    turn = Turn(head=confirm, store=store, needed=needed, renewed=renewed)
    with closing(Ship(owner, targets, reporter, cargo=code_cargo(spool, store), turn=turn)) as this_ship:
        return this_ship.run()


def ship_stored(
    digest: str,
    *,
    source: Target,
    store: str,
    owner: str,
    targets: Sequence[Target],
    confirm: str,
    reporter: Reporter,
    base: str | None = None,
    needed: Needed,
    renewed: Callable[[], Needed],
) -> Shipped:
    """Bring the snapshot `digest` from the store of the host `source` to every target, as `ship_code` does.

    No byte of it comes from this machine. Targets have the snapshot `base`. Raises StepError if the source does not
    give it.
    """
    there = CodeThere(digest=digest, store=store, base=base)
    turn = Turn(head=confirm, store=store, needed=needed, renewed=renewed)
    with closing(Ship(owner, targets, reporter, there=there, source=source, turn=turn)) as this_ship:
        return this_ship.run()
