"""A key with a passphrase that ssh cannot use. ssh, ssh-keygen and ssh-agent are real."""

from __future__ import annotations

import os
import pwd
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from kit.errors import LoginRefusedError
from kit.model.host import Host, Login
from kit.model.values import replace
from kit.remote.ssh.fabric import FabricTransport
from kit.remote.ssh.locked import LockedKey, locked_key, needs_passphrase
from kit.remote.ssh.multiplexed import OpenSshTransport
from kit.remote.ssh.openssh import by_hand
from kit.remote.ssh.refusals import keys_refused, no_session
from kit.remote.ssh.settings import agent_of
from tests.fakes.sshd import Sshd

WORDS = "correct horse"
PEM = ("-t", "rsa", "-b", "2048", "-m", "PEM")


def made(path: Path, *words: str, passphrase: str = WORDS) -> Path:
    """Make a key quickly: few rounds of the key derivation."""
    kind = words or ("-t", "ed25519")
    subprocess.run(["ssh-keygen", "-q", "-a", "1", "-N", passphrase, "-f", str(path), *kind], check=True)
    return path


def login_with(key: Path | None) -> Login:
    name = None if key is None else str(key)
    return Login(host="gpu1", address="127.0.0.1", user="ann", port=None, key=name, known_hosts="/dev/null")


