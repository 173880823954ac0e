"""The porter's life on a VM: orders come on standard input, reports go to standard output.

Both are lines of JSON. The first order is {"op": "begin", "image", "config", "layers", "owner", "listen",
"certificate", "key", "source", "most"}; all layers have at most as many bytes as `most`. Its answer is
{"ready": {"port", "need": {layer: bytes that are here}, "held"}}. {"op": "inspect", "image"} may come before; its
answer is {"inspected"}. To bring code and not an image, both orders have "code" (porter.code) in place of "image" and
"config", and "begin" also has "needed" (`code.needed`); the answer to "inspect" is then {"packed": {"sha256", "size"}}:
the pack of the snapshot in this host's store, which is the only layer. {"op": "enter", "store"} may come before both,
on the head: wait until no other ship of code runs here, as long as that takes. Its answer is {"entered": true}. Then:

    {"op": "follow", "address", "port", "turn"}   take layers from there
    {"op": "follow", "turn"}                      take them from the operator: {"ask": need, "serial"} goes out, and
    {"op": "bytes", "count", "serial"}            that many bytes of frames follow; repeated until all have come.
                                                  With "answered": need, in the first of these orders, no "ask" goes
                                                  out, and the bytes of serial 1 follow at once
    {"op": "fill", "want": [layers]}              take them out of this host's own engine, or of its pack
    {"op": "beat"}                                the operator is still there
    {"op": "confirm", "hosts": [names]}           write down which hosts have this code
    {"op": "end", "keep": bool}                   end; keep or remove what an interrupted ship left

Reports, at any time: {"waits"} while another ship of the cluster runs here, {"at", "loaded"}, {"lost", "turn"},
{"corrupt", "count"}, {"received"} when all bytes are here, {"done", "load_s"} when the engine has the image, or the
store the code, {"failed", "kind"}. The porter ends when standard input ends, or is silent for a minute.
"""

import contextlib
import errno
import io
import math
import os
import shutil
import sys
import threading
import time
import traceback
from typing import Any, BinaryIO, Dict, List, Optional, Tuple, Union, cast

from . import code, fetch, image, names, serve, source, wire
from .archive import config_of, layers_of
from .engine import EngineError, SocketEngine, size_of
from .hold import Hold
from .layers import Layers, Stopped
from .operator import Ask, Pipe

TICK_S = 0.25
# A host that is silent for longer counts as gone.
LIFE_S = 2.0
# The operator sends a beat every five seconds.
DEAF_S = 60.0
# How long a ship waits at the head for others, one after the other.
WAIT_S = 1800.0
# Less than the operator waits for the end.
SETTLE_S = 8.0


