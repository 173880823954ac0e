"""Why no SSH session began: what both clients report, as kit's errors with their next steps."""

from __future__ import annotations

import os
import re
import shlex

from kit.errors import LoginRefusedError, UnreachableError
from kit.model.host import Login
from kit.remote.ssh.locked import LockedKey
from kit.remote.ssh.login_errors import MOST_SHOWN, csh_error, login_refused_error, unsigned_error, unused_key_error
from kit.remote.ssh.openssh import CONNECT_TIMEOUT_S, by_hand, where
from kit.remote.ssh.retry import Failure
from kit.remote.ssh.transport import CSH

# The connection was taken and ended before either side identified itself: sshd turned the address away, not the login.
_DROPPED = re.compile(
    r"(kex|ssh)_exchange_identification: (\w+: )?(Connection (closed|reset)|Broken pipe)"
    r"|Error reading SSH protocol banner"
)
# Beside that, at LogLevel INFO or by a jump host's ssh; and what ssh writes of a kept connection that is gone.
_BESIDE = re.compile(r"^(Connection (closed|reset) by |Control ?[Ss]ocket |mux_?client)")
_REFUSED = re.compile(r"Permission denied|Too many authentication failures|no mutual signature|sign_and_send_pubkey")
# The VM accepts keys, and ssh had none that it accepts.
_BY_KEY = re.compile(r"Permission denied \([^)]*publickey")
# ssh writes the cause itself, in a line before the last one.
_CAUSE = re.compile(r"Too many authentication failures|no mutual signature|sign_and_send_pubkey")
_UNSIGNED = re.compile(r"sign_and_send_pubkey: .*(agent refused operation|communication with agent failed)")
_CHANGED = re.compile(r"REMOTE HOST IDENTIFICATION HAS CHANGED|HOST KEY .* CHANGED")
# ssh writes both with the file and the name in which it looked.
_CHANGED_FOR = re.compile(r"^(Host|\S+ host) key for (?P<name>[\w.:\[][\w.:%\[\]-]*) has changed", re.MULTILINE)
_OFFENDING = re.compile(r"^Offending \S+ key in (?P<file>/.+):[0-9]+$", re.MULTILINE)
# A key that a line with @revoked names, or a certificate by an authority that it names.
_REVOKED = re.compile(
    r"REVOKED HOST KEY DETECTED|HOST KEY .* REVOKED|host key .* is marked as revoked|revoked CA", re.I
)
# A line with @cert-authority applies to the host, and its certificate is for another name or time.
_CERTIFICATE = re.compile(r"^Certificate invalid: (?P<why>.*)$", re.MULTILINE)
_UNKNOWN = re.compile(r"No .*host key is known for|Host key verification failed")
# ssh itself refuses to run, whatever the VM: a container of CI often has a user id that its /etc/passwd lacks.
_NOBODY = re.compile(r"^No user exists for uid (?P<uid>[0-9]+)$|^You don't exist, go away!$", re.MULTILINE)
# Why ssh did not offer a key, which it writes before the refusal.
_UNUSED = re.compile(r'^Load key "(?P<key>[^"\n]+)": (?P<why>[^\n]+?)\r?$', re.MULTILINE)
_UNRESOLVED = re.compile(r"Could not resolve hostname|Name or service not known")
# sshd did not identify itself in time: ssh's words, and kit's.
_SILENT = re.compile(r"during banner exchange|banner exchange: .*timed out")
SILENT = "connected, but received no SSH banner within {:.0f} s"
_ABSENT = re.compile(r"connect to (host|address) .*(refused|[Nn]o route|reset|unreachable)|Connection (refused|reset)")

# A line of ssh_config, or an option of kit's, that this machine's ssh does not know. It then only counts them.
_BAD_OPTION = re.compile(
    r"^(?P<file>.+): line (?P<line>[0-9]+): Bad configuration option: (?P<option>\S+)$", re.MULTILINE
)

# Through a jump host, ssh only sees that the connection ends. The jump host's ssh writes why, in the lines before.
_NOT_PASSED = re.compile(r"open failed: |forwarding failed|connect to (host|address) |Unable to negotiate")
# What the jump host reports of the VM may change soon.
_PASSING = re.compile(r"open failed: connect failed: ")
# These lines only repeat what another one says better.
_EMPTY_WORDS = re.compile(r"^(stdio forwarding failed|Host key verification failed\.?)$|^@|^IT IS POSSIBLE")
# How much is shown of what another program wrote.
_MOST_LINES = 5


def dropped(text: str, *, proxied: bool = False) -> bool:
    """Return whether the other side hung up before the login. `proxied`: ssh used a proxy."""
    return bool(_DROPPED.search(text)) and not proxy_cause(text, proxied=proxied)


def keys_refused(text: str) -> bool:
    """Return whether the other side refused the login by key, and ssh does not say why."""
    return bool(_BY_KEY.search(text)) and not _CAUSE.search(text)


