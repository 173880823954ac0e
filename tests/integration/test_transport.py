"""Both real transports against the real sshd of a lab host."""

from __future__ import annotations

import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from kit.errors import UnreachableError
from kit.model.host import Host, Login
from kit.remote.ssh.fabric import FabricTransport
from kit.remote.ssh.kept import kept
from kit.remote.ssh.multiplexed import OpenSshTransport
from kit.remote.ssh.openssh import control_argv
from kit.remote.ssh.transport import Transport
from tests.contract.transport_contract import ODD, TELL, Factory, TransportContract
from tests.integration.rig import Cluster

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


def test_nothing_is_left_of_a_verb_that_keeps_no_connection(cluster: Cluster) -> None:
    assert cluster.kit("ps", "--no-keep").returncode == 0
    assert masters() == set()


def masters() -> set[str]:
    """Return the processes of ssh that hold a connection open for one transport."""
    title = r"^ssh: /tmp/kit-[^/]{8}/s \[mux\]"
    return set(subprocess.run(["pgrep", "-f", title], capture_output=True, text=True, check=False).stdout.split())
