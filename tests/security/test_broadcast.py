"""Attacks a whole broadcast on this machine: the head runs another program in place of the porter."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from kit.errors import ImageError
from kit.model.host import Login
from kit.remote.ship import porters
from tests.integration.test_ship import EVIL
from tests.unit.remote.ship.test_together import CONTENTS, HOSTS, IMAGE, Cluster, cluster  # noqa: F401  (a fixture)


def test_a_head_that_somebody_broke_into_removes_no_file_of_another_host(
    cluster: Cluster,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """With `builder: head`, root of other VMs wrote to that place, and removed what was there."""
    program = tmp_path / "evil.py"
    program.write_text(EVIL.replace("../../../../../etc/cron.d/kit-attack", "../../../victim"))
    cluster.engines["head"].add(CONTENTS, IMAGE)
    victims = [cluster.engines[name].root.parent / "victim" for name in HOSTS]
    for victim in victims:
        victim.write_text("mine")
    start = getattr(porters, "openssh_argv")  # noqa: B009  (the fixture's, not ssh's)

    def argv(login: Login, **_: Any) -> tuple[str, ...]:
        env, *words = start(login)
        return (env, f"EVIL={'yes' if login.host == 'head' else ''}", *words)

    def command(words: Any) -> str:
        evil = shlex.join([sys.executable, str(program)])
        return f'if [ "$EVIL" ]; then exec {evil}; fi; exec ' + shlex.join([sys.executable, *words[1:]])

    monkeypatch.setattr(porters, "openssh_argv", argv)
    monkeypatch.setattr(porters, "marked", command)
    with pytest.raises(ImageError, match="kit cannot read") as caught:
        cluster.ship(source="head")
    assert caught.value.host == "head"
    assert [victim.read_text() for victim in victims] == ["mine"] * len(victims)
