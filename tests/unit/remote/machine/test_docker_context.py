from __future__ import annotations

import pwd
from pathlib import Path
from typing import NoReturn

import pytest

from kit.errors import UnreachableError
from kit.remote.data.access import read_file
from kit.remote.machine.docker_context import choice, variables
from kit.remote.ssh import known
from tests.fakes.dockers import write_context

SOCKET = "unix:///home/ann/.colima/docker.sock"


def configured(folder: Path, text: str) -> dict[str, str]:
    (folder / "config.json").write_text(text)
    return {"DOCKER_CONFIG": str(folder)}


def test_docker_host_goes_before_a_context_and_a_variable_before_the_file(tmp_path: Path) -> None:
    write_context(tmp_path, "colima", SOCKET)
    write_context(tmp_path, "rootless", "unix:///run/user/1000/docker.sock")
    environ = configured(tmp_path, '{"currentContext": "colima"}')
    assert variables(environ) == {"DOCKER_HOST": SOCKET}
    chosen = {**environ, "DOCKER_CONTEXT": "rootless"}
    assert variables(chosen) == {"DOCKER_HOST": "unix:///run/user/1000/docker.sock"}
    assert choice(chosen).undo == "unset DOCKER_CONTEXT"  # type: ignore[union-attr]
    assert variables({**chosen, "DOCKER_HOST": "tcp://h:1"}) == {"DOCKER_HOST": "tcp://h:1"}
    assert choice({**chosen, "DOCKER_HOST": "tcp://h:1"}).where == "DOCKER_HOST=tcp://h:1"  # type: ignore[union-attr]
    assert variables({**environ, "DOCKER_CONTEXT": "default"}) == {}


@pytest.mark.parametrize(
    "text", ["{}", '{"currentContext": "default"}', '{"currentContext": 7}', "[]", "{", "[" * 9999]
)
def test_a_file_that_names_no_context_means_the_local_socket(tmp_path: Path, text: str) -> None:
    environ = configured(tmp_path, text)
    assert (variables(environ), choice(environ)) == ({}, None)
    assert variables({"DOCKER_CONFIG": str(tmp_path / "missing")}) == {}


def test_without_a_home_folder_the_local_socket_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container of CI may have neither HOME nor a line for its user id in /etc/passwd."""

    def nobody(uid: int) -> NoReturn:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    assert (variables({}), choice({})) == ({}, None)
    assert [str(file) for file in known.files(None)] == ["~/.ssh/known_hosts", "/etc/ssh/ssh_known_hosts"]
    assert read_file("~/.aws/credentials") is None


def test_certificates_of_a_context_are_used_in_its_way(tmp_path: Path) -> None:
    write_context(tmp_path, "far", "tcp://far:2376").mkdir(parents=True)
    folder = write_context(tmp_path, "lax", "tcp://lax:2376", SkipTLSVerify=True)
    folder.mkdir(parents=True)
    # Variables for another engine do not belong to a context.
    environ = {"DOCKER_CONFIG": str(tmp_path), "DOCKER_CERT_PATH": "/elsewhere"}
    assert variables({**environ, "DOCKER_CONTEXT": "lax"}) == {
        "DOCKER_HOST": "tcp://lax:2376",
        "DOCKER_CERT_PATH": str(folder),
    }
    assert variables({**environ, "DOCKER_CONTEXT": "far"})["DOCKER_TLS_VERIFY"] == "1"


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"Endpoints": {"docker": {"Host": ""}}}'])
def test_a_context_that_names_no_engine_is_an_error(tmp_path: Path, text: str) -> None:
    write_context(tmp_path, "colima", SOCKET)
    (meta,) = tmp_path.glob("contexts/meta/*/meta.json")
    meta.write_text(text)
    environ = configured(tmp_path, '{"currentContext": "colima"}')
    with pytest.raises(UnreachableError, match="docker's context colima cannot be read") as caught:
        variables(environ)
    assert "docker context use" in str(caught.value.hint)
    # Its name still explains an engine that does not answer.
    assert choice(environ).where == "docker's context colima"  # type: ignore[union-attr]
