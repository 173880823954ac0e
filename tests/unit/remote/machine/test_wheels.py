"""The wheels of a folder, and the digests that your cache has."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from kit.errors import InputError
from kit.remote.machine import wheels


def test_wheels_are_known_by_content(tmp_path: Path) -> None:
    folder = tmp_path / "wheels"
    folder.mkdir()
    (folder / "b-1-py3-none-any.whl").write_bytes(b"b")
    (folder / "a-1-py3-none-any.whl").write_bytes(b"a")
    (folder / "README").write_bytes(b"no wheel")
    environ = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    found = wheels.wheels_of(folder, environ)
    assert [(wheel.name[0], wheel.digest) for wheel in found] == [
        ("a", hashlib.sha256(b"a").hexdigest()),
        ("b", hashlib.sha256(b"b").hexdigest()),
    ]
    assert wheels.wheels_of(folder, environ) == found
    # Another content of the same size has another time.
    (folder / "a-1-py3-none-any.whl").write_bytes(b"c")
    os.utime(folder / "a-1-py3-none-any.whl", ns=(0, 1))
    assert wheels.wheels_of(folder, environ)[0].digest == hashlib.sha256(b"c").hexdigest()
    assert wheels.wheels_of(folder, {})[1:] == found[1:]


def test_a_broken_cache_is_written_again(tmp_path: Path) -> None:
    (tmp_path / "a-1-py3-none-any.whl").write_bytes(b"a")
    environ = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    (first,) = wheels.wheels_of(tmp_path, environ)
    (known,) = (tmp_path / "cache" / "kit" / "wheels").iterdir()
    known.write_text("half")
    assert wheels.wheels_of(tmp_path, environ) == (first,)
    assert known.read_text() == first.digest


@pytest.mark.parametrize(("make", "says"), [(False, "No such file"), (True, "has no wheel")])
def test_a_folder_without_wheels(tmp_path: Path, make: bool, says: str) -> None:
    folder = tmp_path / "wheels"
    if make:
        folder.mkdir()
    with pytest.raises(InputError, match=says) as caught:
        wheels.wheels_of(folder, {})
    assert "*.whl" in (caught.value.hint or "")
