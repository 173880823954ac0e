"""What is loaded into an engine, and what is asked of it."""

from __future__ import annotations

import hashlib
import http.client
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.remote.ship.porter.archive import Archive, config_of, fits, layers_of, part_config
from kit.remote.ship.porter.engine import PART_LABEL, EngineError, SocketEngine, failure
from tests.fakes.socket_engine import FakeEngine, sha

BASE, MIDDLE, TOP = b"base" * 300, b"middle" * 200, b"top"
CHAIN = [sha(layer) for layer in (BASE, MIDDLE, TOP)]
CONFIG = {
    "architecture": "amd64",
    "os": "linux",
    "config": {"Env": ["A=1"]},
    "rootfs": {"type": "layers", "diff_ids": ["sha256:" + layer for layer in CHAIN]},
}
WHOLE = json.dumps(CONFIG).encode()


def laid_down(folder: Path, *contents: bytes) -> dict[str, str]:
    for content in contents:
        (folder / sha(content)).write_bytes(content)
    return {sha(content): str(folder / sha(content)) for content in contents}


def members(data: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
        names = tar.getnames()
        assert len(names) == len(set(names))
        return {name: tar.extractfile(name).read() for name in names}  # type: ignore[union-attr]


def sized(*contents: bytes) -> list[tuple[str, int]]:
    return [(sha(content), len(content)) for content in contents]


@settings(max_examples=25)
@given(contents=st.lists(st.binary(max_size=1600), max_size=5), held=st.integers(0, 3), twice=st.booleans())
def test_an_archive_is_a_tar_of_the_size_that_it_says(
    tmp_path_factory: pytest.TempPathFactory, contents: list[bytes], held: int, twice: bool
) -> None:
    folder = tmp_path_factory.mktemp("layers")
    chain = contents + contents[:1] * twice
    files = laid_down(folder, *contents[held:])
    archive = Archive(b'{"config": 1}', sized(*chain), files, "kit/horovod:abc")
    data = b"".join(archive.chunks())
    assert len(data) == archive.size
    entries = members(data)
    assert {name for name in entries if Path(name).name in {sha(content) for content in contents}} == {
        f"blobs/sha256/{layer}" for layer in files
    }
    for name, content in entries.items():
        if name.startswith("blobs/"):
            assert name == "blobs/sha256/" + hashlib.sha256(content).hexdigest()


def test_both_languages_of_an_archive_say_the_same(tmp_path: Path) -> None:
    """The first layer is there already, and the last one is the second one again."""
    chain = [BASE, MIDDLE, MIDDLE]
    archive = Archive(WHOLE, sized(*chain), laid_down(tmp_path, MIDDLE), "kit/horovod:abc")
    files = members(b"".join(archive.chunks()))
    (own,) = json.loads(files["manifest.json"])
    (entry,) = json.loads(files["index.json"])["manifests"]
    manifest = json.loads(files["blobs/" + entry["digest"].replace(":", "/")])
    assert entry["size"] == len(files["blobs/" + entry["digest"].replace(":", "/")])
    assert own["Config"] == "blobs/" + manifest["config"]["digest"].replace(":", "/")
    assert files[own["Config"]] == WHOLE
    assert manifest["config"]["size"] == len(WHOLE)
    assert own["Layers"] == ["blobs/" + layer["digest"].replace(":", "/") for layer in manifest["layers"]]
    assert [layer["size"] for layer in manifest["layers"]] == [len(layer) for layer in chain]
    assert own["RepoTags"] == ["kit/horovod:abc"]
    assert entry["annotations"] == {
        "org.opencontainers.image.ref.name": "abc",
        "io.containerd.image.name": "docker.io/kit/horovod:abc",
    }
    assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}


@pytest.mark.parametrize(
    ("tag", "name"),
    [
        ("horovod:1", "docker.io/library/horovod:1"),
        ("ghcr.io/a/b:1", "ghcr.io/a/b:1"),
        ("localhost/b:1", "localhost/b:1"),
    ],
)
def test_a_name_is_reported_with_its_registry(tag: str, name: str) -> None:
    files = members(b"".join(Archive(WHOLE, [], {}, tag).chunks()))
    (entry,) = json.loads(files["index.json"])["manifests"]
    assert entry["annotations"]["io.containerd.image.name"] == name


def test_an_archive_without_a_name_has_none() -> None:
    files = members(b"".join(Archive(WHOLE, [], {}).chunks()))
    assert json.loads(files["manifest.json"])[0]["RepoTags"] is None
    assert json.loads(files["index.json"])["manifests"][0]["annotations"] == {}


def test_a_file_that_becomes_shorter_is_no_archive(tmp_path: Path) -> None:
    archive = Archive(WHOLE, sized(BASE), laid_down(tmp_path, BASE))
    chunks = archive.chunks()
    next(chunks)
    (tmp_path / sha(BASE)).write_bytes(b"")
    with pytest.raises(EngineError, match="shorter"):
        list(chunks)


FACTS: dict[str, Any] = {
    "Architecture": "arm64",
    "Os": "linux",
    "Variant": "v8",
    "Created": "2026-01-01T00:00:00Z",
    "Config": {"Env": ["A=1"], "User": "", "Cmd": None, "Entrypoint": ["sh"]},
    "RootFS": {"Layers": ["sha256:" + layer for layer in CHAIN]},
}


