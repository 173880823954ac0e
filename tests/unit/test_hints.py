"""Commands that hints give: they work for each login that kit supports."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NEEDS_ROOT = re.compile(r"kit ssh \S+ -- (?:docker|apt-get|snap|dpkg)\b")


def test_commands_that_need_root_have_sudo() -> None:
    """kit becomes root for its own steps. `kit ssh` does not, and the user is often in no group docker."""
    files = [*ROOT.glob("kit/**/*.py"), *ROOT.glob("docs/**/*.md"), ROOT / "README.md"]
    without = [
        f"{file.relative_to(ROOT)}: {hit}" for file in files for hit in NEEDS_ROOT.findall(file.read_text("utf-8"))
    ]
    assert without == []
