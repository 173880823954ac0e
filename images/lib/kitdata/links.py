"""The lead's connections to one member: orders go out on one, reports come in on the other."""

import queue
import threading
from typing import Any, Callable, Dict, List

from kitdata import tls, wire

BEAT_S = 2.0
# A member that is silent for this long is out.
SILENCE_S = 15.0

# Gets (member, round, report). A report ["gone", text] comes once, when the member is out of reach.
Take = Callable[[int, int, List[Any]], None]


class Link:
    """Orders to one member, and its reports. It connects in the background: ["linked"] or ["gone", text] says how."""

    def __init__(self, number: int, member: Dict[str, Any], client: Any, id_: str, take: Take) -> None:
        self._number = number
        self._take = take
        self._lock = threading.Lock()
        self._closed = False
        self._peers: List[Any] = []
        self._orders: queue.Queue[Any] = queue.Queue()
        threading.Thread(target=self._run, args=(member, client, id_), daemon=True).start()

    def send(self, order: Dict[str, Any]) -> None:
        self._orders.put(wire.packed(order))

    def send_packed(self, frame: bytes) -> None:
        """Send an order that several members get."""
        self._orders.put(frame)

    def close(self) -> None:
        """End both connections at once."""
        with self._lock:
            self._closed = True
            peers = list(self._peers)
        self._orders.put(None)
        for peer in peers:
            tls.hang_up(peer)

    def close_soon(self) -> None:
        """End both connections once all orders have gone out."""
        with self._lock:
            self._closed = True
        self._orders.put(None)

    def _run(self, member: Dict[str, Any], client: Any, id_: str) -> None:
        try:
            peers = []
            for role in ("orders", "reports"):
                peers.append(tls.connect(member["address"], member["port"], client, {"id": id_, "role": role}))
                with self._lock:
                    self._peers.append(peers[-1])
        except (OSError, ValueError) as error:
            silent = isinstance(error, OSError) and "timed out" in str(error)
            why = "no answer within %.0f s" % tls.CONNECT_S if silent else _why(error)
            self._gone("it cannot be reached: %s" % why)
            return
        self._take(self._number, 0, ["linked"])
        threading.Thread(target=self._write, args=(peers[0],), daemon=True).start()
        self._read(peers[1])

    def _write(self, peer: Any) -> None:
        peer.settimeout(SILENCE_S)
        try:
            while True:
                try:
                    order = self._orders.get(timeout=BEAT_S)
                except queue.Empty:
                    order = wire.packed({"beat": 1})
                if order is None:
                    break
                peer.sendall(order)
            with self._lock:
                peers = list(self._peers)
            for one in peers:
                tls.hang_up(one)
        except (OSError, ValueError) as error:
            self._gone(_why(error))

    def _read(self, peer: Any) -> None:
        peer.settimeout(SILENCE_S)
        try:
            while True:
                frame = wire.receive(peer)
                round_ = wire.integer(frame.get("round"))
                for report in frame["reports"]:
                    self._take(self._number, round_, report)
        except (OSError, ValueError, LookupError, TypeError, wire.Broken) as error:
            self._gone(_why(error))

    def _gone(self, text: str) -> None:
        with self._lock:
            closed, self._closed = self._closed, True
        if not closed:
            self._take(self._number, 0, ["gone", text])


def _why(error: BaseException) -> str:
    """Return one line for people."""
    if isinstance(error, wire.Broken):
        return str(error)
    # socket.timeout is an OSError without a number before Python 3.10, and a TimeoutError without one after.
    if isinstance(error, OSError) and "timed out" in str(error):
        return "it was silent for %.0f s" % SILENCE_S
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return "it sent something that is no report"
