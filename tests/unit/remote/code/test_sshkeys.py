"""Tests a commit that a host fetches over SSH: with your keys, which stay here, from a server that your ssh knows.

ssh, ssh-agent, git and the server are real. What ssh would start on a host is started here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.errors import AnswerError
from kit.model.repository import repository
from kit.remote.code import gathered, sshkeys
from kit.remote.code.gathered import gather
from kit.remote.code.gatherer import NotGatheredError, Place
from kit.remote.code.sshkeys import Agent, NoWayError, Way, _host_keys, _listens
from kit.remote.ship.porter.git import SshAddress, ssh_address
from kit.remote.ssh.private import make_folder
from tests.fakes import repository as repositories
from tests.fakes.head import until
from tests.fakes.repository import git
from tests.fakes.sshd import Sshd
from tests.unit.remote.code.test_gathered import HEAD, Head, add_modules, answer, head, processes

__all__ = ["head"]


def made_key(path: Path, passphrase: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-f", str(path)], check=True)
    return path


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("git@github.com:team/net.git", SshAddress("git", "github.com", 0)),
        ("example.com:net.git", SshAddress("", "example.com", 0)),
        ("ssh://git@example.com:2222/team/net.git", SshAddress("git", "example.com", 2222)),
        ("ssh://[2001:db8::1]/net.git", SshAddress("", "2001:db8::1", 0)),
        ("https://example.com/net.git", None),
        ("git://example.com/net.git", None),
        ("file:///srv/net", None),
        ("/srv/net", None),
        ("-oProxyCommand=x:net", None),
    ],
)
def test_where_a_url_leads(url: str, address: SshAddress | None) -> None:
    assert ssh_address(url) == address


def test_files_of_a_login_that_is_not_there_are_missing() -> None:
    """An ssh_config may come from another machine, with ~LOGIN in it. Path.expanduser raises RuntimeError for that."""
    at = "~no-such-login/.ssh"
    config = {"identityagent": [f"{at}/agent"], "identityfile": [f"{at}/key"], "userknownhostsfile": [f"{at}/known"]}
    assert _host_keys("git.example", config) == []
    with pytest.raises(NoWayError, match="no SSH agent is running here"):
        Agent(Way(name="git.example", port=22, user="git", keys=(), config=config))


class Server:
    """A git server over SSH. `folder` has the ssh_config, the known_hosts and the keys of this person."""

    def __init__(self, sshd: Sshd, folder: Path, origin: Path) -> None:
        self.sshd, self.folder, self.origin = sshd, folder, origin
        self.key = folder / "id_ed25519"
        self.address = f"127.0.0.1:{sshd.port}"
        self.url = f"ssh://git@{self.address}{origin}"

    def know(self, key: Path, marker: str = "") -> None:
        """Add a host key to known_hosts."""
        kind, text, *_ = key.with_suffix(".pub").read_text().split()
        with (self.folder / "known_hosts").open("a") as file:
            file.write(f"{marker}[127.0.0.1]:{self.sshd.port} {kind} {text}\n")

    def configure(self, *lines: str) -> None:
        """Write the ssh_config. The first value of a setting counts."""
        own = (f"IdentityFile {self.key}", f"UserKnownHostsFile {self.folder}/known_hosts", "GlobalKnownHostsFile none")
        (self.folder / "config").write_text("".join(f"{line}\n" for line in (*lines, *own)))


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a short name: that of a socket has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="kit-") as folder:
        yield Path(folder)


@pytest.fixture
def server(head: Head, short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    head.cluster = short / "c"
    head.cluster.mkdir()
    head.store = head.cluster / "code"
    for name in ("SSH_AUTH_SOCK", "GIT_SSH", "GIT_SSH_COMMAND"):
        monkeypatch.delenv(name, raising=False)
    (short / "tmp").mkdir()
    monkeypatch.setattr(sshkeys, "make_folder", lambda: make_folder(short / "tmp"))
    folder = tmp_path / "mine"
    folder.mkdir()
    # ssh finds a person's files by the list of users, and not by HOME.
    monkeypatch.setenv("PATH", f"{folder}/bin:{os.environ['PATH']}")
    (folder / "bin").mkdir()
    (folder / "bin" / "ssh").write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/config "$@"\n')
    (folder / "bin" / "ssh").chmod(0o755)
    origin = repositories.repository(tmp_path / "served" / "net", {"train.py": "one\n"})
    host_key = made_key(tmp_path / "host_key")
    sshd = Sshd(host_key)
    made = Server(sshd, folder, origin)
    made.know(host_key)
    made.configure()
    yield made
    sshd.close()


def fetch(head: Head, server: Server, url: str = "", ref: str = "main") -> dict[str, bytes]:
    place = Place(login=HEAD, store=str(head.store))
    wanted = repository(f"git+{url or server.url}@{ref}")
    assert gathered.is_for_hosts(wanted)
    return head.has(gather(wanted, git(server.origin, "rev-parse", "HEAD"), place, head.said.append))


def refusal(head: Head, server: Server, url: str = "") -> str:
    with pytest.raises(NotGatheredError) as error:
        fetch(head, server, url)
    return error.value.message.partition(": ")[2]


def test_the_head_logs_in_with_a_key_that_stays_here(head: Head, server: Server, short: Path) -> None:
    made_key(server.key)
    assert fetch(head, server) == {"train.py": b"one\n"}
    assert head.said[-1].endswith(" s, with your SSH keys")
    assert server.sshd.connections == 1
    assert server.sshd.extras == []
    # Neither the agent, nor its socket, nor that on the head is left.
    assert list((short / "tmp").iterdir()) == []
    until(lambda: not list(head.store.glob("git/tree-*")))
    assert not [line for line in processes() if str(short) in line]
    assert b"PRIVATE KEY" not in head.texts()


def test_a_long_tmpdir(head: Head, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_key(server.key)
    long = tmp_path / ("a" * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    assert fetch(head, server) == {"train.py": b"one\n"}


def test_nothing_listens_at_a_path_that_is_too_long(tmp_path: Path) -> None:
    assert not _listens(str(tmp_path / ("a" * 100)))


def test_the_agent_of_this_person_is_asked_first(
    head: Head, server: Server, short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = made_key(server.key, "a passphrase")
    assert refusal(head, server).endswith("no SSH agent is running here with a key, and no key file has no passphrase")
    subprocess.run(["ssh-keygen", "-q", "-p", "-P", "a passphrase", "-N", "", "-f", str(key)], check=True)
    with subprocess.Popen(["ssh-agent", "-D", "-a", f"{short}/mine"], stdout=subprocess.DEVNULL) as agent:
        until(lambda: _listens(f"{short}/mine"))
        monkeypatch.setenv("SSH_AUTH_SOCK", f"{short}/mine")
        # It has no key, so that the file counts.
        assert fetch(head, server) == {"train.py": b"one\n"}
        subprocess.run(["ssh-add", "-q", str(key)], check=True)
        key.unlink()
        (server.origin / "train.py").write_text("two\n")
        git(server.origin, "commit", "-qam", "two")
        assert fetch(head, server) == {"train.py": b"two\n"}
        server.configure("IdentitiesOnly yes", "IdentityAgent none")
        assert "no SSH agent is running here with a key" in refusal(head, server)
        agent.terminate()


def test_an_alias_of_your_ssh_config(head: Head, server: Server) -> None:
    made_key(server.key)
    server.configure("Host work", "HostName 127.0.0.1", f"Port {server.sshd.port}", "User git", "Host *")
    assert fetch(head, server, f"work:{server.origin}") == {"train.py": b"one\n"}


def test_submodules_of_the_same_server_come_along(head: Head, server: Server) -> None:
    made_key(server.key)
    lib = repositories.repository(server.origin.parent / "lib", {"lib.py": "lib\n"})
    commit = git(lib, "rev-parse", "HEAD")
    add_modules(server.origin, {"a": ("../lib", commit), "b": (f"ssh://git@{server.address}{lib}", commit)})
    files = fetch(head, server)
    assert (files["a/lib.py"], files["b/lib.py"]) == (b"lib\n", b"lib\n")
    add_modules(server.origin, {"c": ("git@example.com:lib.git", commit)})
    assert refusal(head, server) == "its submodule c: git@example.com:lib.git is on another server"


def test_what_your_keys_are_not_for(
    head: Head, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_key(server.key)
    for settings, text in [
        (("ProxyJump other",), "your ssh reaches the server over another one"),
        (("ProxyCommand nc %h %p",), "your ssh reaches the server over another one"),
        ((f"UserKnownHostsFile {tmp_path}/none",), "your known_hosts has no key of the server"),
    ]:
        server.configure(*settings)
        assert refusal(head, server) == text
    server.configure()
    monkeypatch.setenv("GIT_SSH_COMMAND", "ssh -v")
    assert refusal(head, server).endswith("your git starts ssh in its own way")
    monkeypatch.delenv("GIT_SSH_COMMAND")
    server.know(tmp_path / "host_key", "@revoked ")
    assert refusal(head, server).endswith("your known_hosts has no key of the server")
    # Another server at this address gets no login.
    (server.folder / "known_hosts").unlink()
    server.know(made_key(tmp_path / "other_key"))
    assert "Host key verification failed" in refusal(head, server)
    assert server.sshd.connections == 1


def test_a_host_that_asks_an_agent_that_it_may_not_ask(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, '{"agent": "Cw==", "link": 0}')
    wanted = repository("git+https://example.com/net.git")
    with pytest.raises(AnswerError, match="it asks an SSH agent"):
        gather(wanted, "a" * 40, Place(login=HEAD, store=str(head.store)), head.said.append)