def is_bare(text: str) -> bool:
    """Return whether ssh wrote only that the other side hung up before the login."""
    return bool(_DROPPED.search(text)) and not _before_drop(text)


def proxy_cause(text: str, *, proxied: bool = False) -> str:
    """Return why the proxy did not reach the VM, or "" if `text` does not say so.

    A jump host's ssh writes what kit knows. With `proxied`, any other line counts, too: a ProxyCommand wrote it.
    Without that, it may be a warning of ssh itself.
    """
    lines = _before_drop(text)
    known = [line for line in lines if _is_failure(line)]
    if known:
        return next((line for line in reversed(known) if not _EMPTY_WORDS.search(line)), known[-1])[:MOST_SHOWN]
    return " ".join(lines[-_MOST_LINES:])[-MOST_SHOWN:] if proxied else ""


def reason(text: str) -> str:
    """Return the line of ssh's that says best why there is no connection, or ""."""
    *_, last = text.splitlines() or [""]
    return proxy_cause(text) or last.strip()


def _before_drop(text: str) -> list[str]:
    """Return the lines before the last one that says that the other side hung up, without those of _BESIDE."""
    lines = [line.strip() for line in text.splitlines()]
    drops = [number for number, line in enumerate(lines) if _DROPPED.search(line)]
    before = lines[: drops[-1]] if drops else []
    return [line for line in before if line and not _DROPPED.search(line) and not _BESIDE.search(line)]


def _is_failure(line: str) -> bool:
    kinds = (_NOT_PASSED, _REFUSED, _REVOKED, _CHANGED, _CHANGED_FOR, _UNKNOWN, _UNRESOLVED, _ABSENT)
    return any(kind.search(line) for kind in kinds)


def distrusted(text: str) -> bool:
    """Return whether the host showed a key that is not the pinned one, or none is pinned."""
    return any(kind.search(text) for kind in (_REVOKED, _CERTIFICATE, _CHANGED, _UNKNOWN))


def failure_of(text: str, *, proxied: bool = False) -> Failure:
    """Classify what OpenSSH's client wrote when it could not begin a session. `proxied`: ssh used a proxy."""
    if dropped(text, proxied=proxied):
        return "dropped"
    settled = any(kind.search(text) for kind in (_REFUSED, _REVOKED, _CHANGED, _UNKNOWN, _UNRESOLVED))
    cause = proxy_cause(text, proxied=proxied)
    # Nobody knows what other programs write: another attempt may help, and many attempts may count as refused logins.
    unsure = bool(cause) and not _is_failure(cause)
    absent = unsure or any(kind.search(cause or text) for kind in (_ABSENT, _PASSING))
    return "absent" if absent and not settled else "settled"


def no_session(  # noqa: PLR0911  (one for each kind of failure)
    login: Login, text: str, *, proxy: str = "", locked: LockedKey | None = None
) -> UnreachableError:
    """Return the error for OpenSSH's exit code 255 before anything ran; `text` is what it wrote.

    `proxy` is how ssh_config reaches the VM, such as `ProxyJump bastion`, or "". `locked` is a key for it that ssh
    cannot use without its passphrase.
    """
    # ssh ends its own lines for a terminal, also if it writes to none.
    text = text.replace("\r\n", "\n")
    if CSH in text.splitlines():
        return csh_error(login)
    if option := _BAD_OPTION.search(text):
        return bad_option_error(login, option["file"], option["line"], option["option"])
    if cause := proxy_cause(text, proxied=bool(proxy)):
        return proxy_error(login, proxy, cause)
    lines = text.splitlines()
    last = lines[-1].strip() if lines else "exit 255"
    if dropped(text):
        return dropped_error(login.address, text, login.host, proxy=proxy)
    if distrusted(text):
        return _key_error(login, text)
    if _REFUSED.search(text):
        return _refused_error(login, text, locked)
    if _UNRESOLVED.search(text):
        return unresolved_error(login)
    if _NOBODY.search(text):
        return nobody_error(login, last)
    return no_connection_error(login, SILENT.format(CONNECT_TIMEOUT_S) if _SILENT.search(text) else last)


def _refused_error(login: Login, text: str, locked: LockedKey | None) -> LoginRefusedError:
    """Return the error for a refused login, by the cause that ssh wrote before its last line."""
    # The ssh of a ProxyJump names its own keys first.
    unused = next((line for line in _UNUSED.finditer(text) if login.key in (None, line["key"])), None)
    if unused is not None:
        return unused_key_error(login, unused["key"], unused["why"][:MOST_SHOWN])
    lines = [line.strip() for line in reversed(text.splitlines())]
    line = next((line for line in lines if _CAUSE.search(line)), lines[0])
    if _UNSIGNED.search(line):
        return unsigned_error(login, line)
    # ssh doubles each backslash, as in CORP\ann.
    user = (login.user or "").replace("\\", "\\\\")
    return login_refused_error(login, line.removeprefix(f"{user}@{login.address}: "), locked=locked)