@contextmanager
def answering(socket: Path) -> Iterator[str]:
    """Run an agent that answers and has no key yet."""
    with subprocess.Popen(["ssh-agent", "-D", "-a", str(socket)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        # It prints its address when it listens.
        assert b"SSH_AUTH_SOCK" in process.stdout.readline()
        try:
            yield str(socket)
        finally:
            process.terminate()


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The agent of SSH_AUTH_SOCK."""
    with answering(tmp_path / "agent") as socket:
        monkeypatch.setenv("SSH_AUTH_SOCK", socket)
        yield


def load(key: Path, *options: str, socket: str | None = None) -> None:
    """Load a locked key into an agent, by default that of SSH_AUTH_SOCK."""
    opened = key.with_name(f"{key.name} opened")
    opened.write_bytes(key.read_bytes())
    opened.chmod(0o600)
    subprocess.run(["ssh-keygen", "-q", "-p", "-P", WORDS, "-N", "", "-f", str(opened)], check=True)
    env = os.environ | ({"SSH_AUTH_SOCK": socket} if socket else {})
    subprocess.run(["ssh-add", "-q", *options, str(opened)], check=True, env=env)
    opened.unlink()


Configure = Callable[[str], None]


@pytest.fixture
def configure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Configure:
    """Return a function that gives ssh these lines as its ssh_config."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "ssh").write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {tmp_path}/config "$@"\n')
    (folder / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def write(lines: str) -> None:
        (tmp_path / "config").write_text(lines)

    write("")
    return write


Serve = Callable[..., Login]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Return a function that starts an sshd and returns the login for it."""
    host_key = made(tmp_path / "host", passphrase="")
    with ExitStack() as stack:

        def start(key: Path | None, **options: object) -> Login:
            sshd = stack.enter_context(closing(Sshd(host_key, **options)))  # type: ignore[arg-type]
            public = " ".join(host_key.with_suffix(".pub").read_text().split()[:2])
            (tmp_path / "known").write_text(f"[127.0.0.1]:{sshd.port} {public}\n")
            return replace(login_with(key), port=sshd.port, known_hosts=f"{tmp_path}/known")

        yield start


HOST = Host(name="gpu1", address="127.0.0.1")


def refused(login: Login, client: type[OpenSshTransport | FabricTransport] = OpenSshTransport) -> tuple[str, str]:
    """Return the message and the hint of the refused login."""
    with closing(client(HOST, login)) as transport, pytest.raises(LoginRefusedError) as caught:
        transport.run(["true"])
    return caught.value.message, str(caught.value.hint)


def message(login: Login, why: str) -> str:
    return f"ann@127.0.0.1:{login.port} refused the login: Permission denied (publickey). {why}"


def hint(login: Login, steps: str) -> str:
    return (
        f"if the VM knows this key, {steps}; otherwise add its public half to ~/.ssh/authorized_keys there, or set "
        f"user= and key= in the hosts file. Then try: {by_hand(login)}"
    )


@pytest.mark.parametrize(
    "words",
    [
        ("-t", "ed25519"),
        ("-t", "ecdsa"),
        ("-t", "rsa", "-b", "1024", "-m", "PEM"),
        ("-t", "rsa", "-b", "1024", "-m", "PKCS8"),
    ],
    ids=" ".join,
)
def test_which_files_need_a_passphrase(tmp_path: Path, words: tuple[str, ...]) -> None:
    assert needs_passphrase(made(tmp_path / "locked", *words).read_bytes())
    assert not needs_passphrase(made(tmp_path / "open", *words, passphrase="").read_bytes())


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"ssh-ed25519 AAAA ann@here\n",
        b"-----BEGIN OPENSSH PRIVATE KEY-----\nno base64\n-----END OPENSSH PRIVATE KEY-----\n",
        b"-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEA\n-----END OPENSSH PRIVATE KEY-----\n",
        b"-----BEGIN OPENSSH PRIVATE KEY-----\nYWJj\n-----END OPENSSH PRIVATE KEY-----\n",
        b"\xff" * 100,
    ],
)
def test_what_is_no_whole_key_is_no_locked_one(content: bytes) -> None:
    # ssh itself says what is wrong with such a file.
    assert not needs_passphrase(content)


@pytest.mark.usefixtures("agent")
def test_the_key_counts_until_an_agent_holds_it(tmp_path: Path) -> None:
    key = made(tmp_path / "a key")
    login = login_with(key)
    assert locked_key(login) == LockedKey(path=str(key))
    # An agent that holds the key without a passphrase holds the same key.
    load(key)
    assert locked_key(login) is None
    other = made(tmp_path / "other")
    assert locked_key(replace(login, key=str(other))) == LockedKey(path=str(other))


@pytest.mark.usefixtures("agent")
def test_a_key_of_openssl_in_the_agent_is_known_by_the_file_beside_it(tmp_path: Path) -> None:
    key = made(tmp_path / "pem", *PEM)
    assert locked_key(login_with(key)) == LockedKey(path=str(key))
    load(key)
    assert locked_key(login_with(key)) is None


def test_an_agent_that_is_gone_holds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "gone"))
    key = made(tmp_path / "key")
    assert locked_key(login_with(key)) == LockedKey(path=str(key))
    assert locked_key(login_with(tmp_path / "missing")) is None
    assert locked_key(login_with(made(tmp_path / "open", passphrase=""))) is None


@pytest.mark.parametrize("knows", [True, False], ids=["the VM knows the key", "the VM does not know the key"])
@pytest.mark.parametrize("client", [OpenSshTransport, FabricTransport])
def test_both_clients_name_the_key(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    serve: Serve,
    client: type[OpenSshTransport | FabricTransport],
    knows: bool,
) -> None:
    """ssh offers its public half in both cases, and writes the same."""
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    key = made(tmp_path / "a key")
    login = serve(key, knows=knows)
    why = f"The key {key} has a passphrase, and no agent holds it, so ssh cannot log in with it"
    steps = f"load it: ssh-add '{key}' (if no agent runs, first: eval $(ssh-agent))"
    assert refused(login, client) == (message(login, why), hint(login, steps))


@pytest.mark.usefixtures("agent")
def test_a_key_that_the_agent_holds_is_not_the_cause(tmp_path: Path, serve: Serve) -> None:
    key = made(tmp_path / "key")
    load(key)
    with closing(OpenSshTransport(HOST, serve(key))) as transport:
        assert transport.run(["true"]).code == 0
    login = serve(key, knows=False)
    assert refused(login)[0] == f"ann@127.0.0.1:{login.port} refused the login: Permission denied (publickey)."


@pytest.mark.usefixtures("agent")
def test_a_key_of_openssl_without_its_public_half(tmp_path: Path, serve: Serve, configure: Configure) -> None:
    key = made(tmp_path / "pem", *PEM)
    Path(f"{key}.pub").unlink()
    configure(f"IdentityFile {key}\n")
    # Nothing is in the agent.
    assert locked_key(login_with(None)) == LockedKey(path=str(key))
    load(key)
    # ssh offers all keys of the agent.
    assert locked_key(login_with(None)) is None
    login = serve(None, knows=False)
    assert refused(login)[0] == f"ann@127.0.0.1:{login.port} refused the login: Permission denied (publickey)."
    # But with IdentitiesOnly, only those that it can tell to be the file's.
    why = (
        f"The key {key} has a passphrase, and without {key}.pub ssh takes it from no agent, so ssh cannot log in "
        "with it"
    )
    steps = (
        f"write its public half: ssh-keygen -y -f {key} > {key}.pub, "
        f"and load it: ssh-add {key} (if no agent runs, first: eval $(ssh-agent))"
    )
    login = serve(key)
    assert refused(login) == (message(login, why), hint(login, steps))
    configure(f"IdentityFile {key}\nIdentitiesOnly yes\n")
    login = serve(None)
    assert refused(login) == (message(login, why), hint(login, steps))
    # The hint's first step.
    with Path(f"{key}.pub").open("wb") as public:
        subprocess.run(["ssh-keygen", "-y", "-P", WORDS, "-f", str(key)], stdout=public, check=True)
    with closing(OpenSshTransport(HOST, login)) as transport:
        assert transport.run(["true"]).code == 0


@pytest.mark.usefixtures("agent")
@pytest.mark.parametrize("name", ["{socket}", "$KIT_TEST_AGENT", "${{KIT_TEST_AGENT}}"])
def test_the_agent_is_the_one_that_ssh_uses(
    tmp_path: Path, serve: Serve, configure: Configure, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    key = made(tmp_path / "key")
    # ssh does not use this agent.
    load(key)
    with answering(tmp_path / "my agent") as socket:
        monkeypatch.setenv("KIT_TEST_AGENT", socket)
        configure(f'IdentityAgent "{name.format(socket=socket)}"\n')
        login = serve(key)
        why = f"The key {key} has a passphrase, and the agent {socket} does not hold it, so ssh cannot log in with it"
        steps = f"load it: SSH_AUTH_SOCK={shlex.quote(socket)} ssh-add {key}"
        assert refused(login) == (message(login, why), hint(login, steps))
        load(key, socket=socket)
        assert locked_key(login) is None
        with closing(OpenSshTransport(HOST, login)) as transport:
            assert transport.run(["true"]).code == 0


@pytest.mark.usefixtures("agent")
@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("none", "remove IdentityAgent none for this host from your ssh_config"),
        ("$KIT_TEST_AGENT", "set KIT_TEST_AGENT to the socket of your agent"),
    ],
)
def test_ssh_uses_no_agent(tmp_path: Path, serve: Serve, configure: Configure, name: str, step: str) -> None:
    key = made(tmp_path / "key")
    load(key)
    configure(f"IdentityAgent {name}\n")
    login = serve(key)
    why = (
        f"The key {key} has a passphrase, and ssh uses no agent for this host (IdentityAgent {name}), so ssh cannot "
        "log in with it"
    )
    steps = f"{step}, and load it: ssh-add {key} (if no agent runs, first: eval $(ssh-agent))"
    assert refused(login) == (message(login, why), hint(login, steps))


@pytest.mark.parametrize(
    ("name", "socket"),
    [
        (None, "/run/usual"),
        ("SSH_AUTH_SOCK", "/run/usual"),
        ("$KIT_TEST_AGENT", "/run/mine"),
        ("$KIT_TEST_NONE", ""),
        ("none", ""),
        ("/run/own", "/run/own"),
        ("~/own", "/home/ann/own"),
    ],
)
def test_the_socket_of_the_agent(name: str | None, socket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in (("SSH_AUTH_SOCK", "/run/usual"), ("KIT_TEST_AGENT", "/run/mine"), ("HOME", "/home/ann")):
        monkeypatch.setenv(variable, value)
    assert agent_of({} if name is None else {"identityagent": [name]}) == socket


def test_a_login_without_keys_does_not_name_one(tmp_path: Path, serve: Serve, configure: Configure) -> None:
    configure(f"IdentityFile {made(tmp_path / 'key')}\n")
    login = serve(None, ways="password")
    assert refused(login)[0] == f"ann@127.0.0.1:{login.port} refused the login: Permission denied (password)."


@pytest.mark.usefixtures("agent")
def test_an_agent_that_does_not_sign_is_the_cause(
    tmp_path: Path, serve: Serve, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    right, other = made(tmp_path / "right"), made(tmp_path / "other")
    # It asks before it signs, and has no terminal here.
    load(right, "-c")
    configure(f"IdentityFile {right}\nIdentityFile {other}\nIdentitiesOnly yes\n")
    login = serve(None)
    shown, advice = refused(login)
    assert shown.startswith(f"ann@127.0.0.1:{login.port} refused the login: sign_and_send_pubkey: signing failed for ")
    assert shown.endswith("from agent: agent refused operation")
    assert advice == (
        "your agent must sign with this key. It may be locked, or wait until you confirm it or touch a token. "
        f"Then try: {by_hand(login)}"
    )


@pytest.mark.parametrize(
    ("text", "refuses_keys", "shown"),
    [
        ("ann@10.0.0.1: Permission denied (publickey).", True, "Permission denied (publickey)."),
        ("ann@10.0.0.1: Permission denied (password,publickey).", True, "Permission denied (password,publickey)."),
        ("ann@10.0.0.1: Permission denied (password).", False, "Permission denied (password)."),
        (
            "Received disconnect from 10.0.0.1 port 22:2: Too many authentication failures\n"
            "Disconnected from 10.0.0.1 port 22",
            False,
            "Received disconnect from 10.0.0.1 port 22:2: Too many authentication failures",
        ),
        (
            "sign_and_send_pubkey: no mutual signature supported\nann@10.0.0.1: Permission denied (publickey).",
            False,
            "sign_and_send_pubkey: no mutual signature supported",
        ),
    ],
)
def test_ssh_may_name_another_cause(text: str, refuses_keys: bool, shown: str) -> None:
    login = replace(login_with(None), address="10.0.0.1")
    assert keys_refused(text) == refuses_keys
    assert no_session(login, text).message == f"ann@10.0.0.1 refused the login: {shown}"


def test_names_of_keys_with_tokens_and_variables(
    tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    monkeypatch.setenv("KIT_TEST_KEYS", str(tmp_path))
    me = pwd.getpwuid(os.getuid()).pw_name
    login = replace(login_with(None), address="gpu-one", port=2222)
    for name, file in (
        ("/%n", "gpu-one"),
        ("/%h", "10.0.0.7"),
        ("/%p", "2222"),
        ("/%r", "ann"),
        ("/%u of %%n", f"{me} of %n"),
        ("/odd%%%%", "odd%%"),
    ):
        key = made(tmp_path / file)
        for folder in (tmp_path, "${KIT_TEST_KEYS}"):
            configure(f'HostName 10.0.0.7\nIdentityFile "{folder}{name}"\n')
            assert locked_key(login) == LockedKey(path=str(key))
    configure("IdentityFile %d/%%n\n")
    assert locked_key(login) is None
    odd = made(tmp_path / "k%h")
    assert locked_key(replace(login, key=str(odd))) == LockedKey(path=str(odd))
    # With key=, the keys of ssh_config are not the ones that you chose.
    configure(f"IdentityFile {tmp_path}/%r\n")
    assert locked_key(replace(login, key=str(made(tmp_path / "open", passphrase="")))) is None