class Porter:
    """One ship on one host."""

    def __init__(self, reading: io.BufferedReader, writing: BinaryIO) -> None:
        self._reading = reading
        self._writing = writing
        self._lock = threading.Lock()
        self._filling = threading.Lock()
        self._engine = SocketEngine()
        # Only the operator's answer to the latest question is used; answers to earlier ones are dropped.
        self._serial = 0
        self._pipe: Tuple[int, Optional[Pipe]] = (0, None)
        # When the operator was last heard: infinite while nobody listens.
        self._heard = math.inf
        self._failed = False
        self._ended = False
        self._folder = ""
        # The path of a pack that this porter wrote. Once the ship begins, it is a layer in `_folder`.
        self._pack_path = ""
        self._hold = Hold()
        self._cargo: Union[code.Cargo, image.Cargo]

    def say(self, value: Dict[str, Any]) -> None:
        with self._lock:
            wire.write_line(self._writing, value)

    def fail(self, kind: str, text: str) -> None:
        """Report the first fault, which is the cause, and no later one."""
        with self._lock:
            if self._failed:
                return
            self._failed = True
            wire.write_line(self._writing, {"failed": text, "kind": kind})

    def run(self) -> None:
        """Run until the operator sends end, or is gone."""
        threading.Thread(target=self._watch, daemon=True).start()
        self._guarded(self._open)
        if self._ended:
            # The ship ended before it began: nobody takes the pack.
            if self._pack_path:
                with contextlib.suppress(OSError):
                    os.unlink(self._pack_path)
            self._hold.release()
            return
        # Orders that came meanwhile are still unread.
        self._heard = time.monotonic()
        while True:
            order = wire.read_line(self._reading)
            self._heard = time.monotonic()
            if order["op"] == "end":
                self._settle()
                if not order["keep"]:
                    self._clean()
                return
            if order["op"] == "follow":
                self._follow(order)
            elif order["op"] == "bytes":
                self._read_bytes(int(order["count"]), int(order["serial"]))
            elif order["op"] == "fill":
                self._start(self._fill, set(order["want"]) & set(self._cargo.chain))
            elif order["op"] == "confirm":
                self._guarded(self._confirm, order["hosts"])

    def _read_bytes(self, left: int, serial: int) -> None:
        while left:
            # In parts: all of them may take longer than the operator may be silent.
            data = self._reading.read1(min(left, wire.CHUNK))
            if not data:
                raise wire.Broken("the connection ended")
            left -= len(data)
            self._heard = time.monotonic()
            self._bytes(serial, data)

    def _settle(self) -> None:
        """Wait until a push that has brought enough has removed its tag."""
        if self._folder:
            # From here on no new tag is made, and no layer gets its final name while the folder is removed.
            self._layers.stop()
        self._engine.still.wait(SETTLE_S)

    def _watch(self) -> None:
        """End the porter when the operator went away without closing, for example because its machine went to sleep."""
        while time.monotonic() - self._heard < DEAF_S:
            time.sleep(1.0)
        os._exit(0)

    def _open(self) -> None:
        order = self._next_order()
        if order["op"] == "enter":
            self._enter(names.below(str(order["store"]), code.FOLDER), WAIT_S)
            self.say({"entered": True})
            order = self._next_order()
        if order["op"] == "inspect":
            if "code" in order:
                self._pack(code.Cargo(order["code"], []))
            else:
                self._inspect(str(order["image"]))
            order = self._next_order()
        self._begin(order)

    def _next_order(self) -> Dict[str, Any]:
        """Return the next order after any beats: inspections take a while, and the ship may wait for another host.

        Raises Stopped if the operator wants no ship any more.
        """
        order: Dict[str, Any] = {"op": "beat"}
        while order["op"] == "beat":
            self._heard = time.monotonic()
            order = wire.read_line(self._reading)
        self._heard = math.inf
        if order["op"] == "end":
            self._ended = True
            raise Stopped
        return order

    def _enter(self, folder: str, limit_s: Optional[float] = None) -> None:
        """Take the folder of the ship. While another ship is there, report it, so that the operator knows."""
        self._hold.take(folder, limit_s, lambda: self.say({"waits": True}))

    def _inspect(self, image: str) -> None:
        facts = self._engine.inspect(image)
        if facts is None:
            raise EngineError("no such image: " + image)
        image_facts = {
            "config": config_of(facts).decode(),
            "layers": layers_of(facts),
            "sizes": self._engine.sizes(image),
            "size": size_of(facts),
        }
        self.say({"inspected": image_facts})

    def _pack(self, cargo: code.Cargo) -> None:
        self._enter(cargo.folder)
        sha256, size = cargo.pack()
        self._pack_path = names.below(cargo.folder, sha256)
        self.say({"packed": {"sha256": sha256, "size": size}})

    def _begin(self, order: Dict[str, Any]) -> None:
        self._owner = str(order["owner"])
        if "code" in order:
            needed = code.needed(order["needed"], time.time())
            self._cargo = code.Cargo(order["code"], order["layers"], needed)
        else:
            self._cargo = image.Cargo(order, self._engine)
        folder = self._cargo.folder
        self._enter(folder)
        self._layers = Layers(folder)
        self._folder = folder
        chain = self._cargo.chain
        # A source has every layer, in its engine.
        held = len(chain) if order.get("source") else self._cargo.held()
        if isinstance(self._cargo, code.Cargo) and held < len(chain):
            self._cargo.make_room(int(order["most"]))
        need = list(dict.fromkeys(chain[held:]))
        # A source of code has just written its pack.
        self._layers.adopt(set(chain if order.get("source") and isinstance(self._cargo, code.Cargo) else need))
        port = 0
        self._tls: Any = None
        if order.get("listen"):
            listening = serve.context(self._folder, order["certificate"], order["key"], True)
            self._tls = serve.context(self._folder, order["certificate"], order["key"], False)
            port = serve.Listener(str(order["listen"]), listening, self._layers).port
        self._fetcher = fetch.Fetcher(self._layers, need, self.say, int(order["most"]))
        here = {layer: self._layers.have(layer) for layer in need}
        self.say({"ready": {"port": port, "need": here, "held": held}})
        self._start(self._tick)
        if not order.get("source"):
            self._start(self._fetch)
            self._start(self._load)

    def _start(self, work: Any, *arguments: Any) -> None:
        threading.Thread(target=self._guarded, args=(work, *arguments), daemon=True).start()

    def _guarded(self, work: Any, *arguments: Any) -> None:
        """Report whatever goes wrong to the operator."""
        try:
            work(*arguments)
        except (Stopped, wire.Broken):
            pass
        except fetch.Failed as error:
            self.fail(error.kind, str(error))
        except code.Refused as error:
            self.fail(error.kind, str(error))
        except (EngineError, source.SourceError) as error:
            self.fail("disk" if "no space left" in str(error).lower() else "engine", str(error))
        except names.BadName as error:
            self.fail("system", str(error))
        except OSError as error:
            self.fail("disk" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "system", str(error))
        except Exception:
            self.fail("bug", traceback.format_exc())

    def _follow(self, order: Dict[str, Any]) -> None:
        turn = int(order["turn"])
        if "address" in order:
            self._fetcher.follow(turn, fetch.over_tls(str(order["address"]), int(order["port"]), self._tls))
        else:
            answered = order.get("answered")
            # Its bytes are the next thing that comes, so there is a place for them now.
            first = [self._from_operator(answered)] if answered else []
            self._fetcher.follow(turn, lambda: first.pop() if first else self._from_operator())

    def _bytes(self, serial: int, data: bytes) -> None:
        current, pipe = self._pipe
        if pipe is None or serial != current:
            return
        while not pipe.put(data):
            # Beats are queued behind these bytes.
            self._heard = time.monotonic()

    def _from_operator(self, answered: Optional[Dict[str, int]] = None) -> fetch.Streams:
        pipe = Pipe()
        self._serial += 1
        # One assignment for both: no byte of an earlier answer gets into the new pipe.
        self._pipe = (self._serial, pipe)
        asking = io.BufferedWriter(Ask(self.say, self._serial, answered), buffer_size=1 << 24)
        return io.BufferedReader(pipe, 2 * wire.CHUNK), asking, pipe.end

    def _fill(self, wanted: Any) -> None:
        self._verify()
        # A layer has one writer, and two hosts may want the same layer from this one.
        with self._filling:
            if isinstance(self._cargo, image.Cargo):
                self.say({"filled": self._cargo.fill(wanted, self._layers)})
            elif not all(map(self._layers.whole, wanted)):
                raise code.Refused("corrupt", "the disk gave other bytes than it got")

    def _confirm(self, hosts: List[str]) -> None:
        if isinstance(self._cargo, code.Cargo):
            self._cargo.confirm([str(host) for host in hosts])

    def _verify(self) -> None:
        """Keep what an earlier ship left only where its bytes are right."""
        for layer in self._layers.verify():
            self._fetcher.again(layer)

    def _fetch(self) -> None:
        self._verify()
        while True:
            self._fetcher.run()
            self.say({"received": True})
            # The engine can still refuse a layer.
            self._fetcher.wait_missing()

    def _load(self) -> None:
        if isinstance(self._cargo, code.Cargo):
            busy = self._cargo.load(self._layers)
        else:
            busy = self._cargo.load(self._layers, self._fetcher.again, self.say)
        self.say({"done": True, "load_s": busy})

    def _tick(self) -> None:
        reported: Dict[str, int] = {}
        last = 0.0
        while True:
            now = {"at": self._layers.total(), "loaded": self._cargo.loaded}
            if now != reported or time.monotonic() - last > LIFE_S:
                reported, last = now, time.monotonic()
                self.say(dict(now))
            time.sleep(TICK_S)

    def _clean(self) -> None:
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
            with contextlib.suppress(OSError):
                os.rmdir(os.path.dirname(self._folder))


def main() -> None:
    # If the operator is gone, what is here stays for the next ship.
    with contextlib.suppress(wire.Broken, OSError):
        Porter(cast(io.BufferedReader, sys.stdin.buffer), sys.stdout.buffer).run()
    sys.stdout.flush()
    # Do not wait for threads that wait for a peer or the engine.
    os._exit(0)
