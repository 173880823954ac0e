"""Your list of bases without a digest: yours alone, in your configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.errors import ImageError
from kit.remote.machine.bases import agree, agreed, path

NAME = "debian:bookworm-slim"


def test_the_list_is_in_your_configuration() -> None:
    assert path({"HOME": "/home/me"}) == Path("/home/me/.config/kit/bases")
    assert path({"HOME": "/home/me", "XDG_CONFIG_HOME": "/etc/mine"}) == Path("/etc/mine/kit/bases")
    assert path({}) is None
    assert agreed({}) == frozenset()


def test_what_you_agreed_to_is_remembered_once(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    assert agreed(environ) == frozenset()
    file = agree(NAME, environ)
    agree("ubuntu:24.04", environ)
    agree(NAME, environ)
    assert agreed(environ) == {NAME, "ubuntu:24.04"}
    lines = file.read_text().splitlines()
    assert lines[0].startswith("# ")
    assert lines[1:] == [NAME, "ubuntu:24.04"]
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_list_that_others_can_write_counts_for_nothing(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    file = agree(NAME, environ)
    file.chmod(0o666)
    assert agreed(environ) == frozenset()


def test_without_a_place_for_it_nothing_is_agreed(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="no HOME"):
        agree(NAME, {})
    (tmp_path / ".config").write_text("a file")
    with pytest.raises(ImageError, match="cannot be written"):
        agree(NAME, {"HOME": str(tmp_path)})
