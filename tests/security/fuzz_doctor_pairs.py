"""What the probes of kit doctor answer, and what the checks make of it. `read` may raise only KitError."""

from __future__ import annotations

import json
import math
from typing import Any

from kit.config.validate import spec_from
from kit.model.answer import OddAnswer, answer_of
from kit.model.doctor import Examined, PairSeen, Port
from kit.plan.doctor.checks import CHECKS
from kit.remote.doctor import answers

SPEC = spec_from({"name": "lab"})


def line(what: str, **words: Any) -> bytes:
    return f"{what} {json.dumps({'serial': 7, **words})}\n".encode()


SAMPLES: tuple[bytes, ...] = (
    line("hello", name="gpu1", interfaces=[["lo", "127.0.0.1/8", 65536], ["eth0", "10.0.0.4/24", 9000]], route="eth0"),
    line("listening", ports=[[33, ""], [1024, "EACCES"]], control=40001, packets=40002),
    line("reached", faults=["", "ETIMEDOUT"], names=[["10.0.0.4"], None]),
    line("packets", local=1500, largest=[1500, None]),
    line("measured", rtt=0.0001, clock=-0.5, there=[1e9, 0.2, 0.0], back=[37500000, 0.3, 0.1]),
    line("measured", fault="EPROTO"),
    line("hello", failed="[Errno 99] Cannot assign requested address"),
)


def read(text: bytes) -> None:
    """Decode a line as an examination does, and judge what it says."""
    what, _, answer = text.partition(b" ")
    with answer_of("gpu1", "what the probe measured"):
        serial, failed = answers.serial_of(answer)
        if serial != 7 or failed is not None:
            raise OddAnswer("it failed", failed or answer)
        pair = _pair(what, answer)
    back = PairSeen(source="gpu2", target="gpu1", address="10.0.0.4", mtu=1500, mtu_local=1500, rate=1e9, rtt_s=1e-4)
    for check in CHECKS:
        if check.measures:
            for sight in check.judge(Examined(spec=SPEC, hosts=(), pairs=(pair, back), pairing="all")):
                assert isinstance(sight.seen, str)


def _pair(what: bytes, answer: bytes) -> PairSeen:
    values: dict[str, Any] = {}
    match what:
        case b"hello":
            answers.hello(answer)
        case b"listening":
            answers.listening(answer, 2)
        case b"reached":
            reached = answers.reached(answer, 2, 2)
            numbers = zip((33, 40001), reached.faults, strict=True)
            values["ports"] = tuple(Port(number=number, open=not fault, fault=fault) for number, fault in numbers)
            values["resolved"] = reached.names[0] or ()
        case b"packets":
            packets = answers.packets(answer, 2)
            values |= {"mtu": packets.largest[0], "mtu_local": packets.local}
        case _:
            measured = answers.measured(answer)
            if not isinstance(measured, str):
                if not math.isfinite(measured.there.rate + measured.back.rate + measured.clock_s):
                    raise AssertionError("a value is not finite")
                values |= {"rtt_s": measured.rtt_s, "rate": measured.there.rate, "clock_s": measured.clock_s}
                values["clock_error_s"] = measured.rtt_s / 2
    return PairSeen(source="gpu1", target="gpu2", address="10.0.0.5", **values)
