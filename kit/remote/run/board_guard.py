"""Runs TensorBoard in a node as the user of the ranks, until standard input ends.

Arguments: the image's folder of kit's packages, and the folder of TensorBoard's logs. TensorBoard listens on the
loopback only, on a free port, which it prints. It waits for a folder that is missing, so this prints NO_FOLDER then.
"""

import os
import signal
import subprocess
import sys
import threading

MISSING = 127
NO_FOLDER = "kit: no such folder"
# Between SIGTERM and SIGKILL.
GRACE_S = 3.0


def become_user(lib: str) -> None:
    """Become the user of the ranks: what ranks wrote is not read as root."""
    sys.path.insert(0, lib)
    try:
        from kitrun import fence  # noqa: PLC0415  (its folder is known only now)
    except ImportError:
        # An image that is not kit's has no other user.
        return
    fence.become_user()


def end_with_input(child: "subprocess.Popen[bytes]") -> None:
    while os.read(0, 4096):
        pass
    try:
        os.killpg(child.pid, signal.SIGTERM)
        child.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def main(lib: str, logdir: str) -> int:
    become_user(lib)
    if not os.path.isdir(logdir):  # noqa: PTH112  (Path.is_dir fails where the user may not look)
        os.write(1, f"{NO_FOLDER}\n".encode())
    words = ["tensorboard", "--logdir", logdir, "--host", "127.0.0.1", "--port", "0"]
    try:
        child = subprocess.Popen(words, stdin=subprocess.DEVNULL, cwd="/", start_new_session=True)
    except FileNotFoundError:
        return MISSING
    threading.Thread(target=end_with_input, args=(child,), daemon=True).start()
    code = child.wait()
    # As a shell has it: 137 for a program that the kernel killed, such as one that needed too much memory.
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
