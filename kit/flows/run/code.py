"""Brings the code of a run to its hosts, before the run starts: a snapshot of a folder, the same on each host."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kit.errors import KitError, NotReadyError
from kit.events import Warned
from kit.flows.context import Context
from kit.model import names
from kit.model.code import Snapshot
from kit.model.launch import ClusterRecord
from kit.remote.run.door import Door

if TYPE_CHECKING:
    from kit.remote.ship.broadcast import Shipped


class Taking:
    """A snapshot that is taken while kit connects. `result` waits for it, and raises what went wrong."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._snapshot: Snapshot | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._take, name="kit-code", daemon=True)
        self._thread.start()

    def _take(self) -> None:
        from kit.remote.code.snapshot import take  # noqa: PLC0415  (only where a run has code)

        try:
            self._snapshot = take(self._folder)
        except BaseException as error:
            self._error = error

    def result(self) -> Snapshot:
        self._thread.join()
        if self._error is not None:
            raise self._error
        if self._snapshot is None:
            raise RuntimeError("the snapshot has no result")
        return self._snapshot


def bring(context: Context, door: Door, snapshot: Snapshot, cluster: ClusterRecord, hosts: Sequence[str]) -> None:
    """Bring the snapshot to the head and to `hosts`, unless the head says that they have it.

    Raises the error of the first host that cannot get it: no rank starts before every host has it.
    """
    if door.code is None:
        raise NotReadyError(
            "the cluster was deployed by a version of kit that cannot send code",
            hint="run: kit deploy",
            host=context.inventory.head.name,
        )
    head = context.inventory.head.name
    wanted = tuple(dict.fromkeys([head, *hosts]))
    lacking = [name for name in wanted if name not in door.code.get(snapshot.digest, ())]
    if not lacking:
        return
    from kit.remote.code.manifests import recall  # noqa: PLC0415
    from kit.remote.ship.faults import BaseMissingError  # noqa: PLC0415

    # The newest snapshot that all of them have, and whose manifest this machine still has.
    shared = (digest for digest, have in door.code.items() if set(lacking) <= set(have))
    base = next(filter(None, map(recall, shared)), None)
    # The head writes down who has the snapshot, so it is always asked.
    shipped = _ship(context, snapshot, base, cluster, tuple(dict.fromkeys([head, *lacking])))
    without = [host for host, error in shipped.failures.items() if isinstance(error, BaseMissingError)]
    failures = {host: error for host, error in shipped.failures.items() if host not in without}
    if without and not failures:
        failures = dict(_ship(context, snapshot, None, cluster, tuple(dict.fromkeys([head, *without]))).failures)
    _raise_first(context, failures, wanted)


def _ship(
    context: Context, snapshot: Snapshot, base: bytes | None, cluster: ClusterRecord, hosts: Sequence[str]
) -> Shipped:
    from kit.remote.ship.broadcast import ship_code  # noqa: PLC0415
    from kit.remote.ship.lanes import Target  # noqa: PLC0415
    from kit.remote.ship.spool import PackSpool  # noqa: PLC0415

    addresses = {node.name: node.address for node in cluster.nodes}
    return ship_code(
        PackSpool(snapshot, base),
        store=f"{names.folder(cluster.name)}/{names.CODE}",
        owner=cluster.name,
        targets=[Target(login=context.logins[name], address=addresses[name]) for name in hosts],
        confirm=context.inventory.head.name,
        reporter=context.reporter,
    )


def _raise_first(context: Context, failures: dict[str, KitError], order: Sequence[str]) -> None:
    if not failures:
        return
    first, *others = (name for name in order if name in failures)
    for name in others:
        context.reporter.report(Warned(text=f"{name}: {failures[name].message}", hint=failures[name].hint))
    raise failures[first]
