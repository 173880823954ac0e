"""The program that kit sends to a VM: the modules of images/lib/kitwatch as one text."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from functools import cache
from typing import Any

from kit.remote.machine.assets import images_dir

# What only kit blame needs. Its imports come first.
SUSPECTS = ("readiness", "connections", "suspects")
# In the order in which they import each other.
MODULES = ("files", "system", "devices", "cgroups", "gpus", "ranks", "gauges", *SUSPECTS, "look")
# The command line only reads the program; its text comes on standard input.
BOOTSTRAP = "import sys, zlib; r = sys.stdin.buffer; exec(zlib.decompress(r.read(int(r.readline()))))"
ARGV = ("python3", "-Ic", BOOTSTRAP)


@cache
def _modules() -> str:
    folder = images_dir() / "lib" / "kitwatch"
    sources = {name: (folder / f"{name}.py").read_text(encoding="utf-8") for name in MODULES}
    return (
        "import json, sys, types\n"
        "top = sys.modules['kitwatch'] = types.ModuleType('kitwatch')\n"
        "top.__path__ = []\n"
        f"for name, source in {sources!r}.items():\n"
        "    made = sys.modules['kitwatch.' + name] = types.ModuleType('kitwatch.' + name)\n"
        "    made.__package__ = 'kitwatch'\n"
        "    setattr(top, name, made)\n"
        "    exec(compile(source, 'kitwatch/' + name + '.py', 'exec'), made.__dict__)\n"
    )


def program(order: Mapping[str, Any]) -> bytes:
    """Return what the program reads first: its length, and its text. `order` is that of images/lib/kitwatch/look.py."""
    text = f"{_modules()}sys.modules['kitwatch.look'].main(json.loads({json.dumps(order)!r}))\n"
    packed = zlib.compress(text.encode(), 9)
    return b"%d\n" % len(packed) + packed
