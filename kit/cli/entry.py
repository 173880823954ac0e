"""Where the commands kit and gpu-kit begin: a Ctrl-C while Python still imports kit prints no traceback."""

from __future__ import annotations


def main() -> int:
    """Run the command line of this process. Return the exit code.

    Until kit can report a Ctrl-C, it ends the process silently: kit has not done anything yet. A background job of a
    shell ignores it, as before.
    """
    try:
        import signal  # noqa: PLC0415  (all imports are in here, where a Ctrl-C does no harm)

        before = signal.getsignal(signal.SIGINT)
        if before is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        from kit.cli.main import main as run  # noqa: PLC0415

        signal.signal(signal.SIGINT, before)
        return run()
    except KeyboardInterrupt:
        return 130
