"""What ends a host's part of a ship, as an error with its next step."""

from __future__ import annotations

from kit.errors import ImageError, KitError, StepError, UnreachableError
from kit.remote.ship.porters import Porter
from kit.remote.ssh.refusals import dropped, dropped_error

_SSH_FAILED = 255
_NO_SUCH_COMMAND = 127
_AGAIN = "run kit deploy again; it does not send again what has arrived"


def silent(host: str, seconds: float) -> KitError:
    """Return the error for a porter that reports nothing."""
    return UnreachableError(f"it sent nothing for {seconds:.0f} s", hint=_AGAIN, host=host)


def lost(host: str, upstream: str | None, why: str) -> KitError:
    """Return the error for a host that cannot get layers from its last upstream (None: this machine)."""
    text = f"the connection that brings the image broke: {why}"
    if upstream is not None:
        text = f"cannot take the image from {upstream}: {why}"
    hint = "open TCP between the VMs (firewall, security group); then " + _AGAIN
    return UnreachableError(text, hint=hint, host=host)


def not_given(host: str, image: str, why: str) -> KitError:
    """Return the error for a source whose engine does not give the image."""
    hint = "build it: kit image build --builder head, then: kit deploy"
    return ImageError(f"does not give {image}: {why}", hint=hint, host=host)


def failed(host: str, text: str, kind: str) -> KitError:
    """Return the error for a failure of this `kind` that the porter reported."""
    hint = _AGAIN
    if kind == "disk":
        text, hint = f"no space left on its disk: {text}", "free space (docker system prune), then: kit deploy"
    elif kind == "corrupt":
        hint = "its disk or memory may be faulty: check dmesg there, then: kit deploy"
    return StepError(f"the image did not arrive: {text}", hint=hint, host=host)


def ended(host: str, porter: Porter | None) -> KitError:
    """Return the error for a porter that ended by itself: what ssh or the program there wrote last."""
    output = porter.complaint() if porter else ""
    code = porter.exit_code if porter else None
    last = output.splitlines()[-1] if output else f"exit code {code}"
    if code == _NO_SUCH_COMMAND or "python3" in last:
        return StepError(
            f"the host cannot receive the image: {last}",
            hint="install Python 3.6 or newer on the VM: sudo apt-get install python3",
            host=host,
        )
    if code == _SSH_FAILED and dropped(output):
        return dropped_error("its sshd", output.splitlines()[0], host)
    if code == _SSH_FAILED:
        return UnreachableError(f"the connection broke: {last}", hint=_AGAIN, host=host)
    return StepError(f"the image did not arrive: {last}", hint=_AGAIN, host=host)
