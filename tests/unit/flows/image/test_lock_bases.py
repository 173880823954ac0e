"""Which login a registry gets that kit asks for the digest of a base."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kit.flows.image.lock_bases import ask_registries
from kit.model.registry import Published, RegistryLogin
from kit.model.secret import Secret


def test_each_registry_gets_docker_s_login_to_it_and_no_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    auths = {
        server: {"auth": base64.b64encode(f"{user}:pw".encode()).decode()}
        for server, user in {"https://index.docker.io/v1/": "hub", "r.example.com:5000": "ann"}.items()
    }
    (tmp_path / "config.json").write_text(json.dumps({"auths": auths}))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("KIT_REGISTRY", "other.example.com")
    monkeypatch.setenv("KIT_REGISTRY_USER", "mine")
    monkeypatch.setenv("KIT_REGISTRY_PASSWORD", "secret")
    asked: dict[str, RegistryLogin | None] = {}

    def look_up(engine: object, name: str, login: RegistryLogin | None) -> Published:
        asked[name] = login
        return Published(digest=f"digest of {name}")

    monkeypatch.setattr("kit.remote.engine.registry.look_up", look_up)
    engine: Any = SimpleNamespace(close=lambda: None)
    monkeypatch.setattr("kit.remote.engine.client.Engine.connect", lambda: engine)
    names = ("debian:12", "r.example.com:5000/a/b:1", "other.example.com/c:1")
    assert ask_registries(names)["debian:12"] == "digest of docker.io/library/debian:12"
    assert asked == {
        "docker.io/library/debian:12": RegistryLogin(user="hub", secret=Secret(b"pw")),
        "r.example.com:5000/a/b:1": RegistryLogin(user="ann", secret=Secret(b"pw")),
        "other.example.com/c:1": None,
    }
