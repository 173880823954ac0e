"""What the probe of kit tune prints on a host. `read` may raise only KitError."""

from __future__ import annotations

import math

from kit.remote.ssh.transport import Completed
from kit.remote.tune.wire import rate_of

SAMPLES: tuple[bytes, ...] = (
    b'{"received": 1250000000, "seconds": 10.25}\n',
    b'{"received": 0, "seconds": 0.5}\n',
    b'{"received": 0, "seconds": 0.0}\n',
)


def read(answer: bytes) -> None:
    """Read the rate of one host. It is a number that later steps can use."""
    rate = rate_of(Completed(code=0, stdout=answer, stderr=b""), "gpu1")
    if not math.isfinite(rate) or rate < 0:
        raise AssertionError(f"the rate is {rate}")
