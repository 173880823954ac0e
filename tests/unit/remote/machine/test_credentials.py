from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from kit.cli.verbs.registry_login import registry_login
from kit.errors import ImageError, InputError
from kit.model.registry import RegistryLogin
from kit.model.secret import Secret
from kit.remote.machine.credentials import find_login

if TYPE_CHECKING:
    from kit.cli.screen.terminal import Terminal

ADDRESS = "r.example.com:5000"
ANN = RegistryLogin(user="ann", secret=Secret(b"s3cret"))


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """docker's configuration, of this test alone."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path / "config.json"


def helper(folder: Path, monkeypatch: pytest.MonkeyPatch, answer: object) -> None:
    """A credential helper as docker has them: it reads the server's name, and answers in JSON."""
    program = folder / "docker-credential-safe"
    program.write_text(
        f"#!/bin/sh\nread -r server; [ \"$server\" = {ADDRESS} ] || exit 1\ncat <<'E'\n{json.dumps(answer)}\nE\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_what_docker_login_left(config: Path) -> None:
    auth = base64.b64encode(b"ann:s3cret").decode()
    config.write_text(json.dumps({"auths": {ADDRESS: {"auth": auth}}}))
    assert find_login(ADDRESS, {}) == ANN
    assert find_login("other.example.com", {}) is None


def test_a_credential_helper(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.write_text(json.dumps({"credHelpers": {ADDRESS: "safe"}}))
    helper(config.parent, monkeypatch, {"Username": "ann", "Secret": "s3cret"})
    assert find_login(ADDRESS, {}) == ANN
    helper(config.parent, monkeypatch, {"Username": "<token>", "Secret": "t0ken"})
    assert find_login(ADDRESS, {}) == RegistryLogin(user="", secret=Secret(b"t0ken"), is_token=True)


def test_a_helper_that_is_not_there(config: Path) -> None:
    config.write_text(json.dumps({"credsStore": "nowhere"}))
    with pytest.raises(ImageError, match=f"login to {ADDRESS} cannot be read") as caught:
        find_login(ADDRESS, {})
    assert "docker login" in str(caught.value.hint)


def test_a_password_that_is_not_utf_8_is_not_shown() -> None:
    """As of a file that Windows wrote. Python writes \\udcff for its first byte."""
    password = os.fsdecode(b"\xffs3cret")
    environ = {"KIT_REGISTRY": ADDRESS, "KIT_REGISTRY_USER": "ann", "KIT_REGISTRY_PASSWORD": password}
    with pytest.raises(InputError, match="the password in KIT_REGISTRY_PASSWORD is not UTF-8") as by_variable:
        find_login(ADDRESS, environ)
    terminal = cast("Terminal", SimpleNamespace(read=lambda: password))
    args = SimpleNamespace(username="ann", password_stdin=True)
    with pytest.raises(InputError, match="the password in standard input is not UTF-8") as by_file:
        registry_login(args, terminal, {}, ADDRESS)
    for caught in (by_variable.value, by_file.value):
        assert "s3cret" not in f"{caught}{caught.hint}"


def test_the_variables_go_first(config: Path) -> None:
    config.write_text(json.dumps({"auths": {ADDRESS: {"auth": base64.b64encode(b"bob:other").decode()}}}))
    environ = {"KIT_REGISTRY": ADDRESS, "KIT_REGISTRY_USER": "ann", "KIT_REGISTRY_PASSWORD": "s3cret"}
    assert find_login(ADDRESS, environ) == ANN


@pytest.mark.parametrize("name", ["KIT_REGISTRY_USER", "KIT_REGISTRY_PASSWORD"])
def test_one_variable_alone_is_a_mistake(name: str) -> None:
    with pytest.raises(InputError, match=f"{name} is set"):
        find_login(ADDRESS, {name: "x"})


def test_no_login_at_all() -> None:
    assert find_login(ADDRESS, {}) is None


def test_it_never_prints() -> None:
    assert "s3cret" not in f"{ANN} {ANN!r}"
