"""The tag of an image, which your cache may have."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit.errors import InputError
from kit.flows.image import content as flow
from kit.flows.image.content import content, tag_of
from kit.model.image import HashedFile
from kit.model.spec import ClusterSpec, ImageSpec
from kit.plan import image
from kit.remote.machine import bases
from kit.remote.machine.assets import read_images


@pytest.fixture
def tags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "kit" / "tags"


@pytest.fixture
def renders(monkeypatch: pytest.MonkeyPatch) -> list[ImageSpec]:
    """What was rendered."""
    specs = []
    real: Callable[..., Any] = image.image_content

    def render(spec: ImageSpec, *args: Any, **kwargs: Any) -> Any:
        specs.append(spec)
        return real(spec, *args, **kwargs)

    monkeypatch.setattr(image, "image_content", render)
    return specs


def test_the_second_time_nothing_is_rendered(tags: Path, renders: list[ImageSpec]) -> None:
    spec = ClusterSpec(image=ImageSpec(packages=("git",)))
    expected = content(spec).tag
    assert [tag_of(spec), tag_of(spec)] == [expected, expected]
    assert len(renders) == 2
    assert [file.read_text() for file in tags.iterdir()] == [expected]


def test_another_spec_or_another_file_is_another_tag(
    tags: Path, renders: list[ImageSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tag_of(ClusterSpec())
    assert tag_of(ClusterSpec(image=ImageSpec(pip=("horovod",)))) != first
    files = {**read_images(), "bin/start.sh": b"#!/bin/sh\n"}
    monkeypatch.setattr(flow, "read_images", lambda: files)
    assert tag_of(ClusterSpec()) != first
    assert len(renders) == 3


@pytest.mark.parametrize("text", ["", "kit:cpu-05ca23275", "other\n", "kit:cpu-05ca232754c9 --privileged"])
def test_a_broken_cache_is_written_again(tags: Path, text: str) -> None:
    tag = tag_of(ClusterSpec())
    (file,) = tags.iterdir()
    file.write_text(text)
    assert tag_of(ClusterSpec()) == tag
    assert file.read_text() == tag


def test_the_cache_does_not_grow(tags: Path) -> None:
    for number in range(flow._KEPT + 3):
        tag_of(ClusterSpec(image=ImageSpec(packages=(f"p{number}",))))
    assert len(list(tags.iterdir())) == flow._KEPT


def test_without_a_home_there_is_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("HOME", raising=False)
    assert tag_of(ClusterSpec()) == content(ClusterSpec()).tag


def test_the_content_of_the_requirements_is_part_of_the_cached_tag(tags: Path, tmp_path: Path) -> None:
    file = tmp_path / "requirements.txt"
    spec = ClusterSpec(requirements=str(file))
    found = {tag_of(ClusterSpec())}
    for text in ("", "tqdm\n", "tabulate\n"):
        file.write_text(text)
        assert tag_of(spec) == content(spec).tag
        found.add(tag_of(spec))
    assert len(found) == 4
    file.unlink()
    with pytest.raises(InputError, match="there is no file"):
        tag_of(spec)


def test_the_content_of_the_wheels_is_part_of_the_cached_tag(tags: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "mine-1.0-py3-none-any.whl"
    spec = ClusterSpec(image=ImageSpec(wheels=str(tmp_path)))
    found = {tag_of(ClusterSpec())}
    for text in ("one", "other"):
        wheel.write_text(text)
        assert tag_of(spec) == content(spec).tag
        found.add(tag_of(spec))
    assert len(found) == 3
    made = content(spec)
    digest = hashlib.sha256(b"other").hexdigest()
    # Those of the tag, whatever the folder has by now.
    wheel.write_text("changed")
    assert flow.wheel_files(spec, made) == {f"wheels/extra/{wheel.name}": HashedFile(path=wheel, digest=digest)}
    assert flow.wheel_files(ClusterSpec(), content(ClusterSpec())) == {}


def test_the_lock_of_the_bases_is_part_of_the_tag(tags: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow, "read_images", lambda: {**read_images(), "bases.lock": b""})
    plain = tag_of(ClusterSpec())
    lock = b"debian:bookworm-slim sha256:" + b"ab" * 32 + b"\n"
    monkeypatch.setattr(flow, "read_images", lambda: {**read_images(), "bases.lock": lock})
    assert flow.locked_bases() == {"debian:bookworm-slim": "sha256:" + "ab" * 32}
    assert tag_of(ClusterSpec()) == content(ClusterSpec()).tag != plain
    monkeypatch.setenv("KIT_UNLOCKED_BASES", "1")
    assert flow.locked_bases() == {}
    assert tag_of(ClusterSpec()) == content(ClusterSpec()).tag == plain


def test_the_lock_does_not_hold_for_a_base_that_you_agreed_to(
    tags: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    digest = "sha256:" + "ab" * 32
    lock = f"debian:bookworm-slim {digest}\ndebian:trixie-slim {digest}\n".encode()
    monkeypatch.setattr(flow, "read_images", lambda: {**read_images(), "bases.lock": lock})
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    locked = tag_of(ClusterSpec())
    file = bases.agree("debian:bookworm-slim", os.environ)
    assert flow.locked_bases() == {"debian:trixie-slim": digest}
    unlocked = tag_of(ClusterSpec())
    assert unlocked == content(ClusterSpec()).tag != locked
    # It is the tag that an image without the lock has.
    monkeypatch.setenv("KIT_UNLOCKED_BASES", "1")
    assert tag_of(ClusterSpec()) == unlocked
    monkeypatch.delenv("KIT_UNLOCKED_BASES")
    file.unlink()
    assert tag_of(ClusterSpec()) == locked
