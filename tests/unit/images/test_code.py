"""The code of a run on the head: the supervisor seeds its working folder, or starts no rank."""

from __future__ import annotations

import hashlib
from pathlib import Path

from kit.remote.ship.porter import manifest
from kit.remote.ship.porter.manifest import FILE, Entry
from tests.fakes.head import Head, MakeHead


def put(store: Path, name: bytes, data: bytes) -> str:
    """Put a snapshot with one file into the store, as a porter does. Return its digest."""
    sha = hashlib.sha256(data).hexdigest()
    path = store / "objects" / sha[:2] / sha
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    text = manifest.write([Entry(FILE, 0o644, sha, len(data), name, b"")])
    digest = manifest.digest(text)
    (store / "manifests").mkdir(exist_ok=True)
    (store / "manifests" / digest).write_bytes(text)
    return digest


def with_store(make_head: MakeHead, folder: Path) -> Head:
    return make_head(code_STORE=str(folder))


def test_the_working_folder_is_there_before_the_ranks(make_head: MakeHead, tmp_path: Path) -> None:
    head = with_store(make_head, tmp_path)
    digest = put(tmp_path, b"train.py", b"print('hello')\n")
    story = head.done(
        "sh", "-c", 'cat "$KIT_RUNS/$KIT_RUN/work/train.py"', code=digest, env={"KIT_RUNS": str(head.runs)}
    )
    assert story.code == 0
    assert "print('hello')" in story.mpirun
    assert head.door().hello["code"] == {digest: []}
    head.nothing_left()


def test_without_the_code_nothing_starts(make_head: MakeHead, tmp_path: Path) -> None:
    head = with_store(make_head, tmp_path)
    digest = put(tmp_path, b"train.py", b"print('hello')\n")
    confirmed = tmp_path / "confirmed"
    confirmed.mkdir()
    (confirmed / digest).write_text("gpu1\n")
    assert head.door().hello["code"] == {digest: ["gpu1"]}
    for path in (tmp_path / "objects").rglob("*"):
        if path.is_file():
            path.unlink()
    story = head.done("sh", "-c", "echo started", code=digest, policy={"retries": 2})
    assert story.code == 4
    failure = story.ending["failure"]
    assert (failure["kind"], failure["host"]) == ("code", "gpu1")
    assert "train.py" in failure["lines"][0]
    assert "started" not in story.mpirun
    assert [event["number"] for event in story.events("attempt")] == [1]
    # What was confirmed before may be wrong, so kit asks the hosts again.
    assert head.door().hello["code"] == {digest: []}
    head.nothing_left()


def test_a_request_with_code_of_another_kind_is_refused(head: Head) -> None:
    door = head.door()
    door.send(head.request("true", code=7))
    assert door.end()[0] == 2
