"""The program that kit sends to a VM: the modules of images/lib/kitwatch as one text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from kit.remote.machine.assets import images_dir
from kit.remote.ssh.program import package, packed

# What only kit blame needs. Its imports come first.
SUSPECTS = ("readiness", "connections", "suspects")
# In the order in which they import each other.
MODULES = ("files", "system", "devices", "cgroups", "gpus", "ranks", "gauges", *SUSPECTS, "look")


@cache
def _modules() -> str:
    return package("kitwatch", images_dir() / "lib" / "kitwatch", MODULES)


def program(order: Mapping[str, Any]) -> bytes:
    """Return what the program reads first: its length, and its text. `order` is that of images/lib/kitwatch/look.py."""
    return packed(f"{_modules()}import json\nsys.modules['kitwatch.look'].main(json.loads({json.dumps(order)!r}))\n")
