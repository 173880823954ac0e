"""Why no SSH session began: what both clients report, as kit's errors with their next steps."""

from __future__ import annotations

import re

from kit.errors import LoginRefusedError, UnreachableError
from kit.model.host import Login
from kit.remote.ssh.openssh import CONNECT_TIMEOUT_S
from kit.remote.ssh.retry import Failure

# The connection was taken and ended before either side identified itself: sshd turned the address away, not the login.
_DROPPED = re.compile(
    r"(kex|ssh)_exchange_identification: (\w+: )?(Connection (closed|reset)|Broken pipe)"
    r"|Error reading SSH protocol banner"
)
# Through a jump host, the same words come when the jump host cannot reach the VM. Then the lines before say so.
_JUMPED = "UNKNOWN port "
_REFUSED = re.compile(r"Permission denied|Too many authentication failures|no mutual signature|sign_and_send_pubkey")
_CHANGED = re.compile(r"REMOTE HOST IDENTIFICATION HAS CHANGED|HOST KEY .* CHANGED")
# A key that a line with @revoked names, or a certificate by an authority that it names.
_REVOKED = re.compile(
    r"REVOKED HOST KEY DETECTED|HOST KEY .* REVOKED|host key .* is marked as revoked|revoked CA", re.I
)
# A line with @cert-authority applies to the host, and its certificate is for another name or time.
_CERTIFICATE = re.compile(r"^Certificate invalid: (?P<why>.*)$", re.MULTILINE)
_UNKNOWN = re.compile(r"No .*host key is known for|Host key verification failed")
_UNRESOLVED = re.compile(r"Could not resolve hostname|Name or service not known")
# sshd did not identify itself in time: ssh's words, and kit's.
_SILENT = re.compile(r"during banner exchange|banner exchange: .*timed out")
SILENT = "connected, but received no SSH banner within {:.0f} s"
_ABSENT = re.compile(r"connect to (host|address) .*(refused|[Nn]o route|reset|unreachable)|Connection (refused|reset)")


def dropped(text: str) -> bool:
    """Return whether the other side hung up before the login."""
    return bool(_DROPPED.search(text)) and _JUMPED not in text


def distrusted(text: str) -> bool:
    """Return whether the host showed a key that is not the pinned one, or none is pinned."""
    return any(kind.search(text) for kind in (_REVOKED, _CERTIFICATE, _CHANGED, _UNKNOWN))


def failure_of(text: str) -> Failure:
    """Classify what OpenSSH's client wrote when it could not begin a session."""
    if dropped(text):
        return "dropped"
    settled = any(kind.search(text) for kind in (_REFUSED, _REVOKED, _CHANGED, _UNKNOWN, _UNRESOLVED))
    return "absent" if _ABSENT.search(text) and not settled else "settled"


def no_session(login: Login, text: str) -> UnreachableError:
    """Return the error for OpenSSH's exit code 255 before anything ran; `text` is what it wrote."""
    lines = text.splitlines()
    last = lines[-1].strip() if lines else "exit 255"
    if dropped(text):
        return dropped_error(login.address, lines[0], login.host)
    if distrusted(text):
        return _key_error(login, text)
    if _REFUSED.search(text):
        return login_refused_error(login, last.removeprefix(f"{login.user}@{login.address}: "))
    if _UNRESOLVED.search(text) and _JUMPED not in text:
        return unresolved_error(login)
    return no_connection_error(login, SILENT.format(CONNECT_TIMEOUT_S) if _SILENT.search(text) else last)


def _key_error(login: Login, text: str) -> UnreachableError:
    """Return the error for a key that known_hosts does not pin, from the strongest reason to the weakest."""
    if _REVOKED.search(text):
        return revoked_key_error(login)
    if certificate := _CERTIFICATE.search(text):
        return certificate_error(login, certificate["why"].strip())
    return changed_key_error(login) if _CHANGED.search(text) else unknown_key_error(login)


def dropped_error(subject: str, text: str, host: str | None) -> UnreachableError:
    """From here nobody sees who hung up, and why: the hint lists the usual causes, and where to read the real one."""
    return UnreachableError(
        f"{subject} hung up before the login: {text}",
        hint="after refused logins sshd shuts an address out for a while (PerSourcePenalties, OpenSSH 9.8 and newer), "
        "as fail2ban does; or it is at its MaxStartups. Wait some minutes, then run the same again. "
        "The cause is in the VM's log, at its console: journalctl -u ssh",
        host=host,
    )


def login_refused_error(login: Login, text: str) -> LoginRefusedError:
    return LoginRefusedError(
        f"{where(login)} refused the login: {text}",
        hint="set user= and key= in the hosts file (or ssh: in kit.yaml), or load the key: ssh-add. "
        f"Then try: ssh {login.address}",
        host=login.host,
    )


def changed_key_error(login: Login) -> UnreachableError:
    file = f"-f {login.known_hosts} " if login.known_hosts else ""
    name = f"'[{login.address}]:{login.port}'" if login.port not in (None, 22) else login.address
    return UnreachableError(
        f"the host key of {where(login)} is not the one in known_hosts: somebody intercepts the connection, "
        "or the VM was recreated",
        hint=f"if it was recreated: ssh-keygen {file}-R {name}, then connect once with ssh",
        host=login.host,
    )


def revoked_key_error(login: Login) -> UnreachableError:
    file = login.known_hosts or "~/.ssh/known_hosts"
    return UnreachableError(
        f"{where(login)} showed a key that known_hosts marks as @revoked: somebody may have stolen this key",
        hint=f"give the VM new host keys, or remove the line with @revoked from {file}",
        host=login.host,
    )


def certificate_error(login: Login, why: str) -> UnreachableError:
    return UnreachableError(
        f"the certificate of {where(login)} is not valid: {why}",
        hint="@cert-authority in known_hosts requires one: sign the VM's host key for this address, and for now",
        host=login.host,
    )


def unknown_key_error(login: Login) -> UnreachableError:
    port = f"-p {login.port} " if login.port else ""
    return UnreachableError(
        f"the host key of {where(login)} is not known here",
        hint=f"connect once and compare the fingerprint: ssh {port}{login.address}",
        host=login.host,
    )


def unresolved_error(login: Login) -> UnreachableError:
    return UnreachableError(
        f"the name {login.address} does not resolve",
        hint="correct it in the hosts file, or write the IP address",
        host=login.host,
    )


def missing_key_error(login: Login) -> UnreachableError:
    return UnreachableError(
        f"the key {login.key} does not exist",
        hint="correct key= in the hosts file or ssh: key: in kit.yaml",
        host=login.host,
    )


def no_connection_error(login: Login, text: str) -> UnreachableError:
    return UnreachableError(
        f"no SSH connection to {where(login)}: {text}",
        hint=f"is the VM up, and does ssh {login.address} work from here?",
        host=login.host,
    )


def broken_error(login: Login, text: str) -> UnreachableError:
    return UnreachableError(
        f"the connection broke: {text}",
        hint=f"try: ssh {login.address}; then run the same again",
        host=login.host,
    )


def where(login: Login) -> str:
    """`user@address:port`, as far as the login states them."""
    port = f":{login.port}" if login.port else ""
    user = f"{login.user}@" if login.user else ""
    return f"{user}{login.address}{port}"