def test_a_config_is_the_same_bytes_for_the_same_image() -> None:
    other = dict(reversed(FACTS.items()))
    # Engines of other versions leave out what is empty, and tell more.
    other["Config"] = {"Entrypoint": ["sh"], "Env": ["A=1"], "Domainname": ""}
    other["Size"] = 7
    assert config_of(FACTS) == config_of(other)
    assert json.loads(config_of(FACTS)) == {
        "architecture": "arm64",
        "os": "linux",
        "variant": "v8",
        "created": "2026-01-01T00:00:00Z",
        "config": {"Env": ["A=1"], "Entrypoint": ["sh"]},
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + layer for layer in CHAIN]},
    }
    assert config_of({**FACTS, "Config": {"Env": ["A=2"]}}) != config_of(FACTS)
    assert layers_of(FACTS) == CHAIN
    assert layers_of({"RootFS": None}) == []


def test_the_config_of_the_first_layers_is_labeled() -> None:
    part = json.loads(part_config(config_of(FACTS), CHAIN[:2], "mine"))
    assert part["architecture"] == "arm64"
    assert part["config"] == {"Labels": {PART_LABEL: "mine"}}
    assert part["rootfs"]["diff_ids"] == ["sha256:" + layer for layer in CHAIN[:2]]


def test_how_many_layers_are_there(engine: FakeEngine) -> None:
    asking = SocketEngine(engine.path)
    assert asking.held(CHAIN) == 0
    engine.add([MIDDLE, TOP], "not:from-below")
    assert asking.held(CHAIN) == 0
    engine.add([BASE], "one:1")
    engine.add([BASE, MIDDLE, b"else"], "two:1")
    assert asking.held(CHAIN) == 2
    assert asking.held(CHAIN[:1]) == 1
    engine.add([BASE, MIDDLE, TOP, b"more"])
    assert asking.held(CHAIN) == 3


def test_layers_count_as_there_only_where_an_image_can_be_loaded_on_them(engine: FakeEngine) -> None:
    engine.add([BASE, MIDDLE], "two:1")
    assert fits(SocketEngine(engine.path), WHOLE, CHAIN, "mine") == 2
    (probe,) = engine.archives
    assert not any(Path(name).name in CHAIN for name in probe)
    # As containerd's store may, it knows the chain and does not have the bytes.
    del engine.layers[CHAIN[1]]
    assert fits(SocketEngine(engine.path), WHOLE, CHAIN, "mine") == 0


def test_nothing_there_is_not_tried(engine: FakeEngine) -> None:
    assert fits(SocketEngine(engine.path), WHOLE, CHAIN, "mine") == 0
    assert engine.archives == []


def test_helpers_are_removed_and_nobody_elses(engine: FakeEngine, tmp_path: Path) -> None:
    asking = SocketEngine(engine.path)
    for owner in ("mine", "yours"):
        archive = Archive(part_config(WHOLE, CHAIN[:1], owner), sized(BASE), laid_down(tmp_path, BASE))
        asking.load(archive)
    engine.add([BASE], "kept:1")
    asking.remove_parts("mine")
    labels = [image["Config"].get("Labels") for image in engine.images.values()]
    assert labels == [{PART_LABEL: "yours"}, None]


def test_what_an_engine_says_is_reported(engine: FakeEngine, tmp_path: Path) -> None:
    asking = SocketEngine(engine.path)
    with pytest.raises(EngineError, match=f"no layer {CHAIN[1]}"):
        asking.load(Archive(WHOLE, sized(BASE, MIDDLE, TOP), laid_down(tmp_path, BASE)))
    with pytest.raises(EngineError, match="No such image"):
        asking.sizes("nothing:1")
    assert asking.inspect("nothing:1") is None
    assert failure(b'{"status": "one"}\nnot json\n{"error": "two"}\n{"error": "three"}') == "two"
    assert failure(b'{"status": "one"}\n[]') == ""


def test_an_engine_that_hangs_up_on_a_load_is_quoted(engine: FakeEngine, tmp_path: Path) -> None:
    """It says why and reads no further, while there is far more to send than fits between the two."""
    engine.hang_up = True
    large = b"\0" * 8_000_000
    with pytest.raises(EngineError, match="no space left on device"):
        SocketEngine(engine.path).load(Archive(WHOLE, sized(large), laid_down(tmp_path, large)))


def test_no_engine_is_reported(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="does not answer"):
        SocketEngine(str(tmp_path / "none.sock")).root()


def test_an_engine_that_goes_in_the_middle_of_its_answer_is_reported(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = http.client.HTTPResponse.read

    def more(self: http.client.HTTPResponse, most: int) -> bytes:
        self.length = (self.length or 0) + 10
        return read(self, most)

    monkeypatch.setattr(http.client.HTTPResponse, "read", more)
    with pytest.raises(EngineError, match="middle of its answer"):
        SocketEngine(engine.path).root()


def test_where_the_engine_is(monkeypatch: pytest.MonkeyPatch, engine: FakeEngine) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{engine.path}")
    assert SocketEngine().root() == str(engine.root)
