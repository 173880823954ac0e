"""A guard before your SSH agent: a host may use your keys to log in to one git server, and for nothing else.

The ssh of that host first says which session it has with which server (session-bind@openssh.com, OpenSSH 8.9 or newer;
PROTOCOL.agent of OpenSSH). The server has signed that with its host key. So the host cannot name another server: the
key would not be in your known_hosts, or the signature would be missing. A signature is then given for a login in this
session only (RFC 4252, section 7).
"""

from __future__ import annotations

from collections.abc import Callable, Collection

# Messages of an agent (draft-ietf-sshm-ssh-agent).
FAILURE, SUCCESS = b"\x05", b"\x06"
_IDENTITIES, _SIGN, _EXTENSION = 11, 13, 27
_LOGIN = 50
_BIND = b"session-bind@openssh.com"
_SERVICE = b"ssh-connection"
_METHOD, _BOUND_METHOD = b"publickey", b"publickey-hostbound-v00@openssh.com"

Ask = Callable[[int, bytes], bytes]


class Guard:
    """Answers the questions of a host to your agent. `keys` are the server's host keys, as blobs; `user` is on it.

    `ask` passes a message to your agent, over the connection of this number, and returns its answer.
    """

    def __init__(self, user: str, keys: Collection[bytes], ask: Ask) -> None:
        self._user = user.encode()
        self._keys = frozenset(keys)
        self._ask = ask
        # The session and the host key of each connection.
        self._bound: dict[int, tuple[bytes, bytes]] = {}

    def answer(self, link: int, message: bytes) -> bytes:
        """Return the answer to a message on the connection `link`. What is not allowed gets a failure."""
        try:
            return self._answered(link, _Reader(message))
        except ValueError:
            return FAILURE

    def _answered(self, link: int, message: _Reader) -> bytes:
        kind = message.byte()
        if kind == _EXTENSION:
            return self._bind(link, message)
        if link not in self._bound:
            return FAILURE
        if kind == _IDENTITIES and message.is_over():
            return self._ask(link, message.whole)
        if kind == _SIGN and self._is_login(link, message):
            return self._ask(link, message.whole)
        return FAILURE

    def _bind(self, link: int, message: _Reader) -> bytes:
        name, host_key, session, signature = (message.text() for _ in range(4))
        forwarded = message.byte()
        if name != _BIND or forwarded or not message.is_over() or link in self._bound:
            return FAILURE
        if host_key not in self._keys or not _has_signed(host_key, signature, session):
            return FAILURE
        self._bound[link] = (session, host_key)
        # An agent whose keys are for certain servers only has to know this, too.
        self._ask(link, message.whole)
        return SUCCESS

    def _is_login(self, link: int, message: _Reader) -> bool:
        """Return whether the signature is for a login as the user in the session of this connection."""
        key, data = message.text(), _Reader(message.text())
        message.number()
        session, kind, user, service, method = data.text(), data.byte(), data.text(), data.text(), data.text()
        has_signature, _algorithm, login_key = data.byte(), data.text(), data.text()
        bound_session, host_key = self._bound[link]
        if method == _BOUND_METHOD:
            if data.text() != host_key:
                return False
        elif method != _METHOD:
            return False
        return (
            (session, kind, user, service, has_signature) == (bound_session, _LOGIN, self._user, _SERVICE, 1)
            and login_key == key
            and data.is_over()
            and message.is_over()
        )


class _Reader:
    """Reads the fields of a message. Raises ValueError where one is cut."""

    def __init__(self, whole: bytes) -> None:
        self.whole = whole
        self._at = 0

    def _take(self, count: int) -> bytes:
        taken = self.whole[self._at : self._at + count]
        if len(taken) != count:
            raise ValueError("the message is cut")
        self._at += count
        return taken

    def byte(self) -> int:
        return self._take(1)[0]

    def number(self) -> int:
        return int.from_bytes(self._take(4), "big")

    def text(self) -> bytes:
        return self._take(self.number())

    def is_over(self) -> bool:
        return self._at == len(self.whole)


def _has_signed(host_key: bytes, signature: bytes, data: bytes) -> bool:
    import paramiko  # noqa: PLC0415  (it takes long to import)

    try:
        name = _Reader(host_key).text().decode()
        return bool(paramiko.PKey.from_type_string(name, host_key).verify_ssh_sig(data, paramiko.Message(signature)))
    except Exception:
        # The library raises many kinds of errors for what is not a key.
        return False
