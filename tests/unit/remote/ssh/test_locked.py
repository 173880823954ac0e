"""A key with a passphrase that ssh left out. ssh, ssh-keygen and ssh-agent are real."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kit.errors import LoginRefusedError
from kit.model.host import Host, Login
from kit.model.values import replace
from kit.remote.ssh.fabric import FabricTransport
from kit.remote.ssh.locked import locked_key, needs_passphrase
from kit.remote.ssh.multiplexed import OpenSshTransport
from tests.fakes.sshd import Sshd

WORDS = "correct horse"


def made(path: Path, *words: str, passphrase: str = WORDS) -> Path:
    """Make a key quickly: few rounds of the key derivation."""
    kind = words or ("-t", "ed25519")
    subprocess.run(["ssh-keygen", "-q", "-a", "1", "-N", passphrase, "-f", str(path), *kind], check=True)
    return path


def login_with(key: Path | None) -> Login:
    name = None if key is None else str(key)
    return Login(host="gpu1", address="127.0.0.1", user="ann", port=None, key=name, known_hosts="/dev/null")


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An agent that answers and has no key yet."""
    socket = tmp_path / "agent"
    with subprocess.Popen(["ssh-agent", "-D", "-a", str(socket)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        # It prints its address when it listens.
        assert b"SSH_AUTH_SOCK" in process.stdout.readline()
        monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
        yield
        process.terminate()


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
    assert locked_key(login) == str(key)
    # An agent that holds the key without a passphrase holds the same key.
    opened = tmp_path / "opened"
    opened.write_bytes(key.read_bytes())
    opened.chmod(0o600)
    subprocess.run(["ssh-keygen", "-q", "-p", "-P", WORDS, "-N", "", "-f", str(opened)], check=True)
    subprocess.run(["ssh-add", "-q", str(opened)], check=True)
    assert locked_key(login) == ""
    assert locked_key(replace(login, key=str(made(tmp_path / "other")))) == str(tmp_path / "other")


@pytest.mark.usefixtures("agent")
def test_a_key_of_openssl_in_the_agent_is_known_by_the_file_beside_it(tmp_path: Path) -> None:
    key = made(tmp_path / "pem", "-t", "rsa", "-b", "2048", "-m", "PEM")
    opened = tmp_path / "opened"
    opened.write_bytes(key.read_bytes())
    opened.chmod(0o600)
    subprocess.run(["ssh-keygen", "-q", "-p", "-P", WORDS, "-N", "", "-f", str(opened)], check=True)
    assert locked_key(login_with(key)) == str(key)
    subprocess.run(["ssh-add", "-q", str(opened)], check=True)
    assert locked_key(login_with(key)) == ""


def test_an_agent_that_is_gone_holds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "gone"))
    key = made(tmp_path / "key")
    assert locked_key(login_with(key)) == str(key)
    assert locked_key(login_with(tmp_path / "missing")) == ""
    assert locked_key(login_with(made(tmp_path / "open", passphrase=""))) == ""


def test_both_clients_name_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    key = made(tmp_path / "a key")
    host_key = made(tmp_path / "host", passphrase="")
    with closing(Sshd(host_key)) as sshd:
        known = tmp_path / "known"
        known.write_text(f"[127.0.0.1]:{sshd.port} {' '.join(host_key.with_suffix('.pub').read_text().split()[:2])}\n")
        login = replace(login_with(key), port=sshd.port, known_hosts=str(known))
        host = Host(name="gpu1", address="127.0.0.1")
        for transport in (OpenSshTransport(host, login), FabricTransport(host, login)):
            with closing(transport), pytest.raises(LoginRefusedError) as caught:
                transport.run(["true"])
            assert f"did not offer {key}: it has a passphrase, and no agent holds it" in caught.value.message
            assert f"ssh-add '{key}'" in str(caught.value.hint)
