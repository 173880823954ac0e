"""What ssh's last words mean where no session came about, in kit's words; for both of its clients."""

from __future__ import annotations

import re

from kit.errors import LoginRefusedError, UnreachableError
from kit.model.host import Login

# The connection was taken and ended before either side said who it is: the address was turned away, not the login.
_DROPPED = re.compile(
    r"(kex|ssh)_exchange_identification: (\w+: )?(Connection (closed|reset)|Broken pipe)"
    r"|Error reading SSH protocol banner"
)
# Through a jump host the same words come where that one does not reach the VM: then the lines before tell it.
_JUMPED = "UNKNOWN port "
_REFUSED = re.compile(r"Permission denied \(|Too many authentication failures")


def dropped(said: str) -> bool:
    """Whether the other side hung up before the login."""
    return bool(_DROPPED.search(said)) and _JUMPED not in said


def dropped_error(where: str, said: str, host: str | None) -> UnreachableError:
    """From here it cannot be seen who hung up, and why: so this tells what is usual, and where it stands written."""
    return UnreachableError(
        f"{where} hung up before the login: {said}",
        hint="after refused logins sshd shuts an address out for a while (PerSourcePenalties, OpenSSH 9.8 and newer), "
        "as fail2ban does; or it is at its MaxStartups. Wait some minutes, then the same again. "
        "Why is on the VM, seen from its console: journalctl -u ssh",
        host=host,
    )


def no_session(login: Login, said: str) -> UnreachableError:
    """OpenSSH's client ended with 255 before anything ran; `said` is what it wrote."""
    lines = said.splitlines()
    if dropped(said):
        return dropped_error(login.address, lines[0], login.host)
    kind = LoginRefusedError if _REFUSED.search(said) else UnreachableError
    return kind(
        f"no SSH connection to {login.address}: {lines[-1] if lines else 'exit 255'}",
        hint=f"does ssh {login.address} work from here?",
        host=login.host,
    )
