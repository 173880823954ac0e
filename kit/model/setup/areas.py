"""The areas of `kit setup`: what it can set up on a VM."""

from __future__ import annotations

from typing import Literal, get_args

# In the order in which they are done.
Area = Literal["docker", "driver", "toolkit", "sysctl", "clocks", "hugepages", "mtu"]
AREAS: tuple[Area, ...] = get_args(Area)
