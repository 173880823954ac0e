"""The errors of a host on which no stager can start, or on which it ended."""

from __future__ import annotations

from kit.errors import KitError, NotReadyError, StepError, UnreachableError
from kit.remote.cluster.mountfaults import mount_fault


class StagerGone(StepError):
    """The stager, or the program that carries its answers, ended in the middle of an order."""


def is_broken(error: KitError) -> bool:
    """Return whether an error only says that the connection ended: the staging may go on."""
    return isinstance(error, UnreachableError | StagerGone)


class NotRunning(NotReadyError):
    """No stager runs on the host."""


def refusal(word: str, text: str, data: str, host: str) -> KitError:
    """Return the error of a host whose script refused to start a stager. `text` is what it wrote to standard error."""
    # Docker's client ends its complaint with a hint at its own help.
    lines = [line for line in text.splitlines() if line.strip() and "docker run --help" not in line]
    last = lines[-1] if lines else ""
    fault = mount_fault(text, "", host)
    if fault is not None:
        return StepError(f"{data} cannot be read: {fault.text}", hint=fault.hint, host=host)
    if word == "no-source":
        path = text.rpartition("does not exist: ")[2].splitlines()[0].rstrip(".") if text else "its folder"
        return StepError(f"{path} does not exist here", hint=f"check from: of {data} in kit.yaml", host=host)
    if word == "folder":
        return StepError(last, hint=f"dir: of {data} in kit.yaml names it; look at it: kit ssh {host}", host=host)
    if word == "not-running":
        return NotRunning(f"{data} is not being staged", hint="see what is staged: kit data ls", host=host)
    not_ready = {
        "no-node": ("no cluster is deployed here", "run: kit deploy"),
        "no-fuse": (
            "the kernel has no FUSE, which rclone mounts with",
            f"load it: kit ssh {host} -- sudo modprobe fuse",
        ),
        "not-shared": (
            "containers cannot mount anything here: the mount of / is private",
            f"share it: kit ssh {host} -- sudo mount --make-rshared /",
        ),
        "no-stager": ("the cluster's image has no stager: an older kit built it", "run: kit deploy"),
        # Its stager knows no order with a hello, which every kit with that order understands.
        "version": ("the cluster's image has the stager of an older kit", "run: kit deploy"),
        "mounted": (f"{data} is still mounted here", f"unmount it first: kit data rm {data}"),
        "staging": (
            f"{data} is being staged here, as an earlier kit.yaml says",
            "wait until it has ended: kit data ls",
        ),
        "removed": (f"another kit removes {data} here", "wait until it has ended"),
    }
    if word in not_ready:
        message, hint = not_ready[word]
        return NotReadyError(message, hint=hint, host=host)
    hint = f"look at the host's engine: kit ssh {host} -- sudo docker ps"
    return StepError(f"the stager cannot start: {last or word}", hint=hint, host=host)
