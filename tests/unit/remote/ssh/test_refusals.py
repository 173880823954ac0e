"""Why no session began: both clients report it alike, from real connections and from the words of ssh."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kit.errors import LoginRefusedError, UnreachableError
from kit.model.host import Host, Login
from kit.model.values import replace
from kit.remote.ssh import fabric, openssh
from kit.remote.ssh.fabric import FabricTransport
from kit.remote.ssh.multiplexed import OpenSshTransport
from kit.remote.ssh.openssh import openssh_argv
from kit.remote.ssh.refusals import broken_error, changed_key_error, dropped, failure_of, no_session, reason
from kit.remote.ssh.retry import DROPPED_ATTEMPTS
from kit.remote.ssh.transport import CSH, Transport
from tests.fakes.sshd import Sshd

Serve = Callable[[str], Login]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Something that listens and behaves in that way to each who comes."""
    sockets: list[socket.socket] = []

    def answer(listening: socket.socket, manner: str) -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            if manner == "reset":
                # The client's greeting has come; to close over it, with nothing to linger for, is a reset.
                client.recv(1)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if manner == "penalty":
                client.sendall(b"Not allowed at this time\r\n")
            if manner == "silent":
                sockets.append(client)
            else:
                client.close()

    def start(manner: str) -> Login:
        listening = socket.create_server(("127.0.0.1", 0))
        sockets.append(listening)
        threading.Thread(target=answer, args=(listening, manner), daemon=True).start()
        port = listening.getsockname()[1]
        return Login(host="gpu1", address="127.0.0.1", user="root", port=port, key=None, known_hosts="/dev/null")

    yield start
    for server_socket in sockets:
        server_socket.close()


def by_fabric(login: Login) -> UnreachableError:
    return refused(FabricTransport(Host(name="gpu1", address=login.address), login))


def by_openssh(login: Login) -> UnreachableError:
    return refused(OpenSshTransport(Host(name="gpu1", address=login.address), login))


def refused(transport: Transport) -> UnreachableError:
    with closing(transport), pytest.raises(UnreachableError) as caught:
        transport.run(["true"])
    assert caught.value.host == "gpu1"
    return caught.value


