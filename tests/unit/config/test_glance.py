"""A glance says what the full reading says, or nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.config.glance import glance
from kit.config.settings import load
from kit.plan.cluster.ssh import login

HOSTS = "10.0.0.1 name=gpu1\n10.0.0.2 name=gpu2\n"


def files(folder: Path, hosts: str | None, config: str | None) -> Path:
    for name, text in (("hosts", hosts), ("kit.yaml", config)):
        if text is not None:
            (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize(
    ("hosts", "config"),
    [
        (HOSTS, None),
        (HOSTS, "name: demo\n"),
        (HOSTS, "ssh: {user: ubuntu, port: 2222, key: keys/id, known_hosts: ~/kh}\n"),
        (HOSTS, "name: demo\nssh:\nnetwork: 10.0.0.0/24\n"),
        ("me@10.0.0.1 port=99 key=k1\n10.0.0.2\n", "ssh: {user: ubuntu, port: 2222, key: k2}\n"),
    ],
)
def test_it_is_what_the_full_reading_says(tmp_path: Path, hosts: str, config: str | None) -> None:
    folder = files(tmp_path, hosts, config)
    found = glance(folder, flags={}, environ={"HOME": "/home/me"})
    full = load(folder, flags={}, environ={})
    assert found is not None
    assert found.head == login(full.inventory.head, full.spec.ssh)
    assert found.cluster == full.spec.name


@pytest.mark.parametrize(
    ("hosts", "config", "flags", "environ"),
    [
        (None, None, {}, {}),
        ("", None, {}, {}),
        ("10.0.0.1 slot=2\n", None, {}, {}),
        (HOSTS, "name: [a\n", {}, {}),
        (HOSTS, "- a\n", {}, {}),
        (HOSTS, "name: 3\n", {}, {}),
        (HOSTS, "ssh: root\n", {}, {}),
        (HOSTS, "ssh: {user: 3}\n", {}, {}),
        (HOSTS, "ssh: {login: root}\n", {}, {}),
        (HOSTS, None, {"ssh.user": "me"}, {}),
        (HOSTS, None, {}, {"KIT_NAME": "other"}),
    ],
)
def test_anything_out_of_the_ordinary_is_no_glance(
    tmp_path: Path, hosts: str | None, config: str | None, flags: dict[str, object], environ: dict[str, str]
) -> None:
    assert glance(files(tmp_path, hosts, config), flags=flags, environ=environ) is None
