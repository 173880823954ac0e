"""A pack has what the base lacks, in the bytes that the snapshot names, or it is not written."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from kit.errors import InputError, KitError
from kit.model.code import Pack
from kit.remote.code import hashes
from kit.remote.code.pack import Changed, write_pack
from kit.remote.code.snapshot import take
from kit.remote.ship.porter import delta, manifest
from tests.fakes.repository import write


@pytest.fixture
def out(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def unpacked(pack: Pack, base: bytes) -> tuple[bytes, dict[str, bytes]]:
    """Return the manifest and the objects that a host gets from a pack."""
    with pack.path.open("rb") as file:
        first = json.loads(file.readline())
        assert first["kit-pack"] == 1
        removed, added, objects = (
            [file.readline().removesuffix(b"\n") for _ in range(first[word])] for word in ("remove", "add", "objects")
        )
        contents = {}
        for line in objects:
            name, size = line.split()
            contents[name.decode()] = file.read(int(size))
        assert file.read() == b""
    assert first["digest"] == pack.digest
    assert first["base"] == pack.base
    return delta.merge(base, removed, added), contents


def test_the_first_pack_has_each_content_once(top: Path, out: Path) -> None:
    write(top, {"a.py": "same", "b.py": "same", "sub/c\n.py": "other", "empty": ""})
    (top / "link").symlink_to("a.py")
    (top / "folder").mkdir()
    snapshot = take(top)
    pack = write_pack(snapshot, None, out)
    text, contents = unpacked(pack, manifest.EMPTY)
    assert text == snapshot.manifest
    assert contents == {sha("same"): b"same", sha("other"): b"other", sha(""): b""}
    assert (pack.digest, pack.base) == (snapshot.digest, None)


def test_a_pack_for_a_base_has_what_changed(top: Path, out: Path) -> None:
    write(top, {"a.py": "1", "b.py": "2", "c.py": "3", "d.py": "4"})
    base = take(top)
    write(top, {"a.py": "new"})
    (top / "b.py").unlink()
    (top / "c.py").rename(top / "moved.py")
    (top / "d.py").chmod(0o755)
    snapshot = take(top)
    pack = write_pack(snapshot, base.manifest, out)
    text, contents = unpacked(pack, base.manifest)
    assert text == snapshot.manifest
    assert contents == {sha("new"): b"new"}
    assert (pack.digest, pack.base) == (snapshot.digest, base.digest)


def test_the_file_is_private_named_by_its_hash_and_always_the_same(top: Path, out: Path) -> None:
    write(top, {f"{number}.py": str(number) for number in range(20)})
    snapshot = take(top)
    pack = write_pack(snapshot, None, out)
    content = pack.path.read_bytes()
    assert pack.path == out / hashlib.sha256(content).hexdigest()
    assert (pack.sha256, pack.size) == (pack.path.name, len(content))
    assert pack.path.stat().st_mode & 0o777 == 0o600
    assert write_pack(snapshot, None, out) == pack
    assert list(out.iterdir()) == [pack.path]


def test_the_format(top: Path, out: Path) -> None:
    write(top, {"a.py": "one"})
    base = take(top)
    write(top, {"a.py": "two"})
    snapshot = take(top)
    line = json.dumps({
        "kit-pack": 1, "digest": snapshot.digest, "base": base.digest, "remove": 1, "add": 1, "objects": 1,
    })  # fmt: skip
    text = f"{line}\na.py\nf\t644\t{sha('two')}\t3\ta.py\n{sha('two')} 3\ntwo"
    assert write_pack(snapshot, base.manifest, out).path.read_text() == text


def test_large_files_come_whole(top: Path, out: Path) -> None:
    data = os.urandom(3_000_000)
    (top / "weights.bin").write_bytes(data)
    _, contents = unpacked(write_pack(take(top), None, out), manifest.EMPTY)
    assert list(contents.values()) == [data]


def edit(path: Path) -> None:
    path.write_text("new")


def grow(path: Path) -> None:
    with path.open("a") as file:
        file.write("more")


def shrink(path: Path) -> None:
    path.write_text("o")


def link(path: Path) -> None:
    path.rename(path.with_name("real"))
    path.symlink_to("real")


def replace_folder(path: Path) -> None:
    path.unlink()
    path.parent.rmdir()
    path.parent.write_text("")


@pytest.mark.parametrize("change", [edit, grow, shrink, link, replace_folder, Path.unlink])
def test_a_file_that_changed_since_the_snapshot_has_its_own_error(top: Path, out: Path, change: object) -> None:
    write(top, {"sub/a.py": "old"})
    snapshot = take(top)
    change(top / "sub" / "a.py")  # type: ignore[operator]
    with pytest.raises(Changed, match=r"sub/a\.py changed after kit took the snapshot"):
        write_pack(snapshot, None, out)
    assert list(out.iterdir()) == []


def test_a_folder_that_is_gone_has_changed(top: Path, out: Path) -> None:
    write(top, {"a.py": "old"})
    snapshot = take(top)
    top.rename(top.with_name("renamed"))
    with pytest.raises(Changed, match="project changed"):
        write_pack(snapshot, None, out)


def test_a_wrong_hash_in_the_cache_fails_once(top: Path, out: Path) -> None:
    write(top, {"a.py": "right"})
    line = manifest.file_line(0o644, sha("wrong"), 5, b"a.py")
    hashes.save(top, hashes.Kept.of({b"a.py": (hashes.row((top / "a.py").stat()), line)}))
    snapshot = take(top)
    assert sha("wrong").encode() in snapshot.manifest
    with pytest.raises(Changed):
        write_pack(snapshot, None, out)
    pack = write_pack(take(top), None, out)
    assert list(unpacked(pack, manifest.EMPTY)[1].values()) == [b"right"]


def test_a_file_that_cannot_be_read_any_more(top: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(top, {"a.py": "old"})
    snapshot = take(top)
    real = os.open

    def opened(path: str | bytes, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if path == b"a.py":
            raise PermissionError(13, "Permission denied")
        return real(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", opened)
    with pytest.raises(InputError, match=r"project/a.py cannot be read: Permission denied"):
        write_pack(snapshot, None, out)
    assert list(out.iterdir()) == []


def test_a_full_disk_is_reported_and_leaves_nothing(top: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(top, {"a.py": "old" * 100_000})
    snapshot = take(top)

    def full(descriptor: int, mode: str) -> object:
        os.close(descriptor)
        return open("/dev/full", mode)  # noqa: PTH123

    monkeypatch.setattr(os, "fdopen", full)
    with pytest.raises(KitError, match=r"cannot be written to .*/out: No space left on device"):
        write_pack(snapshot, None, out)
    assert list(out.iterdir()) == []


def test_a_folder_for_packs_that_is_missing_is_reported(top: Path, out: Path) -> None:
    write(top, {"a.py": "old"})
    snapshot = take(top)
    with pytest.raises(KitError, match=r"cannot be written to .*missing: No such file") as error:
        write_pack(snapshot, None, out / "missing")
    assert error.value.hint
