"""Attacks on kit's ssh: settings that forward what you have to a VM, and host keys that known_hosts does not trust.

The clients are the real ones. The sshd of these tests notes all that a client asks for beside its command.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from kit.errors import UnreachableError
from kit.model.host import Host, Login
from kit.model.values import replace
from kit.remote.run.door import KEEP_ALIVE
from kit.remote.ssh.fabric import FabricTransport
from kit.remote.ssh.known import is_plain
from kit.remote.ssh.multiplexed import OpenSshTransport
from kit.remote.ssh.openssh import container_terminal_argv, openssh_argv, terminal_argv
from kit.remote.ssh.transport import Transport
from kit.remote.ssh.tunnel import Tunnel
from tests.fakes.sshd import Sshd
from tests.sockets import free_port

Make = Callable[[Host, Login], Transport]
CLIENTS: Sequence[Make] = (OpenSshTransport, FabricTransport)

# What a person may have in ~/.ssh/config for their own sessions, or somebody else put there.
HOSTILE = """
Host *
  AddKeysToAgent yes
  ForwardAgent yes
  ForwardX11 yes
  ForwardX11Trusted yes
  GSSAPIAuthentication yes
  GSSAPIDelegateCredentials yes
  Tunnel yes
  LocalForward {port} 127.0.0.1:9
  DynamicForward {port}
  RemoteForward 9090 127.0.0.1:9
  PermitLocalCommand yes
  LocalCommand touch {mark}
  RemoteCommand touch {mark}
  RequestTTY force
  ControlMaster auto
  ControlPersist yes
  ControlPath {folder}/mine-%C
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  VerifyHostKeyDNS yes
  NoHostAuthenticationForLocalhost yes
  UpdateHostKeys yes
  CheckHostIP no
