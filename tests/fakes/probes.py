"""The probe of kit doctor on a VM in memory: what it answers depends on the links of its fleet."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kit.remote.doctor.probes import program
from kit.remote.ssh.transport import Live

if TYPE_CHECKING:
    from tests.fakes.vm import FakeVM

CONTROL, PACKETS = 40001, 40002
RATE, TRIP_S = 1.25e9, 1e-4


@dataclass
class FakeLink:
    """From one VM to another. A port in `closed` times out; "control" is that of the probe."""

    closed: set[int | str] = field(default_factory=set)
    mtu: int = 1500
    rate: float = RATE
    trip_s: float = TRIP_S
    # How long an end waited for a core, in a stream of a second.
    waited_s: float = 0.0
    resolved: list[str] | None = None
    # What it is like after the first measurement.
    again: FakeLink | None = None


@dataclass
class FakeProbe:
    """One VM's probe. `measured` is called with the targets of each measurement."""

    vm: FakeVM

    def serve(self, live: Live) -> int:
        assert live.stdin is not None
        reader = live.stdin()
        data = b""
        header = program()
        while part := reader.read(1 << 16):
            data += part
            if len(data) < len(header):
                continue
            *lines, rest = data[len(header) :].split(b"\n")
            data = header + rest
            for line in lines:
                order = json.loads(line)
                does: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
                    "hello": self._hello,
                    "listen": self._listen,
                    "reach": self._reach,
                    "packets": self._packets,
                    "measure": self._measure,
                    "stay": lambda _: {},
                    "close": lambda _: {},
                }
                answer = does[order["do"]](order) | {"serial": order["serial"]}
                live.out(self.vm.probe_answers.get(order["do"], json.dumps(answer).encode()) + b"\n")
        return 0

    def _link(self, address: str) -> FakeLink:
        target = self.vm.fleet.at(address)
        return self.vm.links.get(target.host.name, FakeLink()) if target else FakeLink(closed={"control"})

    def _hello(self, _order: dict[str, Any]) -> dict[str, Any]:
        rows = [["lo", "127.0.0.1/8", 65536], ["eth0", f"{self.vm.internal}/16", 1500]]
        return {"name": self.vm.host.name, "interfaces": rows, "route": "eth0"}

    def _listen(self, order: dict[str, Any]) -> dict[str, Any]:
        return {"ports": [[first, ""] for first, _, _ in order["ports"]], "control": CONTROL, "packets": PACKETS}

    def _reach(self, order: dict[str, Any]) -> dict[str, Any]:
        faults = [
            "ETIMEDOUT" if {port, "control" if port == CONTROL else port} & self._link(address).closed else ""
            for address, port in order["targets"]
        ]
        names = []
        for name in order["names"]:
            link = self.vm.links.get(name, FakeLink())
            names.append([self.vm.fleet[name].internal] if link.resolved is None else link.resolved)
        return {"faults": faults, "names": names}

    def _packets(self, order: dict[str, Any]) -> dict[str, Any]:
        return {"local": 1500, "largest": [self._link(address).mtu for address, _ in order["targets"]]}

    def _measure(self, order: dict[str, Any]) -> dict[str, Any]:
        address, port = order["target"]
        target = self.vm.fleet.at(address)
        assert target is not None
        assert port == CONTROL
        there, back = self._link(address), target.links.get(self.vm.host.name, FakeLink())
        self.vm.links[target.host.name] = there.again or there
        target.links[self.vm.host.name] = back.again or back
        return {
            "rtt": there.trip_s,
            "clock": target.clock_s - self.vm.clock_s,
            "there": [there.rate, 1.0, there.waited_s],
            "back": [back.rate, 1.0, back.waited_s],
        }
