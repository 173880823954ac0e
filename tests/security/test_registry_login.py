"""Attacks on a login to a registry: a kit.yaml of a stranger names the server that each VM sends it to."""

from __future__ import annotations

import base64
import io
import json
import sys
from pathlib import Path

import pytest

from kit.cli.main import main
from kit.errors import HostsFailed, InputError, RegistryLoginError
from kit.events import Note, Warned
from kit.flows.cluster.deploy import deploy
from kit.flows.image.content import content
from kit.model.plan import Pull
from kit.model.registry import RegistryLogin, is_same
from kit.model.secret import Secret
from kit.model.spec import ClusterSpec
from kit.remote.engine.client import Engine
from kit.remote.machine.credentials import find_login, withheld
from tests.fakes.fleet import Fleet
from tests.fakes.reporter import Remembering

OURS, THEIRS = "r.example.com:5000/team", "evil.example.com/team"
TAG = content(ClusterSpec()).tag
PASSWORD = "s3cret-pass"
LOGIN = {"KIT_REGISTRY_USER": "ann", "KIT_REGISTRY_PASSWORD": PASSWORD}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The login of the variables, and no other login and no engine on this machine."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    for name, value in {"KIT_REGISTRY": OURS, **LOGIN}.items():
        monkeypatch.setenv(name, value)

    def connect() -> None:
        raise AssertionError("this machine's engine was asked")

    monkeypatch.setattr(Engine, "connect", connect)


@pytest.fixture
def fleet() -> Fleet:
    return Fleet(2)


@pytest.mark.parametrize("named", ["", OURS, "r.example.com", "r.example.com:5001", "evil.example.com.r.example.com"])
def test_the_variables_are_a_login_to_one_registry(named: str) -> None:
    environ = {"KIT_REGISTRY": named, **LOGIN}
    assert find_login(THEIRS, environ) is None
    text, hint = withheld(THEIRS, environ) or ("", "")
    assert "does not send it to evil.example.com" in text
    assert hint.endswith(f"export KIT_REGISTRY={THEIRS}")
    assert PASSWORD not in text + hint


@pytest.mark.parametrize(
    ("named", "asked"),
    [(OURS, OURS), ("R.example.com:5000", OURS), ("docker.io/ann", "index.docker.io"), (OURS, "r.example.com:5000")],
)
def test_folders_and_case_make_no_difference(named: str, asked: str) -> None:
    environ = {"KIT_REGISTRY": named, **LOGIN}
    assert find_login(asked, environ) == RegistryLogin(user="ann", secret=Secret(PASSWORD.encode()))
    assert withheld(asked, environ) is None
    assert not is_same(named, "docker.io.example.com")


@pytest.mark.parametrize("asked", ["r.example.com", "r.example.com:5001/team", "r.example.com.evil.example.com:5000"])
def test_another_port_or_a_longer_name_is_another_registry(asked: str) -> None:
    environ = {"KIT_REGISTRY": OURS, **LOGIN}
    assert find_login(asked, environ) is None
    assert withheld(asked, environ)


def test_without_a_login_there_is_nothing_to_warn_of() -> None:
    assert withheld(THEIRS, {}) is None
    assert withheld(THEIRS, {"KIT_REGISTRY": OURS}) is None


@pytest.mark.parametrize("named", ["", OURS])
def test_no_host_gets_the_login_of_another_registry(named: str, fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KIT_REGISTRY", named)
    fleet.registry.images[f"{THEIRS}/{TAG}"] = "sha256:" + "d" * 64
    reporter = Remembering()
    with pytest.raises(HostsFailed) as caught:
        deploy(fleet.context(reporter, registry=THEIRS))
    assert fleet.registry.logins == [{}, {}]
    assert all(isinstance(failure, RegistryLoginError) for failure in caught.value.failures)
    assert {failure.message for failure in caught.value.failures} == {
        "evil.example.com requires a login, and you gave none"
    }
    # Who knows this registry learns what to write.
    assert f"set KIT_REGISTRY={THEIRS}" in str(caught.value.failures[0].hint)
    (warned,) = reporter.of(Warned)
    assert f"export KIT_REGISTRY={THEIRS}" in str(warned.hint)
    assert PASSWORD not in repr((caught.value.failures, reporter.events))


def test_docker_s_login_to_this_registry_is_used_instead(fleet: Fleet, tmp_path: Path) -> None:
    auth = base64.b64encode(f"ann:{PASSWORD}".encode()).decode()
    (tmp_path / "config.json").write_text(json.dumps({"auths": {"evil.example.com": {"auth": auth}}}))
    fleet.registry.images[f"{THEIRS}/{TAG}"] = "sha256:" + "d" * 64
    reporter = Remembering()
    deploy(fleet.context(reporter, registry=THEIRS))
    assert {"username": "ann", "password": PASSWORD} in fleet.registry.logins
    # kit plans twice, and warns once.
    assert len(reporter.of(Warned)) == 1


def test_a_dry_run_sends_no_login(fleet: Fleet) -> None:
    fleet.registry.images[f"{OURS}/{TAG}"] = "sha256:" + "d" * 64
    reporter = Remembering()
    plan = deploy(fleet.context(reporter, registry=OURS), dry_run=True).plan
    assert fleet.registry.logins == [{}, {}]
    pulls = [step for _, step in plan.steps() if isinstance(step, Pull)]
    assert [(pull.source, pull.digest) for pull in pulls] == [(f"{OURS}/{TAG}", "")] * 2
    assert pulls[0].full_line() == ("pull", f"{OURS}/{TAG}")
    assert any("a dry run does not send" in note.text for note in reporter.of(Note))
    assert fleet.changes == {}


def test_a_dry_run_still_names_what_is_wrong(fleet: Fleet) -> None:
    fleet["gpu2"].faults.add("no CA")
    fleet["gpu1"].faults.add("no CA")
    with pytest.raises(HostsFailed, match="cannot pull the image"):
        deploy(fleet.context(Remembering(), registry=OURS), dry_run=True)


@pytest.mark.parametrize("named", ["", OURS])
def test_a_name_on_the_command_line_takes_no_password_of_another_registry(
    named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`kit image push` with a kit.yaml that names the server."""
    (tmp_path / "kit.yaml").write_text(f"registry: {THEIRS}\n")
    sent: list[object] = []

    def push(_spec: object, _name: str, *, reporter: object, login: object) -> None:
        sent.append(login)
        raise InputError("the push has begun")

    monkeypatch.setattr("kit.flows.image.push.push_image", push)
    words = ["-C", str(tmp_path), "image", "push", "--username", "ann"]
    environ = {"KIT_REGISTRY": named, "KIT_REGISTRY_PASSWORD": PASSWORD}
    # KIT_REGISTRY wins over kit.yaml, but not over the command line.
    assert main([*words, THEIRS], environ=environ) == 2
    assert sent == []
    shown = capsys.readouterr().err
    assert f"export KIT_REGISTRY={THEIRS}" in shown
    assert PASSWORD not in shown
    monkeypatch.setattr(sys, "stdin", io.StringIO("typed\n"))
    assert main([*words, THEIRS, "--password-stdin"], environ=environ) == 2
    assert sent == [RegistryLogin(user="ann", secret=Secret(b"typed"))]
