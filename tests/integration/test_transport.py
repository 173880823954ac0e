"""Both real transports against the real sshd of a lab host."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from kit.errors import UnreachableError
from kit.model.host import Host, Login
from kit.model.values import replace
from kit.remote.cluster import lock
from kit.remote.run.door import Door
from kit.remote.ssh import fanout, retry
from kit.remote.ssh.fabric import FabricTransport
from kit.remote.ssh.kept import kept
from kit.remote.ssh.multiplexed import OpenSshTransport
from kit.remote.ssh.openssh import control_argv
from kit.remote.ssh.transport import Transport
from tests.contract.transport_contract import ODD, TELL, Factory, TransportContract
from tests.integration.rig import VM, Cluster, until

Make = Callable[[Host, Login], Transport]


def make_key(path: Path) -> str:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return path.with_suffix(".pub").read_text().strip()


@pytest.fixture(scope="module")
def sshd_host(cluster: Cluster) -> tuple[Host, Login]:
    """A VM of the lab, reached by its own sshd as `lab up` wrote it down."""
    vm, keys = cluster.hosts[-1], cluster.folder / ".kit" / "lab"
    login = Login(
        host=vm.name,
        address=vm.address,
        user="root",
        port=22,
        key=str(keys / "id_ed25519"),
        known_hosts=str(keys / "known_hosts"),
    )
    return Host(name=vm.name, address=vm.address), login


class RealTransport(TransportContract):
    make: Callable[[Host, Login], Transport]

    @pytest.fixture
    def connect(self, sshd_host: tuple[Host, Login]) -> Iterator[Factory]:
        made: list[Transport] = []

        def new() -> Transport:
            made.append(type(self).make(*sshd_host))
            return made[-1]

        yield new
        for transport in made:
            transport.close()

    @pytest.fixture
    def scratch(self, sshd_host: tuple[Host, Login]) -> Iterator[str]:
        folder = f"/tmp/kit-contract-{uuid.uuid4().hex}"
        yield f"{folder}/opt"
        with closing(FabricTransport(*sshd_host)) as transport:
            transport.run(["rm", "-rf", "--", folder])


class TestFabricTransport(RealTransport):
    make = FabricTransport


class TestOpenSshTransport(RealTransport):
    make = OpenSshTransport


class TestOpenSshTransportOverAKeptConnection(RealTransport):
    make = OpenSshTransport

    @pytest.fixture
    def connect(self, sshd_host: tuple[Host, Login]) -> Iterator[Factory]:
        host, login = sshd_host
        with tempfile.TemporaryDirectory(prefix="kit-", dir="/tmp") as folder:
            shared = kept(login, Path(folder))
            yield lambda: OpenSshTransport(host, shared)
            subprocess.run(control_argv(shared, "exit"), capture_output=True, check=False)


@pytest.fixture(params=[FabricTransport, OpenSshTransport])
def make(request: pytest.FixtureRequest) -> Make:
    return request.param  # type: ignore[no-any-return]


def refused(make: Make, host: Host, login: Login) -> UnreachableError:
    with closing(make(host, login)) as transport, pytest.raises(UnreachableError) as caught:
        transport.run(["true"])
    assert caught.value.host == host.name
    assert caught.value.hint
    return caught.value


def test_a_wrong_host_key_refuses(make: Make, sshd_host: tuple[Host, Login], tmp_path: Path) -> None:
    host, login = sshd_host
    other = make_key(tmp_path / "other")
    (tmp_path / "known_hosts").write_text(f"{login.address} {other}\n")
    error = refused(make, host, replace(login, known_hosts=str(tmp_path / "known_hosts")))
    assert "is not the one in known_hosts" in error.message
    assert "ssh-keygen" in str(error.hint)


@pytest.mark.parametrize("there", [True, False])
def test_an_unknown_host_key_refuses(make: Make, sshd_host: tuple[Host, Login], tmp_path: Path, there: bool) -> None:
    host, login = sshd_host
    if there:
        (tmp_path / "known_hosts").write_text("")
    error = refused(make, host, replace(login, known_hosts=str(tmp_path / "known_hosts")))
    assert "is not known here" in error.message
    assert not (tmp_path / "known_hosts").exists() or (tmp_path / "known_hosts").read_text() == ""


def test_a_key_that_is_not_let_in(make: Make, sshd_host: tuple[Host, Login], tmp_path: Path) -> None:
    host, login = sshd_host
    make_key(tmp_path / "stranger")
    assert "refused the login" in refused(make, host, replace(login, key=str(tmp_path / "stranger"))).message


def test_a_key_that_does_not_exist(make: Make, sshd_host: tuple[Host, Login], tmp_path: Path) -> None:
    host, login = sshd_host
    assert "does not exist" in refused(make, host, replace(login, key=str(tmp_path / "none"))).message


def test_nobody_listens(make: Make, sshd_host: tuple[Host, Login]) -> None:
    host, login = sshd_host
    assert "no SSH connection" in refused(make, host, replace(login, port=1)).message


def test_a_name_that_does_not_resolve(make: Make, sshd_host: tuple[Host, Login]) -> None:
    host, login = sshd_host
    assert "does not resolve" in refused(make, host, replace(login, address="no-such-host.invalid")).message


def test_a_connection_that_is_cut(make: Make, sshd_host: tuple[Host, Login]) -> None:
    """The session's own sshd is killed under the command; the next command connects again."""
    cut = "read -r name </proc/$PPID/comm; case $name in sshd*) kill -9 $PPID ;; esac; sleep 30"
    with closing(make(*sshd_host)) as transport:
        with pytest.raises(UnreachableError) as caught:
            transport.run(["sh", "-c", cut], timeout_s=20)
        assert "the connection broke" in caught.value.message
        assert transport.run(["echo", "again"]).stdout == b"again\n"


