"""`python -m kit`: for a Python whose folder of programs is not on PATH."""

from __future__ import annotations

import sys

from kit.cli.entry import main

sys.exit(main())
