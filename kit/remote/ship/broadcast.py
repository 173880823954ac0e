"""Ships an image to many hosts: only the layers that they lack, once over this machine's link, from host to host.

A porter on each host (kit.remote.ship.porter) takes layers from the host before it and hands them on while they come;
here is who decides which host comes after which, and what happens when one fails.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kit.errors import ImageError, KitError, StepError, UnreachableError
from kit.events import HostStep, Note, Reporter, Warned
from kit.model.host import Login
from kit.remote.ship.certificate import certificate
from kit.remote.ship.porters import Porter
from kit.remote.ship.spool import Spool
from kit.remote.ssh.refusals import dropped, dropped_error

# A porter says something every two seconds.
SILENCE_S = 15.0
START_S = 90.0
END_S = 10.0
MEGA = 10_000_000
AGAIN = "run kit deploy again: what has arrived is not sent twice"


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """A host that is to have the image. `address` is where other hosts of the cluster reach it."""

    login: Login
    address: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Shipped:
    """What became of a ship: `sent` bytes over this machine's link, in `wire_s` until the last host had all of them.

    `load_s` is the time that each engine took for unpacking, much of it meanwhile.
    """

    failures: Mapping[str, KitError] = field(default_factory=dict)
    sent: int = 0
    wire_s: float = 0.0
    load_s: Mapping[str, float] = field(default_factory=dict)


def ship(
    image: str, *, owner: str, targets: Sequence[Target], reporter: Reporter, source: Target | None = None
) -> Shipped:
    """Bring `image` to every target, out of this machine's engine or, with `source`, out of that host's.

    `owner` is the cluster's name: two ships of one cluster do not meet. A host that fails does not take others along.
    Raises ImageError when the image cannot be had at all.
    """
    work = _Ship(image, owner, targets, reporter, source)
    try:
        return work.run()
    finally:
        work.close()


class _Lane:
    """One host, as far as it has come."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.host = target.login.host
        self.porter: Porter | None = None
        # Of each layer that it needs, the bytes that it has; None until it has told.
        self.need: dict[str, int] | None = None
        self.held = 0
        self.port = 0
        self.upstream: _Lane | None = None
        self.turn = 0
        self.serial = 0
        self.received = False
        self.done = False
        self.load_s = 0.0
        self.failed: KitError | None = None

    @property
    def over(self) -> bool:
        return self.done or self.failed is not None


