"""For all tests: Ctrl-C works in them, however they were started."""

from __future__ import annotations

import signal

# A shell's background job ignores SIGINT, and so would every kit that a test starts and interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
