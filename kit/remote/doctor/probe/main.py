"""Does the orders of kit.

An order is a line of JSON on standard input, and gets one line of JSON with the same `serial`. The program ends with
its input, which ends with the connection, or if no order comes for LIFE_S. A probe that only answers its peers for that
long gets the order to stay.
"""

import errno
import json
import os
import queue
import signal
import socket
import sys
import threading
from typing import Any, Callable, Dict, List, Optional

from .door import Door
from .host import default_route, interfaces, route_mtu
from .measure import measure
from .packets import largest_packets
from .reach import reach, resolved
from .wire import LARGEST, Stranger, word_of

LIFE_S = 120


class Probe:
    """Does the orders."""

    def __init__(self) -> None:
        self.secret = b""
        self.door: Optional[Door] = None

    def hello(self, order: Dict[str, Any]) -> Dict[str, Any]:
        self.secret = bytes.fromhex(order["secret"])
        return {"name": socket.gethostname(), "interfaces": interfaces(), "route": default_route()}

    def listen(self, order: Dict[str, Any]) -> Dict[str, Any]:
        self.door = door = Door(order["address"], self.secret)
        return {
            "ports": [door.open(first, last, taken) for first, last, taken in order["ports"]],
            "control": door.control.getsockname()[1],
            "packets": door.packets.getsockname()[1],
        }

    def reach(self, order: Dict[str, Any]) -> Dict[str, Any]:
        names: List[Optional[List[str]]] = []
        resolving = threading.Thread(target=lambda: names.extend(resolved(order["names"])), daemon=True)
        resolving.start()
        faults = reach([(address, port) for address, port in order["targets"]], order["seconds"])
        resolving.join()
        return {"faults": faults, "names": names}

    def packets(self, order: Dict[str, Any]) -> Dict[str, Any]:
        targets = [(address, port) for address, port in order["targets"]]
        local = order["mtu"] or route_mtu(targets[0])
        return {"local": min(local, LARGEST), "largest": largest_packets(self.opened(), targets, local)}

    def measure(self, order: Dict[str, Any]) -> Dict[str, Any]:
        address, port = order["target"]
        try:
            return measure(self.opened(), (address, port), order["seconds"])
        except Stranger:
            return {"fault": "EPROTO"}
        except OSError as error:
            return {"fault": word_of(error.errno or errno.ETIMEDOUT)}

    def stay(self, _order: Dict[str, Any]) -> Dict[str, Any]:
        return {}

    def close(self, _order: Dict[str, Any]) -> Dict[str, Any]:
        self.opened().close()
        return {}

    def opened(self) -> Door:
        if self.door is None:
            raise ValueError("there was no order to listen")
        return self.door


def main() -> None:
    probe = Probe()
    does: Dict[str, Callable[[Dict[str, Any]], Dict[str, Any]]] = {
        "hello": probe.hello,
        "listen": probe.listen,
        "reach": probe.reach,
        "packets": probe.packets,
        "measure": probe.measure,
        "stay": probe.stay,
        "close": probe.close,
    }
    orders: "queue.Queue[Any]" = queue.Queue()

    def read() -> None:
        for line in sys.stdin.buffer:
            orders.put(line)
        # The connection has ended: so does every measurement.
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while True:
        signal.alarm(LIFE_S)
        order = json.loads(orders.get().decode())
        try:
            answer = does[order["do"]](order)
        except (OSError, ValueError, KeyError) as error:
            answer = {"failed": str(error)}
        answer["serial"] = order["serial"]
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
