"""Follows a staging from its head: shows how far each host is, and ends it after Ctrl-C."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping

from kit.errors import Interrupted, KitError, StepError, UnreachableError
from kit.events import HostDone, HostFailed, HostStep, Note, Warned
from kit.flows.context import Context
from kit.flows.data.hosts import look
from kit.model.data import DataSpec
from kit.model.datasets import StageResult
from kit.model.staging import Asked, Counted, Need, Staged, StagerAnswer, StagingPlan, StagingProgress
from kit.model.text import files, printable, size
from kit.plan.data import failures
from kit.plan.data.choose import has, lacking
from kit.plan.data.rate import Rate, bar_text
from kit.remote.data.feed import Feed, Folder
from kit.remote.data.order import Order
from kit.remote.data.refusals import NotRunning, is_broken
from kit.remote.machine.interrupts import Interrupts

# A stager answers an order at once. A listing of a large folder may take its time before it joins.
ANSWER_S = 60.0
# How soon kit notices Ctrl-C.
_LOOK_S = 0.2
# After Ctrl-C, the hosts end within this time.
_STOP_S = 30.0
# How often kit connects again to a head that it lost.
_AGAIN = 4
# Files that kit names when they change or arrive with wrong bytes. It counts the others.
_NAMED = 3


class Follower:
    """Follows one staging. `running` returns a new order to the head's stager.

    `owner`: this kit started it, and ends it after Ctrl-C. `folder` is the source on this machine, if it is there.
    """

    def __init__(
        self,
        context: Context,
        data: DataSpec,
        staging: str,
        running: Callable[[], Order],
        *,
        owner: bool,
        folder: Folder | None = None,
    ) -> None:
        self._context, self._data, self._id, self._owner = context, data, staging, owner
        self._new_order = running
        self._folder = folder
        self._feed_order: Order | None = None
        self._fed: Feed | None = None
        self._order: Order | None = None
        self._needs: Mapping[str, Need] = {}
        self._rates: dict[str, Rate] = {}
        self._lost: dict[str, str] = {}
        self._planned: StagingPlan | None = None
        # When the lead began, by its clock.
        self._since: float | None = None
        self._named = {"changed": 0, "wrong": 0}
        self._broken = 0
        self._stopped = False

    def follows(self, order: Order) -> None:
        """Follow the answers of this order."""
        self._order = order
        if self._folder is not None:
            self._feed(self._folder)

    def watch(self) -> None:
        """Follow the staging that runs."""
        self._order = self._new_order().begun()
        self._order.send(op="watch")

    def follow(self, interrupts: Interrupts, *, detach: bool) -> StageResult:
        """Return how it ended; with `detach`, as soon as the hosts have begun.

        Raises the failure of the staging, Interrupted after Ctrl-C, and UnreachableError if the head cannot be reached
        any more: then the staging goes on.
        """
        while True:
            if interrupts.count:
                raise self._interrupted(interrupts)
            answer = self._next()
            if answer is None:
                continue
            if answer.failed is not None:
                raise failures.failure(answer.failed, self._data.name, host=self._context.inventory.head.name)
            if answer.done is not None:
                return self._result(answer.done)
            self._show(answer)
            if detach and answer.plan is not None:
                return self._left(answer.plan)

    def _next(self) -> StagerAnswer | None:
        assert self._order is not None  # noqa: S101  (for the type checker: follow comes after follows or watch)
        try:
            self._keep_feeding()
            return self._order.next(_LOOK_S)
        except KitError as error:
            if not is_broken(error):
                raise
            return self._again(error)

    def _again(self, error: KitError) -> StagerAnswer | None:
        """Connect again: the hosts have gone on. Return the end of the staging if they are done."""
        self._broken += 1
        if self._broken > _AGAIN:
            raise self._unreachable(error)
        try:
            self.watch()
            if self._folder is not None:
                self._feed(self._folder)
        except UnreachableError as failed:
            raise self._unreachable(failed) from None
        except KitError as failed:
            done = self._done() if isinstance(failed, NotRunning) else None
            if done is not None:
                return StagerAnswer(done=done)
            # Its container is gone, so the first error says more.
            raise StepError(
                f"{self._data.name}: its stager ended before the staging did (kit down, or its engine ended it)",
                hint=f"what came is kept; go on: kit data stage {self._data.name}",
                host=error.host,
            ) from None
        return None

    def _done(self) -> Staged | None:
        """Return how a staging has ended whose stagers are gone, if its hosts show that it brought all of it."""
        plan = self._planned
        took_part = plan.hosts if plan else ()
        hosts = [name for name in self._context.inventory.names if name in took_part and name not in self._lost]
        if plan is None or not hosts:
            return None
        here = look(self._context, quiet=True, only=hosts).results
        names = self._context.inventory.names
        if len(here) < len(hosts) or lacking(here, self._context.spec.name, self._data, names):
            return None
        summaries = [one.summary for host in here.values() if (one := has(host, self._context.spec.name, self._data))]
        latest = max(summary.at for summary in summaries if summary is not None)
        # Both times are those of the lead's clock, and the later one is in whole seconds.
        if (plan.new or plan.removed) and (self._since is None or latest < int(self._since)):
            return None
        return Staged(
            files=plan.files,
            bytes=plan.bytes,
            new=plan.new,
            removed=plan.removed,
            read=plan.read,
            hosts=tuple(hosts),
        )

    def _unreachable(self, error: KitError) -> UnreachableError:
        goes_on = "waits for this machine" if self._folder is not None else "goes on"
        return UnreachableError(
            f"{error.message}; the staging of {self._data.name} {goes_on} on the cluster",
            hint=f"see it: kit data ls; watch it: kit data stage {self._data.name}",
            host=error.host,
        )

    def _keep_feeding(self) -> None:
        """Connect the feed again if its connection broke. Raises what a lead did that asks for odd things."""
        order = self._feed_order
        if order is None or self._folder is None or not order.ended:
            return
        if self._fed is not None and self._fed.error is not None:
            raise self._fed.error
        self._broken += 1
        if self._broken <= _AGAIN:
            self._feed(self._folder)

    def _feed(self, folder: Folder) -> None:
        """Let the lead read this machine's folder, over a separate connection."""
        if self._feed_order is not None:
            self._feed_order.close()
        order = self._new_order()
        self._fed = Feed(order.host.name, folder, order.put)
        order.raw = self._fed.hear
        self._feed_order = order
        order.begun().send(op="feed", id=self._id)

    def _interrupted(self, interrupts: Interrupts) -> Interrupted:
        """End the staging, unless another kit started it. A second Ctrl-C ends this kit alone, and at once."""
        name = self._data.name
        if not self._owner:
            return Interrupted(f"the staging of {name} goes on", hint=f"end it: kit data stop {name}")
        self._report(Note(text=f"the staging of {name} ends; what came is kept, and kit data stage {name} goes on"))
        stopping = threading.Thread(target=self._stop, daemon=True)
        stopping.start()
        while stopping.is_alive() and interrupts.count == 1:
            stopping.join(_LOOK_S)
        if not self._stopped:
            return Interrupted(f"the staging of {name} may still run", hint="see it: kit data ls")
        return Interrupted(f"the staging of {name} was stopped", hint=f"go on: kit data stage {name}")

    def _stop(self) -> None:
        with contextlib.suppress(KitError):
            order = self._new_order().begun()
            order.send(op="stop", id=self._id)
            self._stopped = bool(order.answer(_STOP_S).stopped)

    def _show(self, answer: StagerAnswer) -> None:
        if answer.request is not None:
            self._watching(answer.request)
        elif answer.listing is not None:
            self._listing(answer.listing)
        elif answer.plan is not None:
            self._begin(answer.plan)
        elif answer.progress is not None:
            self._progress(answer.progress)
        elif answer.lost is not None and answer.lost.host not in self._lost:
            self._lost[answer.lost.host] = answer.lost.text
            self._report(HostFailed(host=answer.lost.host, text=answer.lost.text or "lost"))
        elif answer.wrong is not None:
            text = f"a piece of {printable(answer.wrong.file)} came with wrong bytes, and is fetched again"
            self._name("wrong", f"{answer.wrong.host}: {text}")
        elif answer.changed is not None:
            self._name("changed", f"{printable(answer.changed.file)} changed in the source while it was read")

    def _watching(self, request: Asked) -> None:
        if request.id:
            self._id = request.id
        self._since = request.since or None
        if self._folder is not None and self._feed_order is None and request.source == self._data.source.text:
            # The kit that started it may be gone.
            self._feed(self._folder)
        if self._broken or self._owner:
            return
        since = f" since {time.strftime('%H:%M:%S', time.localtime(request.since))}" if request.since else ""
        limit = f", with --limit {request.limit * 8 / 1e6:.0f}mbit" if request.limit else ""
        self._report(Note(text=f"{self._data.name} is already being staged{since}{limit}: watching it"))
        if request.source and request.source != self._data.source.text:
            self._report(
                Warned(
                    text=f"it is staged from {printable(request.source)}; kit.yaml has {self._data.source.text} now",
                    hint=f"when it is done: kit data stage {self._data.name}",
                )
            )

    def _listing(self, listing: Counted) -> None:
        text = f"listing the source: {files(listing.files)}, {size(listing.bytes)}"
        self._report(HostStep(host=self._context.inventory.head.name, text=text))

    def _begin(self, plan: StagingPlan) -> None:
        if self._planned is None and plan.read:
            text = f"{self._data.name}: {files(plan.files)}, {size(plan.bytes)}; to read: {size(plan.read)}"
            self._report(Note(text=text))
        self._planned = plan
        self._needs = plan.hosts

    def _progress(self, progress: StagingProgress) -> None:
        now = time.monotonic()
        for host, at in progress.at.items():
            need = self._needs.get(host)
            if need is None or host in self._lost:
                continue
            rate = self._rates.setdefault(host, Rate())
            rate.add(now, at)
            if need.need:
                fraction = min(at / need.need, 1.0)
                text = bar_text(min(at, need.need), need.need, rate.bytes_per_s)
                self._report(HostStep(host=host, text=text, fraction=fraction))

    def _name(self, kind: str, text: str) -> None:
        self._named[kind] += 1
        if self._named[kind] <= _NAMED:
            self._report(Warned(text=text))

    def _report(self, event: HostStep | HostDone | HostFailed | Note | Warned) -> None:
        self._context.reporter.report(event)

    def _result(self, done: Staged) -> StageResult:
        known = set(self._context.inventory.names)
        for kind, word in (
            ("wrong", "pieces came with wrong bytes"),
            ("changed", "files changed while they were read"),
        ):
            if self._named[kind] > _NAMED:
                self._report(Warned(text=f"{self._named[kind]} {word}; kit has the newest of all"))
        for host in done.hosts:
            if host in known:
                self._report(HostDone(host=host, text="has the data"))
        lost = {host: self._lost.get(host, "lost") for host in (*self._lost, *done.lost) if host in known}
        return StageResult(
            cluster=self._context.spec.name,
            name=self._data.name,
            source=self._data.source.text,
            id=self._id,
            hosts=tuple(host for host in done.hosts if host in known),
            files=done.files,
            bytes=done.bytes,
            new=done.new,
            removed=done.removed,
            read=done.read,
            seconds=done.seconds,
            lost=lost,
            watched=not self._owner,
        )

    def _left(self, plan: StagingPlan) -> StageResult:
        """Return what a staging that is left running goes on to do."""
        return StageResult(
            cluster=self._context.spec.name,
            name=self._data.name,
            source=self._data.source.text,
            id=self._id,
            hosts=tuple(host for host in plan.hosts if host in self._context.inventory.names),
            files=plan.files,
            bytes=plan.bytes,
            new=plan.new,
            removed=plan.removed,
            read=plan.read,
            detached=True,
            watched=not self._owner,
        )