def test_kit_ssh_passes_each_word_to_the_command(cluster: Cluster) -> None:
    words = [word for word in ODD if "\x01" not in word]
    done = cluster.kit("ssh", cluster.hosts[-1].name, "--", "sh", "-c", TELL, "sh", *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\0")[:-1] == words


def test_nothing_is_left_of_a_verb_that_keeps_no_connection(cluster: Cluster, sshd_host: tuple[Host, Login]) -> None:
    # What this would find if a verb left it.
    with closing(OpenSshTransport(sshd_host[0], replace(sshd_host[1], socket=None))) as transport:
        assert transport.run(["true"]).code == 0
        assert len(masters(cluster)) == 1
    assert cluster.kit("ps", "--no-keep").returncode == 0
    assert masters(cluster) == set()


def masters(cluster: Cluster) -> set[str]:
    """Return the processes of ssh that hold a connection to a host of this cluster open for one transport.

    Verbs of other lanes have such processes at any time, for their own hosts.
    """
    title = r"^ssh: /tmp/kit-[0-9]+-[^/]{8}/s \[mux\]"
    processes = subprocess.run(["pgrep", "-f", title], capture_output=True, text=True, check=False).stdout.split()
    sockets = subprocess.run(["ss", "-Htnp"], capture_output=True, text=True, check=True).stdout
    peers = {host.address for host in cluster.hosts}
    mine = [line for line in sockets.splitlines() if line.split()[4].rpartition(":")[0] in peers]
    return {pid for pid in processes if any(f"pid={pid}," in line for line in mine)}


PORT = 2202
# An address that takes few logins at a time, and hangs up on every other client.
CROWDED = """
set -e
mkdir -p /run/sshd
exec /usr/sbin/sshd -D -p "$1" -E "$2" -o MaxStartups="$3" -o PidFile="$2.pid"
"""


@dataclass(frozen=True, kw_only=True)
class Crowded:
    """A second sshd of a VM. `turned_away`: it hung up on a client because too many were logging in."""

    host: Host
    login: Login
    vm: VM
    log: str

    @property
    def turned_away(self) -> bool:
        # sshd does not log each of them.
        return self.vm.ssh("grep", "-i", "MaxStartups", self.log).returncode == 0


@contextlib.contextmanager
def crowded(vm: VM, login: Login, tmp_path: Path, *, startups: str) -> Iterator[Crowded]:
    port, log = PORT, f"/tmp/kit-sshd-{uuid.uuid4().hex}.log"
    known_hosts = tmp_path / "crowded_hosts"
    keys = Path(str(login.known_hosts)).read_text().splitlines()
    own = [line.split(" ", 1)[1] for line in keys if login.address in line.split(" ", 1)[0].split(",")]
    known_hosts.write_text("".join(f"[{login.address}]:{port} {key}\n" for key in own))
    vm.text("sh", "-c", f"setsid sh -c '{CROWDED}' sh {port} {log} {startups} </dev/null >/dev/null 2>&1 &")
    try:
        until("the second sshd listens", lambda: vm.listeners(port))
        yield Crowded(
            host=Host(name=vm.name, address=vm.address, port=port),
            login=replace(login, port=port, known_hosts=str(known_hosts)),
            vm=vm,
            log=log,
        )
    finally:
        vm.ssh("sh", "-c", f"kill $(cat {log}.pid); rm -f {log} {log}.pid")


def test_many_logins_at_once_at_a_host_that_takes_two(
    cluster: Cluster, sshd_host: tuple[Host, Login], tmp_path: Path
) -> None:
    """Each of 24 transports makes its own connection. sshd turns most away at first, and in the end all are served."""
    with crowded(cluster.hosts[-1], sshd_host[1], tmp_path, startups="2:100:2") as crowd:
        hosts = [replace(crowd.host, name=f"gpu{number}") for number in range(1, 25)]

        def work(host: Host) -> str:
            with closing(OpenSshTransport(host, crowd.login)) as transport:
                return transport.run(["echo", host.name]).text

        outcome = fanout.each(hosts, work, width=len(hosts))
        assert outcome.failures == {}
        assert outcome.results == {host.name: f"{host.name}\n" for host in hosts}
        assert crowd.turned_away


def test_an_sshd_that_takes_nobody_is_at_its_max_startups(
    make: Make, cluster: Cluster, sshd_host: tuple[Host, Login], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "_LONGEST_S", 0.2)
    with (
        crowded(cluster.hosts[-1], sshd_host[1], tmp_path, startups="1:100:1") as crowd,
        # It waits for this client's first word, and has room for no other.
        socket.create_connection((crowd.host.address, PORT), timeout=30) as silent,
    ):
        assert silent.recv(4) == b"SSH-"
        error = refused(make, crowd.host, crowd.login)
        assert "hung up before the login" in error.message
        assert "MaxStartups" in str(error.hint)
        assert crowd.turned_away


@pytest.fixture
def slow_login(cluster: Cluster) -> Iterator[str]:
    """A file on the head. While it exists, root's shell there starts slowly: a session is open, and nothing runs."""
    slow, profile = "/tmp/kit-slow-login", "/root/.bashrc"
    vm = cluster.head
    vm.script('cp "$1" "$1.kept"; printf "[ ! -e $2 ] || sleep 20\\n" | cat - "$1.kept" >"$1"', profile, slow)
    yield slow
    vm.script('mv "$1.kept" "$1"; rm -f "$2"', profile, slow)


@pytest.mark.parametrize("what", ["command", "lock", "door"])
def test_a_kept_connection_that_dies_before_a_command_begins_is_replaced(
    cluster: Cluster, slow_login: str, what: str
) -> None:
    vm, keys = cluster.head, cluster.folder / ".kit" / "lab"
    host = Host(name=vm.name, address=vm.address)
    key, known_hosts = str(keys / "id_ed25519"), str(keys / "known_hosts")
    with tempfile.TemporaryDirectory(prefix="kit-", dir="/tmp") as folder:
        alone = Login(host=vm.name, address=vm.address, user="root", port=22, key=key, known_hosts=known_hosts)
        login = kept(alone, Path(folder))
        with closing(OpenSshTransport(host, login)) as transport:
            session = session_of(transport)
        # In the background of the VM, because every session that starts meanwhile is slow.
        cut = 'touch "$1"; (sleep 2; rm -f "$1"; kill -KILL "$2") </dev/null >/dev/null 2>&1 &'
        vm.script(cut, slow_login, session)
        try:
            if what == "command":
                with closing(OpenSshTransport(host, login)) as transport:
                    assert transport.run(["echo", "again"]).text == "again\n"
            elif what == "lock":
                held = lock.take(login, f"/tmp/kit-{uuid.uuid4().hex}/.lock/itest", "a test")
                held.check()
                held.release()
            else:
                door = Door(login, cluster.container(vm))
                door.open()
                door.close()
                assert cluster.name in door.record
        finally:
            subprocess.run(control_argv(login, "exit"), capture_output=True, check=False)


def session_of(transport: Transport) -> str:
    """Return the process of sshd that serves this connection."""
    walk = (
        "pid=$$; while read -r name </proc/$pid/comm; do case $name in sshd*) break ;; esac; "
        "pid=$(awk '/^PPid/ {print $2}' /proc/$pid/status); done; echo $pid"
    )
    return transport.run(["sh", "-c", walk]).text.strip()


CERTIFIED = """
set -eu
mkdir -p /run/sshd
folder=$1 port=$2
exec /usr/sbin/sshd -D -p "$port" -o HostKey="$folder/host" -o HostCertificate="$folder/host-cert.pub" \\
  -o PidFile="$folder/pid"
"""


@dataclass(frozen=True, kw_only=True)
class Certified:
    """A second sshd of a VM, whose host key has a certificate. `authority` is the public key that signed it."""

    host: Host
    login: Login
    authority: str
    key: str

    def trust(self, *lines: str) -> None:
        Path(str(self.login.known_hosts)).write_text("".join(f"{line}\n" for line in lines))

    @property
    def name(self) -> str:
        return f"[{self.login.address}]:{self.login.port}"


def sign(folder: Path, principal: str, *words: str) -> str:
    """Make an authority and a host key with its certificate in the folder. Return the authority's public key."""
    authority = make_key(folder / "authority")
    make_key(folder / "host")
    subject = ["-h", "-I", "kit", "-n", principal, *words, str(folder / "host.pub")]
    subprocess.run(["ssh-keygen", "-q", "-s", str(folder / "authority"), *subject], check=True)
    return " ".join(authority.split()[:2])


@contextlib.contextmanager
def certified(vm: VM, login: Login, folder: Path, *words: str) -> Iterator[Certified]:
    """Start the sshd with a certificate for the VM's address. `words` change the certificate."""
    port, there = PORT + 1, f"/tmp/kit-certified-{uuid.uuid4().hex}"
    name = f"[{vm.address}]:{port}"
    authority = sign(folder, f"{vm.address},{name}", *words)
    for file in ("host", "host.pub", "host-cert.pub"):
        vm.script('umask 77; mkdir -p "$1"; printf "%s\\n" "$3" >"$1/$2"', there, file, (folder / file).read_text())
    vm.text("sh", "-c", f"setsid sh -c '{CERTIFIED}' sh {there} {port} </dev/null >/dev/null 2>&1 &")
    try:
        until("the sshd with a certificate listens", lambda: vm.listeners(port))
        yield Certified(
            host=Host(name=vm.name, address=vm.address, port=port),
            login=replace(login, port=port, known_hosts=str(folder / "known_hosts")),
            authority=authority,
            key=" ".join((folder / "host.pub").read_text().split()[:2]),
        )
    finally:
        vm.ssh("sh", "-c", f"kill $(cat {there}/pid); rm -rf {there}")


def test_an_authority_in_known_hosts_vouches_for_its_hosts(
    make: Make, cluster: Cluster, sshd_host: tuple[Host, Login], tmp_path: Path
) -> None:
    with certified(cluster.hosts[-1], sshd_host[1], tmp_path) as site:
        site.trust(f"@cert-authority {site.name} {site.authority}")
        with closing(make(site.host, site.login)) as transport:
            assert transport.run(["echo", "certified"]).text == "certified\n"
        # Only for the names on the line, and not with a key that is marked as revoked.
        site.trust(f"@cert-authority *.example.com {site.authority}")
        assert "is not known here" in refused(make, site.host, site.login).message
        for revoked in (site.authority, site.key):
            site.trust(f"@cert-authority {site.name} {site.authority}", f"@revoked * {revoked}")
            assert "@revoked" in refused(make, site.host, site.login).message


def test_a_certificate_that_is_over(
    make: Make, cluster: Cluster, sshd_host: tuple[Host, Login], tmp_path: Path
) -> None:
    with certified(cluster.hosts[-1], sshd_host[1], tmp_path, "-V", "20200101:20200102") as site:
        site.trust(f"@cert-authority {site.name} {site.authority}")
        assert "certificate" in refused(make, site.host, site.login).message
