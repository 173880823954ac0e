"""Lets a Python rank tell where it stands: on a signal it writes the stack of each of its threads to a file.

kit.pth brings it into every Python of the image; it does something in ranks only. The signal works while the rank is
deep in C code, too, needs no rights to look into other processes, and is used by nobody else. kitrun.procs reads the file.
"""

import os

if os.environ.get("KIT_RUN") and os.environ.get("OMPI_COMM_WORLD_RANK"):
    try:
        import faulthandler
        import signal

        os.makedirs("/run/kit/stacks", mode=0o700, exist_ok=True)
        _FILE = open("/run/kit/stacks/%d" % os.getpid(), "w")
        faulthandler.register(signal.SIGRTMAX - 3, file=_FILE, all_threads=True)
    except (AttributeError, ImportError, OSError, RuntimeError, ValueError):
        # A rank that cannot tell is still a rank.
        pass
