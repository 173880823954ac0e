"""The lock of base images, and what it changes in a Dockerfile."""

from __future__ import annotations

import pytest

from kit.errors import InputError
from kit.model.image import ImageContent
from kit.model.registry import full_name
from kit.model.spec import ImageSpec
from kit.model.values import replace
from kit.plan.bases import LOCK, lab_bases, lock_text, pin_bases, pinned, read_lock, without_digest
from kit.plan.image import image_content, needed_bases, recipe_bases
from kit.plan.lab import SYSTEMS
from kit.remote.machine.assets import images_dir, read_images

DEBIAN = "debian:bookworm-slim"
DIGEST = "sha256:" + "ab" * 32


def content(base: str | None = None, **locked: str) -> ImageContent:
    templates = {**read_images(), LOCK: lock_text({DEBIAN: DIGEST, **locked}).encode()}
    return image_content(ImageSpec(flavour="ssh-layer" if base else "cpu", base=base), templates)


def test_every_stage_of_an_image_starts_from_the_locked_digest() -> None:
    assert needed_bases(content()) == (f"{DEBIAN}@{DIGEST}",)
    dockerfile = content().files["Dockerfile"].decode()
    assert f"FROM {DEBIAN}\n" not in dockerfile
    assert dockerfile.count(f"FROM {DEBIAN}@{DIGEST}") == 2


def test_your_own_base_too_but_never_over_a_digest_of_yours() -> None:
    assert needed_bases(content(DEBIAN)) == (f"{DEBIAN}@{DIGEST}",)
    own = f"{DEBIAN}@sha256:{'cd' * 32}"
    assert needed_bases(content(own)) == (own,)
    assert needed_bases(content("r.example.com/mine:1")) == ("r.example.com/mine:1",)


def test_another_digest_is_another_tag_and_an_empty_lock_changes_nothing() -> None:
    files = read_images()
    spec = ImageSpec()
    without = image_content(spec, {path: data for path, data in files.items() if path != LOCK})
    assert image_content(spec, {**files, LOCK: lock_text({}).encode()}).tag == without.tag
    assert len({without.tag, content().tag}) == 2


def test_the_lab_starts_from_the_locked_digest() -> None:
    dockerfile = (images_dir() / "lab" / "Dockerfile").read_bytes()
    assert lab_bases(dockerfile.decode()) == ("debian:trixie-slim",)
    lab = ImageContent(repository="kit-lab", flavour="trixie", files={"Dockerfile": dockerfile})
    locked = pin_bases(lab, {"debian:trixie-slim": DIGEST})
    assert needed_bases(locked) == (f"debian:trixie-slim@{DIGEST}",)
    assert locked.tag != lab.tag
    assert pin_bases(lab, {}) == replace(lab)


def test_the_lock_of_the_repository_has_every_base_of_kit() -> None:
    bases = {*recipe_bases(), *SYSTEMS.values()}
    assert DEBIAN in bases
    assert read_lock((images_dir() / LOCK).read_text()).keys() == bases


def test_what_is_written_is_read() -> None:
    locked = {DEBIAN: DIGEST, "127.0.0.1:5000/team/debian:12": DIGEST}
    assert read_lock(lock_text(locked)) == locked
    assert lock_text(dict(reversed(locked.items()))) == lock_text(locked)


@pytest.mark.parametrize(
    "line",
    [
        DEBIAN,
        f"{DEBIAN} {DIGEST[:-1]}",
        f"{DEBIAN} sha256:{'AB' * 32}",
        f"debian {DIGEST}",
        f"{DEBIAN} {DIGEST} more",
        f"--flag:x {DIGEST}",
        f"{DEBIAN} {DIGEST}\n{DEBIAN} {DIGEST}",
    ],
)
def test_a_line_that_does_not_belong_is_named(line: str) -> None:
    with pytest.raises(InputError, match=r"bases.lock:\d"):
        read_lock(f"# a comment\n\n{line}\n")


def test_an_answer_that_is_no_digest_is_not_written() -> None:
    with pytest.raises(InputError):
        lock_text({DEBIAN: "sha256:\x1b[2J"})
    with pytest.raises(InputError):
        lock_text({DEBIAN: f"{DIGEST}\nother:1 {DIGEST}"})


def test_names() -> None:
    assert without_digest(pinned(DEBIAN, {DEBIAN: DIGEST})) == DEBIAN
    assert full_name(DEBIAN) == f"docker.io/library/{DEBIAN}"
    assert full_name("nvidia/cuda:12") == "docker.io/nvidia/cuda:12"
    assert full_name("localhost/a:1") == "localhost/a:1"
    assert full_name("r.example.com:5000/team/a:1") == "r.example.com:5000/team/a:1"
