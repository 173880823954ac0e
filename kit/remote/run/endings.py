"""What the end of a connection to kit-launch means: the error to report, with the next step. Pure."""

from __future__ import annotations

from kit.errors import KitError, NoNodeError, NotReadyError, UnreachableError
from kit.model import names
from kit.remote.engine.down import engine_down
from kit.remote.ssh.login_text import without_warnings
from kit.remote.ssh.openssh import SSH_FAILED
from kit.remote.ssh.transport import Completed


def broken(head: str, errors: str, code: int) -> KitError:
    """Return the error for a stream that ended too early. EngineDownError: the run may have survived.

    `errors` and `code` are those of ssh.
    """
    if code == SSH_FAILED:
        return UnreachableError(
            f"the connection to the head broke{f': {_last(errors)}' if errors else ''}",
            hint="check that the VM is up; see how the run is: kit runs",
            host=head,
        )
    return engine_down(errors, head) or NotReadyError(
        f"the launcher ended without a message (exit {code}): its container was stopped or killed",
        hint=f"see kit ps and kit logs {head}, then run: kit deploy",
        host=head,
    )


def no_launcher(head: str, ended: Completed) -> KitError:
    """Return the error for a launcher whose first line did not come, although ssh reached the VM."""
    errors = without_warnings(ended.error_text)
    last = _last(errors) or (ended.text.strip() if ended.code else "") or f"exit {ended.code}"
    if down := engine_down(errors, head):
        return down
    if "sudo" in last:
        hint = "allow the user sudo without a password, or set user=root in the hosts file"
        return NotReadyError(f"the login cannot become root: {last}", hint=hint, host=head)
    if "o such container" in errors or "is not running" in errors:
        hint = names.BRING_BACK
        if "o such container" in errors:
            hint += f". {names.OTHER_HEAD}"
        return NoNodeError(f"no cluster runs here: {last}", hint=hint, host=head)
    message = f"the head's launcher did not start: {last}"
    return NotReadyError(message, hint="check the nodes with kit ps, then run: kit deploy", host=head)


def _last(text: str) -> str:
    return text.splitlines()[-1] if text else ""
