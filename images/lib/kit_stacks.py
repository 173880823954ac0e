"""Makes a Python rank write the stack of each of its threads to a file when it gets a signal.

kit.pth imports this into every Python of the image; it acts only in ranks. The signal works while the rank is deep in C
code, too, needs no rights to look into other processes, and has no other use. kitrun.stacks reads the file.
"""

import os

if os.environ.get("KIT_RUN") and (os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ.get("RANK")):
    try:
        import faulthandler
        import signal

        os.makedirs("/run/kit/stacks", mode=0o700, exist_ok=True)
        _FILE = open("/run/kit/stacks/%d" % os.getpid(), "w")  # noqa: SIM115  (open as long as the rank)
        faulthandler.register(signal.SIGRTMAX - 3, file=_FILE, all_threads=True)
    except (AttributeError, ImportError, OSError, RuntimeError, ValueError):
        # A rank that cannot show its stack is still a rank.
        pass
