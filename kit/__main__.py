"""`python -m kit`: for a Python whose folder of programs is not on PATH."""

from __future__ import annotations

import sys

# Python has put the current folder first, where a queue.py of yours, or of a stranger, would run in place of Python's.
if not sys.flags.safe_path:
    del sys.path[0]

from kit.cli.entry import main

sys.exit(main())
