"""TensorBoard in a node: the command that starts it there, and what its lines mean."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from kit.model import names
from kit.remote.scripts import in_node

# The guard's exit code where the image has no TensorBoard, as a shell has for a missing command.
MISSING = 127
# The guard's line if the folder of the logs is missing, or no folder.
NO_FOLDER = "kit: no such folder"
_AT = re.compile(r"TensorBoard \S+ at http://\S+?:([0-9]{1,5})/")


@cache
def _program() -> str:
    return Path(__file__).with_name("board_guard.py").read_text(encoding="utf-8")


def argv(container: str, logdir: str) -> Sequence[str]:
    """Return the command that runs TensorBoard in this VM's node, until its standard input ends."""
    return in_node(container, ["python3", "-ISc", _program(), names.IMAGE_LIB, logdir], interactive=True)


def port_of(line: str) -> int | None:
    """Return the port that TensorBoard says it listens on, or None for any other line."""
    match = _AT.search(line)
    return int(match[1]) if match and 0 < int(match[1]) < 65536 else None
