"""Every verb that needs this machine's engine reports a dead one with the same code, message and hint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kit.cli.main import main
from kit.cli.session import Session
from kit.errors import AnswerError, UnreachableError
from kit.remote.engine import sdk
from kit.remote.ship.spool import Spool
from tests.fakes.dockers import write_context
from tests.fakes.fleet import Fleet
from tests.fakes.reporter import Remembering

NOWHERE = "unix:///nonexistent/docker.sock"
VERBS = (
    ("image", "build"),
    ("image", "push", "r.example.com:5000/team"),
    ("lab", "up"),
    # --yes installs no engine where DOCKER_HOST names one.
    ("lab", "up", "--yes"),
    ("lab", "status"),
    ("lab", "down"),
    ("lab", "link-rate", "200mbit"),
    ("local", "--np", "1", "--", "true"),
    ("deploy",),
)


@pytest.fixture(autouse=True)
def dead(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", NOWHERE)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.delenv("DOCKER_CONTEXT", raising=False)
    # The VMs answer, and lack the image: so a deploy needs this machine's engine.
    monkeypatch.setattr(Session, "context", lambda session: Fleet(2).context(session.reporter))


def error_of(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    *_, last = capsys.readouterr().out.splitlines()
    return dict(json.loads(last))


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_a_dead_engine_is_one_error(words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    verb, operands = list(words), []
    if "--" in verb:
        verb, operands = verb[: verb.index("--")], verb[verb.index("--") :]
    code = main(["-C", str(tmp_path), *verb, "--json", *operands], environ={})
    error = error_of(capsys)
    assert (code, error["message"], error["hint"]) == (
        3,
        f"no Docker Engine answers at DOCKER_HOST={NOWHERE}: No such file or directory",
        "start the engine there, or unset DOCKER_HOST",
    )
    assert not list(tmp_path.iterdir())


def test_an_engine_that_died_before_the_ship_is_the_same_error() -> None:
    with pytest.raises(UnreachableError) as caught:
        Spool("kit:cpu-0123", lambda error: None)
    assert caught.value.message == f"no Docker Engine answers at DOCKER_HOST={NOWHERE}: No such file or directory"


def test_without_docker_host_the_hint_names_the_program_that_starts_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOCKER_HOST")
    error = sdk.no_engine(RuntimeError("it broke\n off"))
    assert error.message == "no Docker Engine answers on this machine: it broke off"
    assert "sudo systemctl start docker" in str(error.hint)
    assert str(error.hint).endswith("scripts/engine")


def test_the_engine_of_dockers_context_is_asked_and_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("DOCKER_HOST")
    write_context(tmp_path, "colima", NOWHERE)
    (tmp_path / "config.json").write_text('{"currentContext": "colima"}')
    with pytest.raises(UnreachableError) as caught:
        sdk.connect()
    assert caught.value.message == (
        f"no Docker Engine answers at docker's context colima ({NOWHERE}): No such file or directory"
    )
    assert caught.value.hint == "start the engine there, or use another one: docker context use default"


def test_a_missing_context_does_not_mean_the_local_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOCKER_HOST")
    monkeypatch.setenv("DOCKER_CONTEXT", "gone")
    with pytest.raises(UnreachableError, match="docker's context gone does not exist") as caught:
        sdk.connect()
    assert "docker context ls; correct or unset DOCKER_CONTEXT" in str(caught.value.hint)


def test_a_socket_of_roots_has_another_cause_and_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOCKER_HOST")
    refused = RuntimeError("Error while fetching server API version")
    refused.__cause__ = PermissionError(13, "Permission denied")
    error = sdk.no_engine(refused)
    assert error.message == "no Docker Engine answers on this machine: Permission denied"
    # As root, kit would use root's known_hosts, keys and cache.
    assert error.hint == 'join the group docker: sudo usermod -aG docker "$USER", and log in again'


@pytest.mark.parametrize("address", ["nonsense", "tcp://127.0.0.1:1", "unix:///dev/null", "ssh://127.0.0.1:1"])
def test_any_address_without_an_engine_is_that_error(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", address)
    with pytest.raises(UnreachableError, match=f"no Docker Engine answers at DOCKER_HOST={address}"):
        sdk.connect()


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("foo", "port is required"),
        ("tcp://abc:notaport", "Port could not be cast to integer value"),
        ("tcp://127.0.0.1:99999", "Port out of range"),
        ("tcp://[::1:2375", "Invalid IPv6 URL"),
    ],
)
def test_an_address_that_is_wrong_is_to_be_corrected(
    address: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", address)
    with pytest.raises(UnreachableError) as caught:
        sdk.connect()
    assert caught.value.message.startswith(f"no Docker Engine answers at DOCKER_HOST={address}: ")
    assert reason in caught.value.message
    assert caught.value.hint == "correct it, or unset DOCKER_HOST"


@pytest.mark.parametrize(
    ("variables", "files"),
    [
        ({"DOCKER_TLS_VERIFY": "1"}, "cert.pem, key.pem and ca.pem in ~/.docker"),
        ({"DOCKER_CERT_PATH": "/nonexistent"}, "cert.pem and key.pem in /nonexistent"),
    ],
    ids=["verify", "path"],
)
def test_missing_certificates_are_named(
    variables: dict[str, str], files: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    for name in ("DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UnreachableError) as caught:
        sdk.connect()
    assert caught.value.message == f"no Docker Engine answers at DOCKER_HOST=tcp://127.0.0.1:1: TLS needs {files}"
    assert caught.value.hint == (
        "set DOCKER_CERT_PATH to the folder that has them, or unset DOCKER_TLS_VERIFY and DOCKER_CERT_PATH"
    )


def test_an_answer_that_kit_cannot_read_is_no_wrong_address(monkeypatch: pytest.MonkeyPatch) -> None:
    import docker  # noqa: PLC0415

    def odd(**_: object) -> None:
        raise ValueError("invalid version number")

    monkeypatch.setattr(docker, "from_env", odd)
    with pytest.raises(AnswerError, match="kit cannot read what the Docker Engine on this machine answers"):
        sdk.connect()


def test_a_deploy_that_would_build_stops_there(tmp_path: Path) -> None:
    """Nothing is changed on a host before the image is there."""
    fleet = Fleet(2)
    from kit.flows.cluster.deploy import deploy  # noqa: PLC0415

    with pytest.raises(UnreachableError):
        deploy(fleet.context(Remembering()))
    assert fleet.changes == {}