@pytest.mark.parametrize("manner", ["penalty", "close", "reset"])
def test_an_address_that_is_turned_away(
    serve: Serve, manner: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    login = serve(manner)
    done = subprocess.run(
        [*openssh_argv(login), "true"], check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.returncode == 255
    for error in (no_session(login, done.stderr.strip()), by_fabric(login), by_openssh(login)):
        assert error.message.startswith("127.0.0.1 hung up before the login: ")
        for word in ("PerSourcePenalties", "fail2ban", "MaxStartups", "some minutes", "journalctl -u ssh"):
            assert word in str(error.hint)
        assert error.host == "gpu1"
        assert not isinstance(error, LoginRefusedError)
    # A busy sshd may take the next connection.
    assert len(pauses) >= DROPPED_ATTEMPTS - 1
    # Paramiko logs a traceback of each try.
    assert capfd.readouterr().err == ""


def test_one_that_says_nothing_is_not_that(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    # The two clocks are far apart: a pause of the machine must not make them equal.
    monkeypatch.setattr(fabric, "CONNECT_TIMEOUT_S", 60.0)
    monkeypatch.setattr(fabric, "FIRST_WORD", 0.01)
    monkeypatch.setattr(openssh, "CONNECT_TIMEOUT_S", 1)
    login = serve("silent")
    for error in (by_fabric(login), by_openssh(login)):
        assert "received no SSH banner within" in error.message
        assert "hung up" not in error.message


@pytest.mark.parametrize(
    ("message", "is_it"),
    [
        ("kex_exchange_identification: read: Connection reset by peer\nConnection reset by 10.0.0.1 port 22", True),
        ("kex_exchange_identification: Connection closed by remote host\nConnection closed by 10.0.0.1 port 22", True),
        # OpenSSH before 8.2.
        ("ssh_exchange_identification: Connection closed by remote host", True),
        ("ssh_exchange_identification: read: Connection reset by peer", True),
        # In the middle of the login, or of the session.
        ("Connection closed by 10.0.0.1 port 22", False),
        ("Connection to 10.0.0.1 closed by remote host.", False),
        ("Connection timed out during banner exchange", False),
        # No sshd.
        ("kex_exchange_identification: banner line contains invalid characters", False),
        # The jump host is there, and the VM behind it is not.
        ("channel 0: open failed: connect failed: No route to host\nstdio forwarding failed\n"
         "kex_exchange_identification: Connection closed by remote host\n"
         "Connection closed by UNKNOWN port 65535", False),
        # What kit's own options let through of the same.
        ("channel 0: open failed: administratively prohibited: open failed\nstdio forwarding failed\n"
         "kex_exchange_identification: Connection closed by remote host", False),
        ("ubuntu@bastion: Permission denied (publickey).\n"
         "kex_exchange_identification: Connection closed by remote host", False),
        ("ssh: connect to host bastion port 22: Connection refused\n"
         "kex_exchange_identification: Connection closed by remote host", False),
        # The jump host itself hung up. It may be at its MaxStartups.
        ("kex_exchange_identification: read: Connection reset by peer\nConnection reset by 10.0.0.9 port 22\n"
         "kex_exchange_identification: Connection closed by remote host", True),
        # A warning of ssh about its own files.
        ("Warning: Identity file /k/id not accessible: No such file or directory.\n"
         "kex_exchange_identification: read: Connection reset by peer", True),
        # A socket of a kept connection that is gone.
        ("Control socket connect(/run/user/0/kit/s): Connection refused\n"
         "kex_exchange_identification: Connection closed by remote host", True),
        ("", False),
    ],
)  # fmt: skip
def test_what_ssh_says(message: str, is_it: bool) -> None:
    assert dropped(message) is is_it


LOGIN = Login(host="gpu1", address="10.0.0.1", user=None, port=None, key=None, known_hosts=None)


CHANGED = """@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
Host key for 10.0.0.1 has changed and you have requested strict checking.
Host key verification failed."""


@pytest.mark.parametrize(
    ("text", "message", "failure"),
    [
        (CHANGED, "is not the one in known_hosts", "settled"),
        ("No ED25519 host key is known for 10.0.0.1 and you have requested strict checking.\n"
         "Host key verification failed.", "is not known here", "settled"),
        ("root@10.0.0.1: Permission denied (publickey).", "10.0.0.1 refused the login", "settled"),
        ("Received disconnect from 10.0.0.1 port 22:2: Too many authentication failures",
         "refused the login", "settled"),
        ("ssh: Could not resolve hostname gpu1: Name or service not known", "does not resolve", "settled"),
        ("Connection timed out during banner exchange\nConnection to 10.0.0.1 port 22 timed out",
         "received no SSH banner within 15 s", "settled"),
        ("ssh: connect to host 10.0.0.1 port 22: Connection timed out", "no SSH connection to 10.0.0.1", "settled"),
        ("ssh: connect to host 10.0.0.1 port 22: Connection refused", "no SSH connection to 10.0.0.1", "absent"),
        ("ssh: connect to host 10.0.0.1 port 22: No route to host", "no SSH connection to 10.0.0.1", "absent"),
        ("kex_exchange_identification: read: Connection reset by peer", "hung up before the login", "dropped"),
        ("No user exists for uid 12345", "no SSH connection to 10.0.0.1: No user exists for uid 12345", "settled"),
    ],
)  # fmt: skip
def test_what_ssh_writes_becomes_an_error_with_a_next_step(text: str, message: str, failure: str) -> None:
    error = no_session(LOGIN, text)
    assert message in error.message
    assert error.hint
    assert error.host == "gpu1"
    assert failure_of(text) == failure


def test_a_key_that_is_a_folder_is_not_missing(tmp_path: Path) -> None:
    for key, fault in ((tmp_path, "is a folder"), (tmp_path / "none", "does not exist")):
        login = replace(LOGIN, key=str(key))
        with pytest.raises(UnreachableError) as caught:
            OpenSshTransport(Host(name="gpu1", address=login.address), login).run(["true"])
        assert caught.value.message == f"the key {key} {fault}"


def test_a_key_that_ssh_cannot_use_is_the_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    made, broken = tmp_path / "host", tmp_path / "broken"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", made], check=True)
    with closing(Sshd(made)) as sshd:
        (tmp_path / "known").write_text(f"[127.0.0.1]:{sshd.port} {made.with_suffix('.pub').read_text()}")
        broken.write_bytes(made.read_bytes().replace(b"\n", b"\r\n"))
        broken.chmod(0o600)
        made.chmod(0o644)
        for key, why, hint in (
            (made, ": bad permissions", f"chmod 600 {made}"),
            (made.with_suffix(".pub"), ": bad permissions", f"name the private key: {made}"),
            # OpenSSH and its libraries have other words for it.
            (broken, ": ", f"ssh-keygen -y -f {broken}"),
        ):
            login = replace(LOGIN, address="127.0.0.1", port=sshd.port, key=str(key), known_hosts=f"{tmp_path}/known")
            error = by_openssh(login)
            assert f" refused the login, and ssh cannot use the key {key}{why}" in error.message
            assert hint in (error.hint or "")


def test_another_key_that_ssh_cannot_use_is_not_the_cause() -> None:
    text = 'Load key "/root/.ssh/id_rsa": bad permissions\nroot@10.0.0.1: Permission denied (publickey).'
    assert "cannot use the key /root/.ssh/id_rsa" in no_session(LOGIN, text).message
    assert "cannot use" not in no_session(replace(LOGIN, key="/root/vm"), text).message
    # The first is that of a ProxyJump.
    both = f'{text.splitlines()[0]}\nLoad key "/root/vm": bad permissions\n{text.splitlines()[1]}'
    assert "cannot use the key /root/vm" in no_session(replace(LOGIN, key="/root/vm"), both).message


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may run ssh as another user")
def test_a_user_id_without_a_name_is_not_the_fault_of_the_vm() -> None:
    """As in a container of CI. The text is this machine's ssh's own."""
    argv = ["ssh", "-F", "none", "127.0.0.1", "true"]
    refused = subprocess.run(
        argv, check=False, user=54321, group=54321, extra_groups=[], capture_output=True, text=True
    )
    error = no_session(LOGIN, refused.stderr)
    assert "/etc/passwd" in (error.hint or "")
    assert "is the VM up" not in (error.hint or "")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_an_option_that_ssh_does_not_know_is_named(end: str) -> None:
    """ssh itself ends its lines with both characters."""
    text = (
        f"/home/ana/my cfg: line 2: Bad configuration option: usekeychain{end}"
        f"/home/ana/my cfg: line 3: Bad configuration option: obscure{end}"
        "/home/ana/my cfg: terminating, 2 bad configuration options"
    )
    error = no_session(LOGIN, text)
    words = "ssh on this machine refuses /home/ana/my cfg, line 2: Bad configuration option: usekeychain"
    assert (error.message, error.host) == (words, "gpu1")
    assert error.hint == "remove the line, or write above it: IgnoreUnknown usekeychain"
    assert failure_of(text) == "settled"
    old = no_session(LOGIN, "command-line: line 0: Bad configuration option: remotecommand")
    assert old.message == "ssh on this machine does not know kit's option remotecommand"
    assert "OpenSSH 7.6 or newer" in str(old.hint)


END = "kex_exchange_identification: Connection closed by remote host"


@pytest.mark.parametrize(
    ("lines", "cause", "failure"),
    [
        ("channel 0: open failed: connect failed: No route to host\nstdio forwarding failed",
         "channel 0: open failed: connect failed: No route to host", "absent"),
        ("channel 0: open failed: administratively prohibited: x\nstdio forwarding failed",
         "channel 0: open failed: administratively prohibited: x", "settled"),
        ("Authorized use only\nubuntu@bastion: Permission denied (publickey).",
         "ubuntu@bastion: Permission denied (publickey).", "settled"),
        ("No ED25519 host key is known for bastion and you have requested strict checking.\n"
         "Host key verification failed.",
         "No ED25519 host key is known for bastion and you have requested strict checking.", "settled"),
        ("Host key verification failed.", "Host key verification failed.", "settled"),
        ("ssh: Could not resolve hostname bastion: Name or service not known",
         "ssh: Could not resolve hostname bastion: Name or service not known", "settled"),
        ("ssh: connect to host bastion port 22: Connection refused",
         "ssh: connect to host bastion port 22: Connection refused", "absent"),
        ("ssh: connect to host bastion port 22: Connection timed out",
         "ssh: connect to host bastion port 22: Connection timed out", "settled"),
        ("sh: 1: exec: cloudflared: not found", "sh: 1: exec: cloudflared: not found", "absent"),
        ("ERROR: no token\n\nRun:\n  gcloud auth login", "ERROR: no token Run: gcloud auth login", "absent"),
    ],
)  # fmt: skip
def test_a_proxy_that_fails_is_named(lines: str, cause: str, failure: str) -> None:
    text = f"{lines}\n{END}"
    error = no_session(LOGIN, text, proxy="ProxyJump bastion")
    assert error.message == f"no SSH connection to 10.0.0.1; its proxy wrote: {cause}"
    hint = str(error.hint)
    assert hint.startswith("your ssh_config reaches it by ProxyJump bastion. Try: ssh 10.0.0.1")
    # Other words than those of ssh may be a warning.
    assert ("the VM hung up" in hint) is ("gcloud" in cause or "cloudflared" in cause)
    assert isinstance(error, LoginRefusedError) is ("denied" in cause)
    assert failure_of(text, proxied=True) == failure
    # Without knowing of the proxy, only the words of ssh count.
    assert reason(text) == (END if "the VM hung up" in hint else cause)


def test_a_proxy_that_writes_nothing_may_be_the_one_that_hung_up() -> None:
    error = no_session(LOGIN, END, proxy="ProxyCommand nc %h %p")
    assert error.message == f"10.0.0.1 hung up before the login: {END}"
    assert "MaxStartups" in str(error.hint)
    assert "Or it was ProxyCommand nc %h %p" in str(error.hint)


@pytest.mark.parametrize(
    ("complaint", "message", "logins"),
    [
        (f"u@bastion: Permission denied (publickey).\n{END}", "its proxy wrote: u@bastion: Permission denied", 2),
        # The proxy gets through by now, and the VM refuses the login.
        ("u@10.0.0.1: Permission denied (publickey).", "10.0.0.1 refused the login", 2),
        (END, "hung up before the login", DROPPED_ATTEMPTS + 1),
    ],
)
def test_behind_a_proxy_a_kept_connection_is_explained(
    complaint: str, message: str, logins: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ssh sends what a proxy writes to /dev/null if the connection is to be kept."""
    monkeypatch.setattr(time, "sleep", lambda _: None)
    stub(
        tmp_path,
        monkeypatch,
        f"""[ "$1" != -G ] || {{ echo proxyjump bastion; exit 0; }}
        [ "$1" != -O ] || exit 1
        echo login >>{tmp_path}/logins
        case "$*" in *ControlPersist*) echo '{END}' >&2 ;; *) echo '{complaint}' >&2 ;; esac
        exit 255""",
    )
    assert message in by_openssh(LOGIN).message
    assert len((tmp_path / "logins").read_text().split()) == logins


def stub(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    (folder / "ssh").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_a_real_jump_host_that_refuses_is_asked_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for the connection, and once to see what the jump host's ssh writes."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "host"], check=True)
    jump = Sshd(tmp_path / "host")
    key = " ".join((tmp_path / "host.pub").read_text().split()[:2])
    (tmp_path / "known").write_text(f"[127.0.0.1]:{jump.port} {key}\n")
    (tmp_path / "config").write_text(
        f"Host gpu1\n ProxyJump bastion\nHost bastion\n HostName 127.0.0.1\n Port {jump.port}\n User u\n"
        f" UserKnownHostsFile {tmp_path}/known\n PubkeyAuthentication no\n"
    )
    stub(tmp_path, monkeypatch, f'exec {shutil.which("ssh")} -F {tmp_path}/config "$@"')
    error = by_openssh(replace(LOGIN, address="gpu1"))
    connections = jump.connections
    jump.close()
    assert error.message == "no SSH connection to gpu1; its proxy wrote: u@127.0.0.1: Permission denied (publickey)."
    assert error.hint == "your ssh_config reaches it by ProxyJump bastion. Try: ssh gpu1"
    assert connections == 2


@pytest.mark.parametrize(
    ("printed", "code", "reason"),
    [
        (
            'Please login as the user "ubuntu" rather than the user "root".\\n\\n',
            142,
            'Please login as the user "ubuntu"',
        ),
        ("Welcome\\nThis account is currently not available.\\n", 1, "This account is currently not available."),
        ("rejected\\n", 255, "rejected"),
        ("", 1, "exit 1"),
    ],
)
def test_a_login_without_a_shell(
    printed: str, code: int, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The forced command of a cloud's image, for example. Another attempt would be another refused login."""
    stub(tmp_path, monkeypatch, f"echo x >>{tmp_path}/logins; printf '{printed}'; exit {code}")
    error = by_openssh(replace(LOGIN, user="root", socket=str(tmp_path / "s")))
    assert isinstance(error, LoginRefusedError)
    assert error.message.startswith(f"root@10.0.0.1 logged in, but no shell answered: {reason}")
    assert "set user= in the hosts file" in str(error.hint)
    assert (tmp_path / "logins").read_text() == "x\n"


def test_csh_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub(tmp_path, monkeypatch, f"echo '{CSH}' >&2; exit 255")
    error = by_openssh(replace(LOGIN, user="ana", socket=str(tmp_path / "s")))
    assert error.message == "the login shell of ana@10.0.0.1 is csh or tcsh, which reads kit's commands differently"
    assert "chsh -s /bin/bash" in str(error.hint)


def test_hints_have_the_whole_login() -> None:
    login = Login(host="g", address="10.0.0.1", user="ana", port=2222, key="/k/my id", known_hosts="/k/my known")
    words = "ssh -p 2222 -i '/k/my id' -o 'UserKnownHostsFile=\"/k/my known\"' ana@10.0.0.1"
    for text in (
        "Permission denied (publickey).",
        "No ED25519 host key is known for 10.0.0.1 and you have requested strict checking.",
        "ssh: connect to host 10.0.0.1 port 2222: No route to host",
        CHANGED,
    ):
        assert str(no_session(login, text).hint).endswith(words)
    assert f"try: {words};" in str(broken_error(login, "x").hint)


def test_a_changed_key_is_removed_where_ssh_read_it() -> None:
    """An alias of ssh_config has another name in known_hosts, and perhaps another file."""
    text = CHANGED.replace("10.0.0.1", "[10.0.0.1]:2222").replace(
        "Host key for", "Offending ED25519 key in /home/ana/my known:12\nHost key for"
    )
    hint = str(no_session(replace(LOGIN, address="gpu1"), text).hint)
    assert "if it was recreated: ssh-keygen -f '/home/ana/my known' -R '[10.0.0.1]:2222'; then" in hint
    # Without the file and the name, those of the login count.
    login = replace(LOGIN, address="10.0.0.1", port=2222, known_hosts="/k/my known")
    assert "ssh-keygen -f '/k/my known' -R '[10.0.0.1]:2222'; then" in str(changed_key_error(login, "").hint)
    # No text of a proxy becomes an option.
    odd = CHANGED.replace("10.0.0.1 has", "-oX has").replace("Host key for", "Offending x key in -f:1\nHost key for")
    assert "recreated: ssh-keygen -R 10.0.0.1; then" in str(no_session(LOGIN, odd).hint)


def test_a_refused_login_is_a_separate_error() -> None:
    refused = no_session(LOGIN, "root@10.0.0.1: Permission denied (publickey).")
    assert isinstance(refused, LoginRefusedError)
    assert refused.message == "10.0.0.1 refused the login: root@10.0.0.1: Permission denied (publickey)."
    assert not isinstance(
        no_session(LOGIN, "ssh: connect to host 10.0.0.1 port 22: No route to host"), LoginRefusedError
    )
    domain = replace(LOGIN, user="CORP\\ann")
    refused = no_session(domain, r"CORP\\ann@10.0.0.1: Permission denied (publickey).")
    assert refused.message == r"CORP\ann@10.0.0.1 refused the login: Permission denied (publickey)."
    assert no_session(LOGIN, "").message == "no SSH connection to 10.0.0.1: exit 255"