def _key_error(login: Login, text: str) -> UnreachableError:
    """Return the error for a key that known_hosts does not pin, from the strongest reason to the weakest."""
    if _REVOKED.search(text):
        return revoked_key_error(login)
    if certificate := _CERTIFICATE.search(text):
        return certificate_error(login, certificate["why"].strip())
    return changed_key_error(login, text) if _CHANGED.search(text) else unknown_key_error(login)


def dropped_error(subject: str, text: str, host: str | None, *, proxy: str = "") -> UnreachableError:
    """From here nobody sees who hung up, and why: the hint lists the usual causes, and where to read the real one."""
    line = next((line for line in reversed(text.splitlines()) if _DROPPED.search(line)), text)
    through = f". Or it was {proxy} of your ssh_config that hung up" if proxy else ""
    return UnreachableError(
        f"{subject} hung up before the login: {line}",
        hint="after refused logins sshd shuts an address out for a while (PerSourcePenalties, OpenSSH 9.8 and newer), "
        "as fail2ban does; or it is at its MaxStartups. Wait some minutes, then run the same again. "
        f"The cause is in the VM's log, at its console: journalctl -u ssh{through}",
        host=host,
    )


def proxy_error(login: Login, proxy: str, cause: str) -> UnreachableError:
    """Return the error for a proxy of ssh_config that did not reach the VM. `proxy` may be unknown, then it is ""."""
    kind = LoginRefusedError if _REFUSED.search(cause) else UnreachableError
    # Its words may be a banner or a warning.
    beside = "" if _is_failure(cause) else ". If its proxy works, the VM hung up: journalctl -u ssh at its console"
    return kind(
        f"no SSH connection to {where(login)}; its proxy wrote: {cause}",
        hint=f"your ssh_config reaches it by {proxy or 'ProxyJump or ProxyCommand'}. Try: {by_hand(login)}{beside}",
        host=login.host,
    )


def bad_option_error(login: Login, file: str, line: str, option: str) -> UnreachableError:
    """Return the error for an option that this machine's ssh does not know. ssh calls kit's own `command-line`."""
    if file == "command-line":
        return UnreachableError(
            f"ssh on this machine does not know kit's option {option}",
            hint="kit needs OpenSSH 7.6 or newer on this machine; see yours: ssh -V",
            host=login.host,
        )
    return UnreachableError(
        f"ssh on this machine refuses {file}, line {line}: Bad configuration option: {option}",
        hint=f"remove the line, or write above it: IgnoreUnknown {option}",
        host=login.host,
    )


def changed_key_error(login: Login, text: str) -> UnreachableError:
    """Return the error for another key than the pinned one.

    `text` is what ssh wrote: it names the file, and the host as that file calls it. An alias of ssh_config has another
    name there.
    """
    changed, offending = _CHANGED_FOR.search(text), _OFFENDING.search(text)
    file = offending["file"] if offending else login.known_hosts
    name = changed["name"] if changed else known_name(login.address, login.port)
    remove = shlex.join(["ssh-keygen", *(["-f", file] if file else []), "-R", name])
    return UnreachableError(
        f"the host key of {where(login)} is not the one in known_hosts: somebody intercepts the connection, "
        "or the VM was recreated",
        hint=f"if it was recreated: {remove}; then connect once and compare the fingerprint: {by_hand(login)}",
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
    return UnreachableError(
        f"the host key of {where(login)} is not known here",
        hint=f"connect once and compare the fingerprint: {by_hand(login)}",
        host=login.host,
    )


def unresolved_error(login: Login) -> UnreachableError:
    return UnreachableError(
        f"the name {login.address} does not resolve",
        hint="correct it in the hosts file, or write the IP address",
        host=login.host,
    )


def missing_key_error(login: Login) -> UnreachableError:
    fault = "is a folder" if os.path.isdir(login.key or "") else "does not exist"  # noqa: PTH112
    return UnreachableError(
        f"the key {login.key} {fault}",
        hint="correct key= in the hosts file or ssh: key: in kit.yaml",
        host=login.host,
    )


def no_connection_error(login: Login, text: str) -> UnreachableError:
    return UnreachableError(
        f"no SSH connection to {where(login)}: {text}",
        hint=f"is the VM up, and does this work from here: {by_hand(login)}",
        host=login.host,
    )


def nobody_error(login: Login, text: str) -> UnreachableError:
    return UnreachableError(
        f"no SSH connection to {where(login)}: {text}",
        hint="this machine has no name for your user id, and without one ssh does not run: add a line for it to "
        "/etc/passwd, or run kit as a user that is there, such as root",
        host=login.host,
    )


def broken_error(login: Login, text: str) -> UnreachableError:
    return UnreachableError(
        f"the connection broke: {text}",
        hint=f"try: {by_hand(login)}; then run the same again",
        host=login.host,
    )


def known_name(address: str, port: int | None) -> str:
    """Return what known_hosts calls a host."""
    return f"[{address}]:{port}" if port not in (None, 22) else address
