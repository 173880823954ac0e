"""Where kept connections have their sockets: private, short, and another for a VM that was recreated."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kit.model.host import Login
from kit.model.values import replace
from kit.remote.ssh import kept as sockets
from kit.remote.ssh.kept import kept, socket_folder


@pytest.fixture
def login(tmp_path: Path) -> Login:
    (tmp_path / "known_hosts").write_text("10.0.0.4 ssh-ed25519 AAAA\n")
    known_hosts = str(tmp_path / "known_hosts")
    return Login(host="gpu4", address="10.0.0.4", user="root", port=22, key=None, known_hosts=known_hosts)


@pytest.fixture(autouse=True)
def another_process() -> Callable[[], None]:
    def forget() -> None:
        sockets._state.cache_clear()
        sockets._config_state.cache_clear()

    forget()
    return forget


def test_a_connection_is_found_again(login: Login, another_process: Callable[[], None]) -> None:
    first = kept(login, Path("/run/kit"))
    another_process()
    assert kept(replace(login, host="alias"), Path("/run/kit")).socket == first.socket
    assert str(first.socket).startswith("/run/kit/")


@pytest.mark.parametrize(
    "other", [{"user": "ubuntu"}, {"port": 2222}, {"address": "10.0.0.5"}, {"key": "/k"}, {"known_hosts": "/kh"}]
)
def test_another_login_is_another_connection(login: Login, other: dict[str, object]) -> None:
    assert kept(replace(login, **other), Path("/r")).socket != kept(login, Path("/r")).socket


def test_a_vm_that_was_recreated_is_another_connection(login: Login, another_process: Callable[[], None]) -> None:
    before = kept(login, Path("/r")).socket
    another_process()
    Path(str(login.known_hosts)).write_text("10.0.0.4 ssh-ed25519 BBBB\n")
    assert kept(login, Path("/r")).socket != before


@pytest.mark.parametrize(
    "line",
    [
        "Include sites/*.conf",
        "Host gpu4\n  include = ~/.ssh/none ~/.ssh/sites/a.conf # mine",
        'INCLUDE "{home}/.ssh/my site.conf"',
        "Include via",
    ],
)
def test_an_included_file_that_changes_is_another_connection(
    line: str, login: Login, another_process: Callable[[], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its HostName or ProxyJump may lead elsewhere now."""
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / ".ssh"
    (folder / "sites").mkdir(parents=True)
    (folder / "config").write_text(f"{line.format(home=tmp_path)}\n")
    (folder / "via").write_text("Include via sites/*\n")
    files = (folder / "sites" / "a.conf", folder / "my site.conf")
    for file in files:
        file.write_text("Host gpu4\n  HostName 10.0.0.4\n")
    before = kept(login, Path("/r")).socket
    another_process()
    assert kept(login, Path("/r")).socket == before
    another_process()
    for file in files:
        file.write_text("Host gpu4\n  HostName 10.0.0.5\n")
    assert kept(login, Path("/r")).socket != before


def test_nothing_is_kept_without_a_folder(login: Login) -> None:
    assert kept(login, None).socket is None


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a short path: pytest's own are longer than a socket's may be."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield Path(folder)


def test_the_folder_is_private(runtime: Path) -> None:
    folder = socket_folder()
    assert folder == runtime / "kit"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert socket_folder() == folder


def test_a_folder_that_others_may_enter_is_not_used(runtime: Path) -> None:
    (runtime / "kit").mkdir()
    (runtime / "kit").chmod(0o755)
    assert socket_folder() != runtime / "kit"


def test_a_link_is_not_used(runtime: Path) -> None:
    (runtime / "other").mkdir(mode=0o700)
    (runtime / "kit").symlink_to(runtime / "other")
    assert socket_folder() != runtime / "kit"


def test_a_path_that_is_too_long_for_a_socket_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("x" * 80)
    long.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))
    folder = socket_folder()
    assert folder is None or len(str(folder)) + 1 + 20 + 17 < 104