"""


class Site(NamedTuple):
    """An sshd, its public key, and a login to it, whose known_hosts is still missing."""

    sshd: Sshd
    key: str
    login: Login
    folder: Path

    @property
    def known_hosts(self) -> Path:
        return Path(self.login.known_hosts or "")

    @property
    def name(self) -> str:
        return f"[127.0.0.1]:{self.sshd.port}"

    def trust(self, *lines: str) -> None:
        self.known_hosts.write_text("".join(f"{line}\n" for line in lines))

    def run(self, make: Make, *words: str) -> str:
        with closing(make(Host(name="gpu1", address="127.0.0.1"), self.login)) as transport:
            return transport.run(words).text

    def refusal(self, make: Make) -> UnreachableError:
        with pytest.raises(UnreachableError) as caught:
            self.run(make, "true")
        return caught.value


def keygen(path: Path) -> str:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return " ".join(path.with_suffix(".pub").read_text().split()[:2])


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    key = keygen(tmp_path / "host")
    keygen(tmp_path / "id")
    sshd = Sshd(tmp_path / "host")
    login = Login(
        host="gpu1",
        address="127.0.0.1",
        user="root",
        port=sshd.port,
        key=str(tmp_path / "id"),
        known_hosts=str(tmp_path / "known_hosts"),
    )
    site = Site(sshd, key, login, tmp_path)
    site.trust(f"{site.name} {key}")
    yield site
    sshd.close()


@pytest.fixture
def config(site: Site, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the mark that a hostile ssh_config makes. Every ssh of the test reads this ssh_config."""
    file, mark, programs = site.folder / "config", site.folder / "mark", site.folder / "bin"
    file.write_text(HOSTILE.format(port=site.sshd.port + 1, mark=mark, folder=site.folder))
    programs.mkdir()
    real = subprocess.run(["sh", "-c", "command -v ssh"], capture_output=True, text=True, check=True).stdout.strip()
    (programs / "ssh").write_text(f'#!/bin/sh\nexec {real} -F {file} "$@"\n')
    (programs / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("DISPLAY", "127.0.0.1:99")
    # Fabric reads the home folder's file.
    (site.folder / ".ssh").mkdir()
    (site.folder / ".ssh" / "config").write_text(file.read_text())
    monkeypatch.setenv("HOME", str(site.folder))
    return mark


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    started = subprocess.run(["ssh-agent", "-s", "-a", tmp_path / "agent"], capture_output=True, text=True, check=True)
    number = re.search(r"SSH_AGENT_PID=(\d+)", started.stdout)
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
    yield
    os.kill(int(number[1]) if number else 0, 15)


@pytest.mark.usefixtures("agent")
@pytest.mark.parametrize("make", CLIENTS)
def test_no_connection_takes_along_what_you_have(make: Make, site: Site, config: Path) -> None:
    before = site.known_hosts.read_text()
    assert site.run(make, "sh", "-c", "echo $((40 + 2)) $KIT_SECRET") == "42\n"
    assert (site.sshd.connections, site.sshd.extras) == (1, [])
    assert not config.exists()
    assert not list(site.folder.glob("mine-*"))
    assert site.known_hosts.read_text() == before
    assert "no identities" in subprocess.run(["ssh-add", "-l"], capture_output=True, text=True, check=False).stdout


def test_a_tunnel_forwards_what_kit_wants_and_nothing_of_a_config(site: Site, config: Path) -> None:
    lines: list[str] = []
    local = free_port("127.0.0.1")
    command = ["sh", "-c", "echo begun; exec cat"]
    host = Host(name="gpu1", address="127.0.0.1")
    with Tunnel(host, site.login, command, line=lines.append, refused=lines.append) as tunnel:
        tunnel.open()
        assert tunnel.wait_for(lambda: bool(lines), timeout_s=30)
        assert site.sshd.extras == []
        tunnel.forward(local, "127.0.0.1", 9)
        with socket.create_connection(("127.0.0.1", local), timeout=20) as here:
            assert here.recv(1) == b""
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", site.sshd.port + 1), timeout=5)
    assert site.sshd.extras == ["local forwarding"]
    assert not config.exists()
    assert not list(site.folder.glob("mine-*"))


def test_the_users_own_session_has_them(site: Site, config: Path) -> None:
    """Otherwise the test above proves nothing: this sshd sees what a client asks for."""
    argv = [word for word in terminal_argv(site.login, tty=False) if "RemoteCommand" not in word]
    done = subprocess.run(["ssh", "-o", "RemoteCommand=none", *argv[1:], "true"], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "remote forwarding" in site.sshd.extras
    assert config.exists()


def settings_of(argv: Sequence[str], config: Path) -> dict[str, str]:
    done = subprocess.run([argv[0], "-G", "-F", config, *argv[1:]], capture_output=True, text=True, check=True)
    return dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)


@pytest.mark.parametrize("kind", ["background", "door", "container terminal"])
def test_each_background_connection_sets_off_what_it_does_not_need(kind: str, site: Site, tmp_path: Path) -> None:
    file = tmp_path / "hostile"
    file.write_text(HOSTILE.format(port=1024, mark=tmp_path / "mark", folder=tmp_path))
    argv = {
        "background": openssh_argv(site.login),
        "door": openssh_argv(site.login, options=KEEP_ALIVE, sharing="make"),
        "container terminal": container_terminal_argv(site.login),
    }[kind]
    options = settings_of(argv, file)
    off = [
        "addkeystoagent", "forwardagent", "forwardx11", "gssapidelegatecredentials", "nohostauthenticationforlocalhost",
        "permitlocalcommand", "tunnel", "updatehostkeys", "verifyhostkeydns",
    ]  # fmt: skip
    assert {name: options.get(name) for name in off} == dict.fromkeys(off, "no") | (
        {"addkeystoagent": "false"} | {name: "false" for name in off if options.get(name) == "false"}
    )
    assert options["clearallforwardings"] == "yes"
    assert options["stricthostkeychecking"] in ("yes", "true")
    assert options["userknownhostsfile"] == site.login.known_hosts
    assert not options.keys() & {"localforward", "remoteforward", "dynamicforward", "remotecommand"}


def test_paths_are_no_patterns_and_no_options(tmp_path: Path) -> None:
    """ssh splits such values at blanks, and expands %."""
    odd = tmp_path / "a %h -oProxyCommand=x"
    odd.mkdir()
    login = Login(host="g", address="gpu1", user=None, port=None, key=str(odd / "id"), known_hosts=str(odd / "known"))
    options = settings_of(openssh_argv(login), Path("/dev/null"))
    assert options["hostname"] == "gpu1"
    assert "proxycommand" not in options
    assert options["identityfile"].replace("%%", "%").strip('"') == str(odd / "id")
    assert options["userknownhostsfile"].replace("%%", "%").strip('"') == str(odd / "known")


@pytest.mark.parametrize("make", CLIENTS)
def test_a_revoked_key_is_refused_by_name(make: Make, site: Site) -> None:
    """Also if the same key is listed as good. Python's ssh knows no @revoked."""
    site.trust(f"{site.name} {site.key}", f"@revoked * {site.key}")
    error = site.refusal(make)
    assert "@revoked" in error.message
    assert error.exit_code == 3


@pytest.mark.parametrize("make", CLIENTS)
def test_another_key_than_the_pinned_one_is_refused(make: Make, site: Site) -> None:
    other = keygen(site.folder / "other")
    site.trust(f"{site.name} {other}")
    mark = site.folder / "mark"
    with pytest.raises(UnreachableError) as caught:
        site.run(make, "touch", str(mark))
    assert caught.value.message == (
        f"the host key of root@127.0.0.1:{site.sshd.port} is not the one in known_hosts: somebody intercepts the "
        "connection, or the VM was recreated"
    )
    assert f"ssh-keygen -f {site.known_hosts} -R '{site.name}'" in str(caught.value.hint)
    assert site.sshd.offers == []
    assert not mark.exists()


@pytest.mark.parametrize("make", CLIENTS)
def test_one_of_several_keys_in_known_hosts_is_enough(make: Make, site: Site) -> None:
    """Python's ssh would compare only one of them."""
    lines = [f"{site.name} {site.key}", f"{site.name} {keygen(site.folder / 'other')}"]
    for order in (lines, lines[::-1]):
        site.trust(*order)
        assert site.run(make, "echo", "here") == "here\n"


@pytest.mark.parametrize("make", CLIENTS)
def test_the_localhost_of_a_hostile_config_needs_its_key_too(make: Make, site: Site, config: Path) -> None:
    site.trust("")
    assert "is not known here" in site.refusal(make).message
    assert not config.exists()


KEY = "AAAAC3NzaC1lZDI1NTE5AAAAIF1kaAVBYlgI4HKAz4dP2uu6jPjI7h1uY9xBQy5l7mMo"
ODD_LINES = {
    "an authority": f"@cert-authority * ssh-ed25519 {KEY}",
    "an authority without a key": "@cert-authority *.example.com",
    "no base64": "gpu9 ssh-ed25519 !!!",
    "half of base64": "gpu9 ssh-ed25519 AAAAC",
    "a hash that is cut": f"|1|abc|def ssh-ed25519 {KEY}",
    "a key of another kind": f"gpu9 ssh-rsa {KEY}",
    "a short key": "gpu9 ssh-ed25519 AAAA",
    "an unknown marker": "@other * ssh-ed25519 AAAA",
    "a tab": "gpu9\tssh-ed25519\tAAAA",
    "bytes": "gpu9 \udcff\udcfe",
}


@pytest.mark.parametrize("line", ODD_LINES.values(), ids=ODD_LINES.keys())
@pytest.mark.parametrize("make", CLIENTS)
def test_other_lines_of_known_hosts_do_not_end_kit(make: Make, line: str, site: Site) -> None:
    site.known_hosts.write_bytes(f"{line}\n{site.name} {site.key}\n".encode(errors="surrogateescape"))
    assert site.run(make, "echo", "here") == "here\n"


@pytest.mark.parametrize("make", CLIENTS)
def test_a_pattern_in_known_hosts_counts(make: Make, site: Site) -> None:
    site.trust(f"[127.0.0.*]:{site.sshd.port} {site.key}")
    assert site.run(make, "echo", "here") == "here\n"


def test_plain_files_stay_with_pythons_ssh(site: Site) -> None:
    hashed = subprocess.run(["ssh-keygen", "-H", "-f", site.known_hosts], capture_output=True, text=True, check=True)
    assert hashed.returncode == 0
    assert site.known_hosts.read_text().startswith("|1|")
    assert is_plain(str(site.known_hosts))
    site.trust(f"gpu1,10.0.0.1,{site.name} {site.key} comment of mine", "# a comment", "")
    assert is_plain(str(site.known_hosts))
    assert is_plain(str(site.folder / "missing"))
    with closing(FabricTransport(Host(name="g", address="127.0.0.1"), site.login)) as transport:
        assert transport.run(["echo", "x"]).text == "x\n"
        assert transport._openssh is None


@pytest.mark.parametrize("line", ["@revoked * {}", "@revoked gpu1 {}", "  @revoked gpu1 {}", "@cert-authority * {}"])
def test_files_with_markers_are_not_for_pythons_ssh(line: str, site: Site) -> None:
    """It happens to fail for many of these lines, and would take the others for names of hosts."""
    site.trust(f"{site.name} {site.key}", line.format(site.key))
    assert not is_plain(str(site.known_hosts))


def test_a_config_that_pythons_ssh_cannot_read(site: Site, config: Path) -> None:
    """OpenSSH has had Match localnetwork since 9.4, and Match tagged."""
    (site.folder / ".ssh" / "config").write_text("Match bogus x\n  User nobody\n")
    assert site.run(FabricTransport, "echo", "here") == "here\n"
    assert not config.exists()


def configured(site: Site, config: Path, *lines: str) -> Site:
    """Return the site with a login that has no key and no known_hosts: these lines of ssh_config have them."""
    text = "Host *\n" + "".join(f"  {line}\n" for line in lines)
    for file in (site.folder / "config", site.folder / ".ssh" / "config"):
        file.write_text(text)
    return site._replace(login=replace(site.login, key=None, known_hosts=None))


def test_what_pythons_ssh_does_not_know_of_a_config_is_left_to_openssh(site: Site, config: Path) -> None:
    key = f"IdentityFile {site.folder / 'id'}"
    known = f"UserKnownHostsFile {site.known_hosts}"
    assert configured(site, config, key, known).run(FabricTransport, "echo", "here") == "here\n"
    # Which keys count is the same.
    strange = configured(site, config, key, f"UserKnownHostsFile {site.folder / 'missing'}")
    assert "is not known here" in strange.refusal(FabricTransport).message


@pytest.mark.usefixtures("agent")
def test_the_agent_of_a_config_is_left_to_openssh(site: Site, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run(["ssh-add", "-q", site.folder / "id"], check=True)
    monkeypatch.delenv("SSH_AUTH_SOCK")
    known = site.folder / ".ssh" / "known_hosts"
    known.write_text(site.known_hosts.read_text())
    there = configured(site, config, f"UserKnownHostsFile {known}", f"IdentityAgent {site.folder / 'agent'}")
    assert there.run(FabricTransport, "echo", "here") == "here\n"


@pytest.mark.parametrize("make", CLIENTS)
def test_the_known_hosts_of_a_config_decides_about_a_changed_key(make: Make, site: Site, config: Path) -> None:
    """Python's ssh looks only into the usual file, and only for the address."""
    key, other = f"IdentityFile {site.folder / 'id'}", keygen(site.folder / "other")
    (site.folder / ".ssh" / "known_hosts").write_text(f"{site.name} {other}\n")
    there = configured(site, config, key, f"UserKnownHostsFile {site.known_hosts}")
    assert there.run(make, "echo", "here") == "here\n"
    site.trust(f"{site.name} {other}", f"gpu-1 {site.key}")
    error = there.refusal(make)
    assert "is not the one in known_hosts" in error.message
    assert f"ssh-keygen -f {site.known_hosts} -R '{site.name}'" in str(error.hint)
    there = configured(site, config, key, f"UserKnownHostsFile {site.known_hosts}", "HostKeyAlias gpu-1")
    assert there.run(make, "echo", "here") == "here\n"


@pytest.mark.parametrize("make", CLIENTS)
def test_csh_runs_no_line_of_a_script(make: Make, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """csh would end the quoted script at its first newline, and run the next lines as the login."""
    monkeypatch.setenv("shell", "/bin/tcsh")
    with pytest.raises(UnreachableError, match="is csh or tcsh"):
        site.run(make, "sh", "-c", f"true\ntouch {site.folder}/mark\n")
    assert not (site.folder / "mark").exists()


def test_kept_sockets_are_closed_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user may make the folder in /tmp first, or a link there."""
    from kit.remote.ssh import kept  # noqa: PLC0415

    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    for number, plant in enumerate(("open folder", "link", "file", "loose parent")):
        shared = tmp_path / str(number)
        shared.mkdir()
        place = shared / "kit"
        if plant == "open folder":
            place.mkdir(mode=0o777)
            place.chmod(0o777)
        elif plant == "link":
            (shared / "theirs").mkdir(mode=0o700)
            place.symlink_to(shared / "theirs")
        elif plant == "file":
            place.write_text("")
        if plant == "loose parent":
            assert kept._is_private(place)
        else:
            assert not kept._is_private(place), plant
