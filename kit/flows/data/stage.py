"""kit data stage: start a stager on each host, let that of the head lead, and follow it."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from kit.errors import HostsFailed, InputError, KitError, NotReadyError, StepError
from kit.events import HostFailed, HostStep, Note, Phase
from kit.flows.context import Context
from kit.flows.data.follow import ANSWER_S, Follower
from kit.flows.data.hosts import check_deployed, cluster_of, look
from kit.flows.data.source import Source, source_of
from kit.model.answer import other_version
from kit.model.data import DataSpec, data_folder
from kit.model.datasets import StagePreview, StageResult
from kit.model.host import Host
from kit.model.launch import ClusterRecord
from kit.model.text import fold
from kit.model.values import replace
from kit.plan.data import failures
from kit.plan.data.choose import lacking, rows, staged_sets
from kit.remote.data.order import Order, Place
from kit.remote.machine.interrupts import Interrupts
from kit.remote.ship.certificate import certificate
from kit.remote.ssh import open_files
from kit.remote.ssh.logins import Logins

# The version of the orders that this kit speaks.
VERSION = 1
# How long kit waits for another kit whose hosts have joined, and how often it looks. That takes a second or two.
_LEAD_S, _LOOK_S = 15.0, 0.5


def preview(context: Context, words: Sequence[str]) -> tuple[StagePreview, ...]:
    """Return what `stage` would do. It asks the hosts what they have, and reads no source.

    A host that cannot be asked would be left out. Raises the error of the head.
    """
    sets = staged_sets(context.spec, words)
    outcome = look(context)
    hosts, head = outcome.results, context.inventory.head.name
    if head not in hosts:
        raise outcome.failures[head]
    names = context.inventory.names
    states = {row.name: row.state for row in rows(context.spec, hosts, {}, names=names)}
    return tuple(
        StagePreview(
            name=data.name,
            source=data.source.text,
            stage=data.stage,
            folder=data_folder(context.spec.name, data),
            state=states[data.name],
            hosts=tuple(hosts),
            has=tuple(name for name in hosts if name not in lacking(hosts, context.spec.name, data, names)),
            size=data.size_bytes,
            missed={name: str(error.message) for name, error in outcome.failures.items()},
        )
        for data in sets
    )


def stage(
    context: Context,
    words: Sequence[str],
    *,
    limit: int = 0,
    detach: bool = False,
    environ: Mapping[str, str] | None = None,
    on_result: Callable[[StageResult], None] = lambda _result: None,
    needing: Collection[str] | None = None,
) -> tuple[StageResult, ...]:
    """Stage data sets, one after the other. `on_result` gets each result at once.

    `limit` is in bytes a second; 0 for none. `detach`: return when the hosts have begun. Raises the errors of hosts
    that were lost after the others have all; with `needing`, only of these hosts.
    """
    sets = staged_sets(context.spec, words)
    here = [data.name for data in sets if data.source.kind == "here"]
    if detach and here:
        raise InputError(
            f"{', '.join(here)}: this machine has the source, so kit must stay while the hosts read it",
            hint="leave out -d",
        )
    values = os.environ if environ is None else environ
    results: list[StageResult] = []
    errors: list[KitError] = []
    for data in sets:
        result = Staging(context, data, limit=limit, detach=detach, environ=values).run()
        on_result(result)
        results.append(result)
        lost = {name: text for name, text in result.lost.items() if needing is None or name in needing}
        errors += failures.lost(lost, data.name)
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise HostsFailed(f"kit data stage: {len(errors)} hosts are not complete", errors)
    return tuple(results)


class Staging:
    """One staging of one data set."""

    def __init__(
        self, context: Context, data: DataSpec, *, limit: int, detach: bool, environ: Mapping[str, str]
    ) -> None:
        self._context, self._data, self._limit, self._detach = context, data, limit, detach
        self._environ = environ
        self._head = context.inventory.head
        self._id = secrets.token_hex(8)
        self._orders: list[Order] = []
        # Orders to the head's stager that are already on their way: each takes as long as an ssh session.
        self._ahead: list[Order] = []
        # Hosts that take no part, and why.
        self._out: dict[str, KitError] = {}

    def run(self) -> StageResult:
        """Stage it, or watch the staging that already runs."""
        begun = time.monotonic()
        source = source_of(self._context, self._data, self._environ)
        try:
            self._context.reporter.report(Phase(name=f"stage {self._data.name}", hosts=self._context.inventory.names))
            orders = self._opened(source)
            head = orders[self._head.name]
            cluster = cluster_of(self._context, head.record)
            check_deployed(cluster, self._context, [self._data])
            follower = self._watched(orders, source)
            if follower is None:
                self._check_readers(orders, source)
                members = self._joined(orders, cluster)
                self._check_members([str(member["host"]) for member in members], source)
            # From here on, Ctrl-C ends a staging that this kit has started.
            with Interrupts() as interrupts:
                follower = follower or self._begun(members, cluster, source)
                result = follower.follow(interrupts, detach=self._detach)
        finally:
            for order in self._orders:
                order.close()
        seconds = result.seconds or time.monotonic() - begun
        out = {name: error.message for name, error in self._out.items()}
        return replace(result, seconds=seconds, lost={**out, **result.lost})

    def _order(self, host: Host, source: Source, *, logins: Logins | None = None) -> Order:
        place = Place(
            cluster=self._context.spec.name,
            data=self._data.name,
            folder=data_folder(self._context.spec.name, self._data),
            options=source.options(host.name),
        )
        order = Order(host, self._context.connect, place, logins=logins)
        self._orders.append(order)
        return order.start()

    def _opened(self, source: Source) -> dict[str, Order]:
        """Start the stager on each host. A host where that fails is out; raises if the head fails, or all do."""
        logins = Logins()
        open_files.allow(len(self._context.inventory.hosts))
        for host in self._context.inventory.hosts:
            self._context.reporter.report(HostStep(host=host.name, text="starting"))
        orders = {host.name: self._order(host, source, logins=logins) for host in self._context.inventory.hosts}
        self._certificate = certificate()

        def begun(order: Order) -> None:
            hello = order.begun().hello
            version = hello.version if hello is not None else None
            if version != VERSION:
                message = "the cluster's image has another version of the stager"
                raise other_version(message, version, VERSION, host=order.host.name)
            if order.host is self._head:
                # One for the staging, and one to read a folder of this machine.
                self._ahead = [self._to(self._head) for _ in range(1 if source.folder is None else 2)]

        return self._each(orders, begun)

    def _each(self, orders: Mapping[str, Order], work: Callable[[Order], object]) -> dict[str, Order]:
        """Do this with each order. Return the orders for which it went well; raise if the head's did not."""
        good: dict[str, Order] = {}
        errors: dict[str, KitError] = {}
        for name, order in orders.items():
            try:
                work(order)
                good[name] = order
            except KitError as failed:
                errors[name] = failed
        if self._head.name in errors or not good:
            # What is wrong on all hosts is one error: that of the head.
            if len(errors) == 1 or (not good and len({error.message for error in errors.values()}) == 1):
                raise errors.get(self._head.name) or next(iter(errors.values()))
            raise HostsFailed(f"nothing was staged: {len(errors)} of {len(orders)} hosts failed", list(errors.values()))
        for name, error in errors.items():
            self._out[name] = error
            self._context.reporter.report(HostFailed(host=name, text=error.message, hint=error.hint))
        return good

    def _watched(self, orders: Mapping[str, Order], source: Source) -> Follower | None:
        """Return a follower of the staging that already runs, or None if the head's stager has none."""
        hello = orders[self._head.name].hello
        staging = hello.staging if hello else None
        if hello is None or staging is None:
            return None
        if not hello.lead:
            staging = self._led()
        if staging is None:
            joined = ((name, order.hello.staging) for name, order in orders.items() if order.hello)
            self._end_joined({name: staging for name, staging in joined if staging})
            return None
        follower = Follower(self._context, self._data, staging, self._running, owner=False, folder=source.folder)
        follower.watch()
        return follower

    def _led(self) -> str | None:
        """Return the staging that another kit is just starting, when the head leads it; None if it does not soon.

        Between the two, the hosts join. Ctrl-C may have ended that kit there.
        """
        self._context.reporter.report(Note(text=f"another kit is starting to stage {self._data.name}: waiting for it"))
        end = time.monotonic() + _LEAD_S
        while time.monotonic() < end:
            order = self._to(self._head)
            hello = order.begun().hello
            order.close()
            if hello is None or hello.staging is None:
                return None
            if hello.lead:
                return hello.staging
            time.sleep(_LOOK_S)
        return None

    def _end_joined(self, joined: Mapping[str, str]) -> None:
        """Let hosts go that have joined a staging which nobody leads. Otherwise, they would wait for a minute."""
        ends = {name: self._to(self._context.host(name)) for name in joined}
        leavers: list[Order] = []
        for name, order in ends.items():
            # One that cannot be reached is left out when it should join.
            with contextlib.suppress(KitError):
                order.begun().send(op="stop", id=joined[name])
                leavers.append(order)
        since = time.monotonic()
        for order in leavers:
            with contextlib.suppress(KitError):
                order.answer(ANSWER_S, since=since)
        for order in ends.values():
            order.close()

    def _joined(self, orders: dict[str, Order], cluster: ClusterRecord) -> list[dict[str, object]]:
        """Let all hosts join a new staging. Return its members, as its lead needs them."""
        addresses = {node.name: node.address for node in cluster.nodes}
        strangers = [name for name in orders if name not in addresses]
        if strangers:
            raise NotReadyError(
                f"the cluster {cluster.name} was deployed without {fold(strangers)}", hint="run: kit deploy"
            )
        public, key = self._certificate
        secret = key.reveal().decode()
        for name, order in orders.items():
            order.send(op="join", id=self._id, address=addresses[name], certificate=public, key=secret)
        ports: dict[str, int] = {}
        since = time.monotonic()

        def joined(order: Order) -> None:
            answer = order.answer(ANSWER_S, since=since)
            if answer.failed is not None:
                raise failures.failure(answer.failed, self._data.name, host=order.host.name)
            if answer.joined is None:
                raise StepError("its stager did not join the staging", hint="run the same again", host=order.host.name)
            ports[order.host.name] = answer.joined.port

        members = self._each(orders, joined)
        for order in members.values():
            order.close()
        return [{"host": name, "address": addresses[name], "port": ports[name]} for name in members]

    def _check_readers(self, hosts: Collection[str], source: Source) -> None:
        """Raise the error of the host whose folder is the source, if it is not one of these."""
        for name in source.request.get("readers") or ():
            if name not in hosts:
                raise self._out[name]

    def _check_members(self, names: Sequence[str], source: Source) -> None:
        """Raise the error of the host whose folder is the source, if it is no member, and let the members go."""
        try:
            self._check_readers(names, source)
        except KitError:
            self._end_joined(dict.fromkeys(names, self._id))
            raise

    def _begun(self, members: list[dict[str, object]], cluster: ClusterRecord, source: Source) -> Follower:
        """Start the staging."""
        request = {
            "data": self._data.name,
            "cluster": cluster.name,
            "stage": self._data.stage,
            "split": self._data.split,
            "size": self._data.size_bytes,
            "limit": self._limit,
            "source": source.request,
            "members": members,
        }
        lead = self._running().begun()
        lead.send(op="stage", id=self._id, request=request)
        follower = Follower(self._context, self._data, self._id, self._running, owner=True, folder=source.folder)
        follower.follows(lead)
        return follower

    def _running(self) -> Order:
        """Return another order to the head's stager, which runs already. One of those ahead may know old news."""
        return self._ahead.pop() if self._ahead else self._to(self._head)

    def _to(self, host: Host) -> Order:
        """Return another order to a host's stager, which runs already."""
        place = Place(
            cluster=self._context.spec.name,
            data=self._data.name,
            folder=data_folder(self._context.spec.name, self._data),
        )
        order = Order(host, self._context.connect, place, how="running")
        self._orders.append(order)
        return order.start()
