"""Tests the guard before an SSH agent, with messages as a host that somebody broke into could send them."""

from __future__ import annotations

from collections.abc import Callable

import paramiko
import pytest

from kit.remote.code.guard import FAILURE, SUCCESS, Guard

SERVER, OTHER, MINE = (paramiko.ECDSAKey.generate() for _ in range(3))
SESSION = b"the session"
ANSWER = b"\x0eits answer"


def text(*parts: bytes) -> bytes:
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def bind(
    key: paramiko.PKey = SERVER, signer: paramiko.PKey = SERVER, *, signed: bytes = SESSION, more: bytes = b"\0"
) -> bytes:
    signature = signer.sign_ssh_data(signed).asbytes()
    return b"\x1b" + text(b"session-bind@openssh.com", key.asbytes(), SESSION, signature) + more


def login(
    *,
    session: bytes = SESSION,
    kind: bytes = b"\x32",
    user: bytes = b"git",
    service: bytes = b"ssh-connection",
    method: bytes = b"publickey",
    key: bytes = MINE.asbytes(),
    host_key: bytes = b"",
    end: bytes = b"",
) -> bytes:
    data = text(session) + kind + text(user, service, method) + b"\x01" + text(b"ecdsa-sha2-nistp256", key)
    data += (text(host_key) if host_key else b"") + end
    return b"\x0d" + text(MINE.asbytes(), data) + b"\0\0\0\0"


class Agent:
    """An agent that answers everything. `asked` has what came to it."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, bytes]] = []
        self.guard = Guard("git", [SERVER.asbytes()], self.ask)

    def ask(self, link: int, message: bytes) -> bytes:
        self.asked.append((link, message))
        return ANSWER


HOSTBOUND = b"publickey-hostbound-v00@openssh.com"


def test_a_login_in_the_session_with_the_server() -> None:
    agent = Agent()
    messages = [b"\x0b", login(), login(method=HOSTBOUND, host_key=SERVER.asbytes())]
    assert agent.guard.answer(0, bind()) == SUCCESS
    assert [agent.guard.answer(0, message) for message in messages] == [ANSWER] * 3
    # The agent learns of the session, too.
    assert [message for _, message in agent.asked[1:]] == messages


@pytest.mark.parametrize(
    "message",
    [
        bind(OTHER, OTHER),
        bind(SERVER, OTHER),
        bind(signed=b"another session"),
        bind(more=b"\x01"),
        bind(more=b""),
        bind(more=b"\0\0"),
        b"\x1b" + text(b"session-bind@openssh.com", b"no key", SESSION, b"no signature") + b"\0",
        b"\x1b" + text(b"query"),
        bind().replace(b"session-bind@", b"session-bond@"),
        b"",
        b"\x1b\xff\xff\xff\xff",
    ],
)
def test_a_session_that_is_not_with_the_server(message: bytes) -> None:
    agent = Agent()
    assert agent.guard.answer(0, message) == FAILURE
    # Then it learns not even which keys there are.
    assert [agent.guard.answer(0, one) for one in (b"\x0b", login())] == [FAILURE] * 2
    assert agent.asked == []


@pytest.mark.parametrize(
    "message",
    [
        login(session=b"another session"),
        login(user=b"root"),
        login(kind=b"\x33"),
        login(service=b"ssh-userauth"),
        login(method=b"hostbased"),
        login(method=HOSTBOUND, host_key=OTHER.asbytes()),
        login(method=HOSTBOUND),
        login(key=OTHER.asbytes()),
        login(end=b"more"),
        login()[:-1],
        login() + b"\0",
        # A signature of a file, as `ssh-keygen -Y sign` makes it.
        b"\x0d" + text(MINE.asbytes(), b"SSHSIG" + text(b"git", b"", b"sha512", b"hash")) + b"\0\0\0\0",
        # To remove all keys, to add one, to lock the agent.
        b"\x13",
        b"\x11" + text(b"ssh-ed25519"),
        b"\x16" + text(b"word"),
        b"\x0bmore",
        bind(),
    ],
)
def test_what_a_bound_session_is_not_for(message: bytes) -> None:
    agent = Agent()
    assert agent.guard.answer(0, bind()) == SUCCESS
    agent.asked.clear()
    assert agent.guard.answer(0, message) == FAILURE
    assert agent.asked == []
    # Each connection to the agent is of one session.
    assert agent.guard.answer(1, login()) == FAILURE


@pytest.mark.parametrize("make", [paramiko.RSAKey.generate, lambda _: paramiko.ECDSAKey.generate()])
def test_other_kinds_of_host_keys(make: Callable[[int], paramiko.PKey]) -> None:
    key = make(2048)
    guard = Guard("git", [key.asbytes()], lambda *_: ANSWER)
    assert guard.answer(0, bind(key, key)) == SUCCESS
    assert guard.answer(1, bind(key, SERVER)) == FAILURE
