"""What a rank tries in test_security.py. Prints a JSON object: each attack, and what it achieved. Sent as text."""

# ruff: noqa: PTH101, PTH108, PTH116, PTH118, PTH123, S103, T201
from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import socket
import stat
import subprocess
from collections.abc import Callable

LIBC = ctypes.CDLL(None, use_errno=True)


def outcome(attack: Callable[[], str | None]) -> str:
    """Return what the attack returns or `done`, or the name of its error."""
    try:
        return attack() or "done"
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))


def write(folder: str, name: str = ".it-attack") -> None:
    path = os.path.join(folder, name)
    with open(path, "w"):
        pass
    os.unlink(path)


def mount() -> None:
    if LIBC.mount(b"none", b"/mnt", b"tmpfs", 0, None):
        raise OSError(ctypes.get_errno(), "mount")


def become_root_again() -> str:
    """Let another user run a set-user-ID program of root. Return the program's effective user."""
    before = os.stat("/tmp")
    program = "/tmp/it-set-user-id"
    try:
        os.chmod("/tmp", 0o1777)
        shutil.copyfile(os.path.realpath("/usr/bin/python3"), program)
        os.chmod(program, 0o4755)
        words = ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", program]
        done = subprocess.run([*words, "-IS", "-c", "import os; print(os.geteuid())"], capture_output=True, check=False)
        return done.stdout.decode().strip() or done.stderr.decode()
    finally:
        os.unlink(program)
        os.chmod("/tmp", stat.S_IMODE(before.st_mode))


def run_from_tmp() -> None:
    shutil.copyfile("/bin/true", "/tmp/it-true")
    os.chmod("/tmp/it-true", 0o755)
    subprocess.run(["/tmp/it-true"], check=True)
    os.unlink("/tmp/it-true")


with open("/proc/self/status") as file:
    status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
print(
    json.dumps(
        {
            "raw socket": outcome(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).close()),
            "packet socket": outcome(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close()),
            "mount": outcome(mount),
            "device": outcome(lambda: os.mknod("/tmp/it-null", 0o600 | stat.S_IFCHR, os.makedev(1, 3))),
            "write into /usr": outcome(lambda: write("/usr/bin")),
            "write into /etc": outcome(lambda: write("/etc")),
            "write into kit's programs": outcome(lambda: write("/opt/kit/bin")),
            "write into /etc/kit": outcome(lambda: write("/etc/kit/ssh")),
            "effective user after a set-user-ID program": outcome(become_root_again),
            "no_new_privs": status["NoNewPrivs"],
            "seccomp": status["Seccomp"],
            "bounding": status["CapBnd"],
            "program in /tmp": outcome(run_from_tmp),
            "write into /var/tmp": outcome(lambda: write("/var/tmp")),
            "write into HOME": outcome(lambda: write(os.environ["HOME"])),
            "write into /run": outcome(lambda: write("/run")),
            "write into the working folder": outcome(lambda: write(".")),
        }
    )
)