class _Ship:
    def __init__(
        self, image: str, owner: str, targets: Sequence[Target], reporter: Reporter, source: Target | None
    ) -> None:
        self._image = image
        self._owner = owner
        self._reporter = reporter
        self._heard: queue.SimpleQueue[tuple[_Lane | None, dict[str, Any] | None]] = queue.SimpleQueue()
        self._lanes = [_Lane(target) for target in targets]
        self._source = _Lane(source) if source else None
        self._spool: Spool | None = None
        # In the order in which layers go from host to host.
        self._chain: list[_Lane] = []
        # Bytes of what each step of the build left, the last step's first.
        self._sizes: list[int] = []
        self._certificate, self._key = certificate()
        self._begun = 0.0
        self._wire_s = 0.0

    def run(self) -> Shipped:
        if self._source:
            config, layers = self._look_at_source(self._source)
        else:
            self._spool = Spool(self._image, lambda error: self._heard.put((None, {"error": error})))
            config, layers, self._sizes = self._spool.config, self._spool.chain, self._spool.sizes
        self._begun = time.monotonic()
        for lane in self._all():
            if lane.porter is None:
                self._say(lane, "connecting")
                lane.porter = self._porter(lane)
            lane.porter.order(
                op="begin",
                image=self._image,
                config=config,
                layers=layers,
                owner=self._owner,
                # A lone host needs nobody to hear it.
                listen=lane.target.address if len(self._all()) > 1 else None,
                source=lane is self._source,
                certificate=self._certificate,
                key=self._key.reveal().decode(),
            )
        self._until(lambda: all(lane.need is not None or lane.failed for lane in self._all()))
        self._line_up()
        self._until(lambda: all(lane.over for lane in self._lanes))
        return self._shipped()

    def _shipped(self) -> Shipped:
        done = [lane for lane in self._lanes if lane.done]
        sent = sum(lane.porter.sent for lane in self._all() if lane.porter)
        if done:
            where = "from host to host" if len(done) > 1 else "to the host"
            text = f"{sent / 1e6:.1f} MB left this machine, and went {where} in {self._wire_s:.1f} s"
            self._reporter.report(Note(text=text))
        return Shipped(
            failures={lane.host: lane.failed for lane in self._lanes if lane.failed},
            sent=sent,
            wire_s=self._wire_s,
            load_s={lane.host: lane.load_s for lane in done},
        )

    def close(self) -> None:
        """Whatever happened, nothing is left running. What arrived on hosts that were interrupted stays there."""
        porters = [lane.porter for lane in self._all() if lane.porter]
        ending = [lane.porter for lane in self._all() if lane.porter and (lane.done or lane is self._source)]
        for porter in ending:
            porter.end(keep=False)
        for porter in porters:
            if porter in ending:
                porter.wait(END_S)
            else:
                porter.kill()
        if self._spool:
            self._spool.close()

    def _all(self) -> list[_Lane]:
        return [*([self._source] if self._source else []), *self._lanes]

    def _porter(self, lane: _Lane) -> Porter:
        return Porter(lane.target.login, lambda _, message: self._heard.put((lane, message)))

    def _look_at_source(self, source: _Lane) -> tuple[str, list[str]]:
        """The image's config and chain, as the engine of another host has it."""
        source.porter = self._porter(source)
        source.porter.order(op="inspect", image=self._image)
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            for lane, message in self._messages():
                if message and "inspected" in message:
                    found = message["inspected"]
                    self._sizes = [int(size) for size in found["sizes"]]
                    return str(found["config"]), [str(layer) for layer in found["layers"]]
                if lane is source:
                    self._take(lane, message)
        raise self._not_given(source, "it does not answer")

    def _not_given(self, source: _Lane, why: str) -> ImageError:
        hint = "is it built? kit image build --builder head, then: kit deploy"
        return ImageError(f"does not give {self._image}: {why}", hint=hint, host=source.host)

    def _messages(self) -> Iterator[tuple[_Lane | None, dict[str, Any] | None]]:
        try:
            yield self._heard.get(timeout=0.5)
            while True:
                yield self._heard.get_nowait()
        except queue.Empty:
            return

    def _until(self, reached: Any) -> None:
        start = time.monotonic()
        while not reached():
            for lane, message in self._messages():
                if lane is None:
                    raise (message or {})["error"]
                self._take(lane, message)
            now = time.monotonic()
            for lane in self._all():
                porter = lane.porter
                if porter is None or lane.failed or (lane.done and lane is not self._source):
                    continue
                patience = START_S if lane.need is None else SILENCE_S
                if now - max(porter.last_heard, start if lane.need is None else 0.0) > patience:
                    text = f"nothing was heard from it for {patience:.0f} s"
                    self._drop(lane, UnreachableError(text, hint=AGAIN, host=lane.host))

    def _take(self, lane: _Lane, message: dict[str, Any] | None) -> None:  # noqa: C901  (one case a message)
        # The source has the image, and is done with itself soon; what it has to give has only begun.
        if lane.failed or (lane.done and lane is not self._source and not (message and "ask" in message)):
            return
        if message is None:
            self._drop(lane, self._ended(lane))
        elif "ready" in message:
            ready = message["ready"]
            lane.need = {str(layer): int(have) for layer, have in ready["need"].items()}
            lane.port, lane.held = int(ready["port"]), int(ready["held"])
        elif "ask" in message:
            self._answer(lane, {str(k): int(v) for k, v in message["ask"].items()}, int(message["serial"]))
        elif "at" in message:
            self._progress(lane, int(message["at"]))
        elif "lost" in message:
            if int(message["turn"]) == lane.turn:
                self._pass_by(lane, str(message["lost"]))
        elif "corrupt" in message:
            text = f"the layer {str(message['corrupt'])[:12]} came with wrong bytes; it is sent again"
            self._reporter.report(Warned(text=f"{lane.host}: {text}"))
            # The engine refuses a layer only when it has come.
            lane.received = False
        elif "received" in message:
            lane.received = True
            if all(each.received for each in self._chain if not each.failed):
                self._wire_s = time.monotonic() - self._begun
            self._say(lane, "the engine unpacks the last layer", 1.0)
        elif "done" in message:
            lane.done, lane.load_s = True, float(message["load_s"])
        elif "failed" in message:
            self._drop(lane, self._fault(lane, str(message["failed"]), str(message.get("kind"))))

    def _line_up(self) -> None:
        """Who needs most goes first, so that nobody is asked for what it does not need itself."""
        ready = [lane for lane in self._lanes if lane.need is not None and not lane.failed]
        ready.sort(key=lambda lane: (lane.held, -sum((lane.need or {}).values())))
        self._chain = ready
        before = self._source
        for lane in ready:
            if lane.need:
                self._attach(lane, before)
                before = lane

    def _attach(self, lane: _Lane, upstream: _Lane | None) -> None:
        lane.upstream = upstream
        lane.turn += 1
        assert lane.porter is not None  # noqa: S101
        wanted = set(lane.need or ())
        if upstream is None:
            if self._spool:
                self._spool.provide({layer for layer in wanted if not lane.received})
            lane.porter.order(op="follow", turn=lane.turn)
            return
        if upstream is self._source and upstream.porter:
            upstream.porter.order(op="fill", want=sorted(wanted))
        lane.porter.order(op="follow", turn=lane.turn, address=upstream.target.address, port=upstream.port)

    def _answer(self, lane: _Lane, need: dict[str, int], serial: int) -> None:
        """This machine is the upstream of the lane: send, until it has all or asks anew."""
        lane.serial = serial
        spool, porter = self._spool, lane.porter
        if spool is None or porter is None:
            return

        def put(data: bytes) -> None:
            if lane.serial != serial:
                raise BrokenPipeError
            porter.send(data, serial)

        threading.Thread(target=spool.answer, args=(need, put), daemon=True).start()

    def _drop(self, lane: _Lane, error: KitError) -> None:
        """The lane is out; who took layers from it takes them from the one before."""
        lane.failed = error
        if lane.porter:
            if isinstance(error, StepError) and "space" in error.message:
                # What came so far would keep its disk full.
                lane.porter.end(keep=False)
                lane.porter.wait(END_S)
            lane.porter.kill()
        if lane is self._source and self._is_needed(lane):
            raise self._not_given(lane, error.message)
        for behind in self._chain:
            if behind.upstream is lane and not behind.over and not behind.received:
                self._attach(behind, self._living(lane.upstream))

    def _is_needed(self, source: _Lane) -> bool:
        """Whether some host would have to do without what it still wants."""
        waiting = [lane for lane in self._lanes if not (lane.over or lane.received) and lane.need != {}]
        return any(lane.upstream is source or not self._chain for lane in waiting)

    def _pass_by(self, lane: _Lane, why: str) -> None:
        """The lane cannot reach its upstream, though that lives: it is attached to the one before that."""
        upstream = lane.upstream
        if upstream is None or (upstream is self._source):
            text = f"the connection over which the image came broke: {why}"
            if upstream is not None:
                text = f"cannot take the image from {upstream.host} ({upstream.target.address}): {why}"
            hint = "is TCP open between the VMs (firewall, security group)? " + AGAIN
            self._drop(lane, UnreachableError(text, hint=hint, host=lane.host))
            return
        text = f"{lane.host} cannot take the image from {upstream.host} ({upstream.target.address}): {why}"
        hint = "it takes another way; MPI will need that one: is TCP open between the VMs (firewall, security group)?"
        self._reporter.report(Warned(text=text, hint=hint))
        self._attach(lane, self._living(upstream.upstream))

    def _living(self, lane: _Lane | None) -> _Lane | None:
        while lane is not None and lane.failed:
            lane = lane.upstream
        return lane

    def _progress(self, lane: _Lane, at: int) -> None:
        wanted = sum(self._sizes[: len(lane.need or ())])
        if not lane.received and wanted:
            text = f"image {at / 1e9:.2f} of {wanted / 1e9:.2f} GB" if wanted > MEGA else "image"
            # What the engine calls the size of a layer is that of its files, without the tar around them.
            self._say(lane, text if at else "waiting for the image", min(at / wanted, 1.0))

    def _say(self, lane: _Lane, text: str, fraction: float | None = None) -> None:
        self._reporter.report(HostStep(host=lane.host, text=text, fraction=fraction))

    def _ended(self, lane: _Lane) -> KitError:
        """The porter has ended by itself."""
        said = lane.porter.complaint() if lane.porter else ""
        code = lane.porter.exit_code if lane.porter else None
        last = said.splitlines()[-1] if said else f"exit {code}"
        if code == 127 or "python3" in last:
            return StepError(
                f"the image cannot be taken in: {last}",
                hint="kit needs python3 (3.6 or newer) on the VM: sudo apt-get install python3",
                host=lane.host,
            )
        if code == 255 and dropped(said):
            return dropped_error("its sshd", said.splitlines()[0], lane.host)
        if code == 255:
            return UnreachableError(f"the connection broke: {last}", hint=AGAIN, host=lane.host)
        return StepError(f"the image did not arrive: {last}", hint=AGAIN, host=lane.host)

    def _fault(self, lane: _Lane, text: str, kind: str) -> KitError:
        hint = AGAIN
        if kind == "disk":
            text, hint = f"no space left on its disk: {text}", "make room (docker system prune), then: kit deploy"
        elif kind == "corrupt":
            hint = "its disk or memory may be bad: look at dmesg there; then: kit deploy"
        return StepError(f"the image did not arrive: {text}", hint=hint, host=lane.host)
