"""Run one of the programs: `python3 FOLDER smi|hook|runtime|gpus …`."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def main() -> int:
    program, argv = sys.argv[1], sys.argv[2:]
    if program == "smi":
        from pretended import smi as chosen
    elif program == "hook":
        from pretended import hook as chosen  # type: ignore[no-redef]
    elif program == "runtime":
        from pretended import runtime as chosen  # type: ignore[no-redef]
    else:
        from pretended import gpus as chosen  # type: ignore[no-redef]
    return chosen.main(argv)


sys.exit(main())
