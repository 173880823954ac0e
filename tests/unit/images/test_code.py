"""The code of a run on the head: the supervisor seeds its working folder, or starts no rank."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from kit.remote.ship.porter import manifest
from kit.remote.ship.porter.manifest import FILE, Entry
from tests.fakes.head import Head, MakeHead, place, until


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


def runs_of(head: Head) -> dict[str, str]:
    return {"KIT_RUNS": str(head.runs)}


def test_the_working_folder_is_there_before_the_ranks(make_head: MakeHead, tmp_path: Path) -> None:
    head = with_store(make_head, tmp_path)
    digest = put(tmp_path, b"train.py", b"print('hello')\n")
    story = head.done("sh", "-c", 'cat "$KIT_RUNS/$KIT_RUN/work/train.py"', code=digest, env=runs_of(head))
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


def test_the_head_settles_the_folder_and_those_of_earlier_runs(make_head: MakeHead, tmp_path: Path) -> None:
    head = with_store(make_head, tmp_path)
    digest = put(tmp_path, b"train.py", b"print('hello')\n")
    # A run whose supervisor was killed.
    lost = head.runs / "lost"
    (lost / "work.part").mkdir(parents=True)
    (lost / "work.json").write_text(json.dumps({"digest": digest, "began": 1.0}))
    story = head.done("sh", "-c", 'cd "$KIT_RUNS/$KIT_RUN/work" && echo 1 >made', code=digest, env=runs_of(head))
    assert story.code == 0
    head.nothing_left()
    assert [path.name for path in (head.runs / head.ids[-1] / "work").iterdir()] == ["made"]
    assert not lost.exists()


def test_other_nodes_settle_when_no_attempt_follows(make_head: MakeHead, tmp_path: Path) -> None:
    nodes = tmp_path / "nodes"
    head = make_head(code_STORE=str(tmp_path / "store"))
    digest = put(tmp_path / "store", b"train.py", b"print('hello')\n")
    head.ssh(store_ROOT=str(nodes))
    run = head.new_id()
    pending = nodes / run / "work.json"
    pending.parent.mkdir(parents=True)
    pending.write_text(json.dumps({"digest": digest, "began": 1.0}))
    agent = f"kit-code {run} {digest} orted"
    places = [place("gpu1", 1), place("gpu2", 1)]
    script = '[ "$KIT_ATTEMPT" = 2 ] || exit 3; ls "$NODES"; echo "$0"'
    story = head.done(
        "sh", "-c", script, agent, id=run, code=digest, places=places, env={"NODES": str(nodes / run)},
        policy={"retries": 2, "backoff": 0.01},
    )  # fmt: skip
    assert story.code == 0
    # Between two attempts, the folder stays as it was.
    listed, order = story.mpirun
    assert listed == "work.json"
    # One more attempt might have followed.
    assert order.split()[3].split(",")[1:] == ["0", run]
    until(lambda: not pending.exists())
    head.nothing_left()
