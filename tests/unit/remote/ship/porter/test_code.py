"""A pack of code becomes files of the store, and those become the working folder of a run."""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kit.remote.ship.porter import code, delta, manifest
from kit.remote.ship.porter import store as stores
from kit.remote.ship.porter.layers import Layers
from kit.remote.ship.porter.manifest import EMPTY, FILE, FOLDER, LINK, Entry
from tests.fakes import launcher

Tree = dict[bytes, bytes | tuple[str, bytes]]

TREE: Tree = {
    b"train.py": b"print('hello')\n",
    b"run.sh": ("755", b"#!/bin/sh\n"),
    b"data/a\\b\tc\n.txt": b"odd names\n",
    b"data/again": b"print('hello')\n",
    b"empty": b"",
    b"latest": ("link", b"data/again"),
    b"logs": ("folder", b""),
    b"\xff\xfe": b"no text",
}


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def manifest_of(tree: Tree) -> bytes:
    entries = []
    for path, value in tree.items():
        kind, data = value if isinstance(value, tuple) else ("644", value)
        if kind == "link":
            entries.append(Entry(LINK, 0o777, "", 0, path, data))
        elif kind == "folder":
            entries.append(Entry(FOLDER, 0o755, "", 0, path, b""))
        else:
            entries.append(Entry(FILE, int(kind, 8), sha(data), len(data), path, b""))
    return manifest.write(entries)


def pack_of(tree: Tree, base: Tree | None = None, **head: Any) -> bytes:
    new, old = manifest_of(tree), manifest_of(base) if base is not None else EMPTY
    change = delta.between(old, new)
    counts = {"remove": len(change.removed), "add": len(change.added), "objects": len(change.objects)}
    first = {"kit-pack": 1, "digest": sha(new), "base": sha(old) if base is not None else None, **counts, **head}
    contents = {sha(data): data for data in (v[1] if isinstance(v, tuple) else v for v in tree.values())}
    lines = [*change.removed, *change.added, *(b"%s %d" % (name.encode(), size) for name, size in change.objects)]
    return b"".join(
        [
            json.dumps(first).encode() + b"\n",
            *(line + b"\n" for line in lines),
            *(contents[n] for n, _ in change.objects),
        ]
    )


def needed(keep: Sequence[str], *, since: float = math.inf) -> stores.Needed:
    return stores.Needed(frozenset(keep), since)


class Host:
    """A VM's store, and the folder of runs in its container."""

    def __init__(self, folder: Path) -> None:
        self.store, self.runs = folder / "code", folder / "var" / "runs"

    def take(self, pack: bytes, digest: str, base: str | None = None, keep: Sequence[str] = ()) -> code.Cargo:
        order = {"digest": digest, "base": base, "store": str(self.store)}
        cargo = code.Cargo(order, [sha(pack)], needed(keep))
        cargo.held()
        layers = Layers(cargo.folder)
        (Path(cargo.folder) / "incoming-1").write_bytes(pack)
        layers.admit(str(Path(cargo.folder) / "incoming-1"), sha(pack))
        cargo.load(layers)
        return cargo

    def seed(self, run: str, digest: str) -> Path:
        return Path(seeds.seed(run, digest, stores=str(self.store), root=str(self.runs)))

    def settle(self, run: str) -> None:
        assert settle.settle(store.Run(run, str(self.runs)), str(self.store))


# The modules of the image that seed and settle folders.
seeds, settle, spare, store = (launcher.load(f"kitrun.{name}") for name in ("code", "settle", "spare", "store"))


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setattr(spare, "MARKS", str(tmp_path / "run"))
    return Host(tmp_path)


def tree_of(folder: Path) -> Tree:
    tree: Tree = {}
    for path in folder.rglob("*"):
        name = os.fsencode(path.relative_to(folder))
        if path.is_symlink():
            tree[name] = ("link", os.fsencode(path.readlink()))
        elif path.is_file():
            mode = path.stat().st_mode & 0o777
            tree[name] = path.read_bytes() if mode == 0o644 else (f"{mode:o}", path.read_bytes())
        elif not any(path.iterdir()):
            tree[name] = ("folder", b"")
    return tree


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_working_folder_is_the_tree(host: Host) -> None:
    digest = sha(manifest_of(TREE))
    host.take(pack_of(TREE), digest)
    assert tree_of(host.seed("r1", digest)) == TREE


def test_the_next_snapshot_needs_only_what_changed(host: Host) -> None:
    after: Tree = {**TREE, b"train.py": b"print('again')\n", b"more/new.py": b"x = 1\n"}
    del after[b"run.sh"]
    del after[b"logs"]
    first, second = sha(manifest_of(TREE)), sha(manifest_of(after))
    host.take(pack_of(TREE), first)
    pack = pack_of(after, TREE)
    assert b"odd names" not in pack
    host.take(pack, second, first)
    assert tree_of(host.seed("r2", second)) == after
    # The first snapshot is still what it was.
    assert tree_of(host.seed("r1", first)) == TREE


def test_what_a_run_writes_changes_no_other_run(host: Host) -> None:
    digest = sha(manifest_of(TREE))
    host.take(pack_of(TREE), digest)
    folder = host.seed("r1", digest)
    with (folder / "train.py").open("a") as file:
        file.write("more")
    assert tree_of(host.seed("r2", digest)) == TREE
    # A second attempt of the same run continues where the first one was.
    assert (host.seed("r1", digest) / "train.py").read_text().endswith("more")


def test_what_a_run_made_stays_and_the_rest_goes(host: Host) -> None:
    digest = sha(manifest_of(TREE))
    host.take(pack_of(TREE), digest)
    folder = host.seed("r1", digest)
    (folder / "train.py").write_text("print('HELLO')\n")
    (folder / "data" / "new").write_text("made")
    (folder / "latest").unlink()
    (folder / "latest").symlink_to("data/new")
    host.settle("r1")
    made = {b"train.py": b"print('HELLO')\n", b"data/new": b"made", b"latest": ("link", b"data/new")}
    assert tree_of(folder) == made
    host.seed("r2", digest)
    host.settle("r2")
    assert names_in(host.runs) == ["r1"]
    # The next run starts in what they have not changed.
    assert tree_of(host.seed("r3", digest)) == TREE


def test_a_snapshot_that_is_here_is_held(host: Host) -> None:
    digest = sha(manifest_of(TREE))
    pack = pack_of(TREE)
    host.take(pack, digest)
    again = code.Cargo({"digest": digest, "base": None, "store": str(host.store)}, [sha(pack)])
    assert again.held() == 1


def test_a_base_that_is_not_here_is_refused(host: Host) -> None:
    cargo = code.Cargo({"digest": "a" * 64, "base": "b" * 64, "store": str(host.store)}, ["c" * 64])
    with pytest.raises(code.Refused, match="bbbbbbbbbbbb is not here") as refused:
        cargo.held()
    assert refused.value.kind == "base"


def test_a_host_that_had_an_empty_folder_says_that_it_lacks_a_snapshot(host: Host) -> None:
    """`--again` sends a name alone, on an empty folder. The host called the pack wrong, and the run did not start."""
    host.take(pack_of({}), sha(EMPTY))
    digest = sha(manifest_of(TREE))
    with pytest.raises(code.Refused, match="another snapshot") as refused:
        host.take(pack_of({}, {}, digest=digest), digest, base=sha(EMPTY))
    assert refused.value.kind == "base"
    host.take(pack_of(TREE), digest)
    assert tree_of(host.seed("r1", digest)) == TREE


@pytest.mark.parametrize("digest", ["", "../../../etc/passwd", "A" * 64, "a" * 63 + "/"])
def test_only_a_digest_becomes_a_name(host: Host, digest: str) -> None:
    with pytest.raises(code.Refused, match="not a digest"):
        code.Cargo({"digest": digest, "base": None, "store": str(host.store)}, [])


def wrong_packs() -> dict[str, bytes]:
    good = pack_of(TREE)
    return {
        "wrong bytes": good[:-3] + b"xyz",
        "ends too early": good[:-1],
        "another snapshot": good.replace(b"train.py", b"trail.py"),
        "something else": pack_of(TREE, digest="0" * 64),
    }


@pytest.mark.parametrize("name", wrong_packs())
def test_a_wrong_pack_makes_no_snapshot(host: Host, name: str) -> None:
    digest = sha(manifest_of(TREE))
    with pytest.raises(code.Refused, match=name) as refused:
        host.take(wrong_packs()[name], digest)
    assert refused.value.kind == "code"
    assert not (host.store / "manifests" / digest).exists()
    with pytest.raises(seeds.NoCode, match="is not here"):
        host.seed("r1", digest)
    assert not (host.runs / "r1").exists()
    # The right pack works.
    host.take(pack_of(TREE), digest)
    assert tree_of(host.seed("r1", digest)) == TREE


def test_a_damaged_store_starts_no_run(host: Host) -> None:
    digest = sha(manifest_of(TREE))
    host.take(pack_of(TREE), digest)
    name = sha(b"odd names\n")
    (host.store / "objects" / name[:2] / name).write_bytes(b"cut")
    with pytest.raises(seeds.NoCode, match="damaged"):
        host.seed("r1", digest)
    assert names_in(host.runs) == []
    path = host.store / "manifests" / digest
    path.write_bytes(path.read_bytes().replace(b"train.py", b"trail.py"))
    with pytest.raises(seeds.NoCode, match="damaged"):
        host.seed("r2", digest)


@pytest.mark.parametrize("damage", ["an object is gone", "an object is cut", "the manifest is damaged"])
def test_a_damaged_store_gets_the_code_again(host: Host, damage: str) -> None:
    digest = sha(manifest_of(TREE))
    pack = pack_of(TREE)
    host.take(pack, digest)
    name = sha(b"odd names\n")
    path = host.store / "objects" / name[:2] / name
    if damage == "an object is gone":
        path.unlink()
    elif damage == "an object is cut":
        path.write_bytes(b"cut")
    else:
        path = host.store / "manifests" / digest
        path.write_bytes(path.read_bytes().replace(b"train.py", b"trail.py"))
    cargo = code.Cargo({"digest": digest, "base": None, "store": str(host.store)}, [sha(pack)])
    assert cargo.held() == 0
    host.take(pack, digest)
    assert tree_of(host.seed("r1", digest)) == TREE


# Long before this start of the host, or by a clock that was ahead then.
@pytest.mark.parametrize("used", [1, 4_000_000_000])
@pytest.mark.parametrize("damage", ["the manifest is empty", "an object is empty", "an object is gone"])
def test_a_base_that_a_crash_damaged_is_refused_once(host: Host, damage: str, used: int) -> None:
    after: Tree = {**TREE, b"train.py": b"print('again')\n"}
    first, second = sha(manifest_of(TREE)), sha(manifest_of(after))
    host.take(pack_of(TREE), first)
    name = sha(b"odd names\n")
    path = host.store / "objects" / name[:2] / name
    if damage == "the manifest is empty":
        path = host.store / "manifests" / first
    path.write_bytes(b"")
    if damage == "an object is gone":
        path.unlink()
    # The host has started again since.
    os.utime(host.store / "manifests" / first, (used, used))
    with pytest.raises(code.Refused, match="is not here") as refused:
        host.take(pack_of(after, TREE), second, first)
    # So kit sends everything.
    assert refused.value.kind == "base"
    assert not (host.store / "manifests" / first).exists()
    host.take(pack_of(after), second)
    assert tree_of(host.seed("r1", second)) == after
    third: Tree = {**after, b"new.py": b""}
    host.take(pack_of(third, after), sha(manifest_of(third)), second)
    assert tree_of(host.seed("r2", sha(manifest_of(third)))) == third


def test_the_objects_of_a_base_are_looked_at_once_after_a_start(host: Host) -> None:
    after: Tree = {**TREE, b"train.py": b"print('again')\n"}
    first = sha(manifest_of(TREE))
    host.take(pack_of(TREE), first)
    path = host.store / "manifests" / first
    os.utime(path, (1, 1))
    host.take(pack_of(after, TREE), sha(manifest_of(after)), first)
    assert path.stat().st_mtime > 1


def test_an_object_that_a_crash_cut_comes_again_with_another_snapshot(host: Host) -> None:
    name = sha(b"odd names\n")
    path = host.store / "objects" / name[:2] / name
    path.parent.mkdir(parents=True)
    path.write_bytes(b"")
    digest = sha(manifest_of(TREE))
    host.take(pack_of(TREE), digest)
    assert tree_of(host.seed("r1", digest)) == TREE


def test_a_base_that_goes_while_a_pack_comes_is_not_here(host: Host) -> None:
    after: Tree = {**TREE, b"new.py": b""}
    first, second = sha(manifest_of(TREE)), sha(manifest_of(after))
    pack = pack_of(after, TREE)
    # The order names no base, as one of a ship that began before.
    with pytest.raises(code.Refused, match="is not here") as refused:
        host.take(pack, second)
    assert refused.value.kind == "base"
    assert not (host.store / "manifests" / first).exists()


def test_old_snapshots_go_and_what_others_use_stays(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "MOST", 3)
    monkeypatch.setattr(stores, "KEPT", 2)
    digests = []
    for number in range(4):
        tree: Tree = {b"shared": b"the same", b"own": b"%d" % number}
        digests.append(sha(manifest_of(tree)))
        cargo = host.take(pack_of(tree), digests[-1])
        cargo.confirm(["gpu1"])
        os.utime(host.store / "manifests" / digests[-1], (number, number))
    assert names_in(host.store / "manifests") == sorted(digests[2:])
    assert names_in(host.store / "confirmed") == sorted(digests[2:])
    assert tree_of(host.seed("r1", digests[2])) == {b"shared": b"the same", b"own": b"2"}
    assert not list((host.store / "objects").rglob(sha(b"0")))


def test_old_snapshots_that_runs_need_stay(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "MOST", 3)
    monkeypatch.setattr(stores, "KEPT", 2)
    trees: list[Tree] = [{b"own": b"%d" % number} for number in range(6)]
    digests = [sha(manifest_of(tree)) for tree in trees]
    for number, tree in enumerate(trees):
        # A run that waits needs the first one; nobody has the second one any more, which is named, too.
        host.take(pack_of(tree), digests[number], keep=[digests[0], "f" * 64])
        os.utime(host.store / "manifests" / digests[number], (number, number))
    assert names_in(host.store / "manifests") == sorted([digests[0], digests[5]])
    assert tree_of(host.seed("r1", digests[0])) == trees[0]
    # If runs need all of them, more than the most stay, and so does the one that came.
    monkeypatch.setattr(stores, "MOST", 1)
    last: Tree = {b"own": b"last"}
    host.take(pack_of(last), sha(manifest_of(last)), keep=digests)
    assert len(names_in(host.store / "manifests")) == 3


def large(number: int) -> Tree:
    """Return a tree with a file that changes between runs."""
    return {b"shared": b"the same", b"study.db": b"%d" % number * 100}


def take_large(host: Host, *numbers: int, keep: Sequence[str] = ()) -> list[str]:
    """Let snapshots come. Return their digests."""
    digests = []
    for number in numbers:
        digests.append(sha(manifest_of(large(number))))
        host.take(pack_of(large(number)), digests[-1], keep=keep).confirm(["gpu1"])
        os.utime(host.store / "manifests" / digests[-1], (number, number))
    return digests


def test_old_snapshots_of_large_files_go(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "MOST_BYTES", 400)
    monkeypatch.setattr(stores, "KEPT_BYTES", 250)
    monkeypatch.setattr(stores, "LEAST", 2)
    oldest = sha(manifest_of(large(1)))
    digests = take_large(host, 1, 2, 3, 4, 5, 6, keep=[oldest])
    # Little has come each time.
    assert len(names_in(host.store / "manifests")) == 6
    monkeypatch.setattr(stores, "LITTLE", 1)
    digests += take_large(host, 7, keep=[oldest])
    # A run needs the first one, and the newest ones stay, though these three have more bytes than a host keeps.
    assert names_in(host.store / "manifests") == sorted([oldest, *digests[-2:]])
    assert names_in(host.store / "confirmed") == sorted([oldest, *digests[-2:]])
    assert sum(path.is_file() for path in (host.store / "objects").rglob("*")) == 4
    assert tree_of(host.seed("r1", oldest)) == large(1)
    # When no run needs it, it goes as the oldest.
    monkeypatch.setattr(stores, "LEAST", 1)
    digests += take_large(host, 8)
    assert names_in(host.store / "manifests") == sorted(digests[-2:])


def test_a_disk_without_room_for_a_pack_keeps_only_new_snapshots(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "LEAST", 1)
    digests = take_large(host, 1, 2, 3, 4, 5)
    order = {"digest": "f" * 64, "base": digests[1], "store": str(host.store)}
    cargo = code.Cargo(order, ["e" * 64], needed(digests[:1]))
    cargo.make_room(1)
    assert names_in(host.store / "manifests") == sorted(digests)
    free = SimpleNamespace(f_bavail=3, f_frsize=100)
    monkeypatch.setattr(os, "statvfs", lambda _: free)
    cargo.make_room(150)
    assert names_in(host.store / "manifests") == sorted(digests)
    cargo.make_room(151)
    # What a run needs, the base of what comes, and the newest.
    assert names_in(host.store / "manifests") == sorted([digests[0], digests[1], digests[4]])
    assert tree_of(host.seed("r1", digests[4])) == large(5)


def test_what_came_after_the_list_of_needed_snapshots_stays() -> None:
    """A run that began since may need it."""
    used = {"needed": 1.0, "old": 9.0, "then": 10.0, "since": 11.0, "now": 20.0, "of a wrong clock": 21.0}
    assert needed(["needed", "gone"], since=10.0).of(used, 20.0) == {"needed", "then", "since", "now"}
    # Nobody knows what runs need.
    assert stores.Needed().of(used, 20.0) == used.keys() - {"of a wrong clock"}


def test_a_list_is_as_old_as_its_order_says_and_its_way_here_took() -> None:
    order = {"digests": ["a" * 64], "age_s": 600.0}
    assert code.needed(order, 10_000.0) == needed(["a" * 64], since=10_000.0 - 600.0 - code.MARGIN_S)
    with pytest.raises(code.Refused, match="not a digest"):
        code.needed({"digests": ["../../../etc/passwd"], "age_s": 0.0}, 1.0)


@pytest.mark.parametrize("is_full", [False, True])
def test_a_ship_that_waited_removes_nothing_that_came_meanwhile(
    host: Host, monkeypatch: pytest.MonkeyPatch, is_full: bool
) -> None:
    monkeypatch.setattr(stores, "MOST", 3)
    monkeypatch.setattr(stores, "KEPT", 1)
    monkeypatch.setattr(stores, "LEAST", 1)
    monkeypatch.setattr(time, "time", lambda: 100.0)
    digests = take_large(host, 1, 2, 3)
    order = {"digest": "f" * 64, "base": None, "store": str(host.store)}
    cargo = code.Cargo(order, ["e" * 64], needed([], since=2.0))
    if is_full:
        monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=0, f_frsize=1))
        cargo.make_room(1)
    else:
        monkeypatch.setattr(stores, "MOST", 2)
        cargo.confirm([])
    assert names_in(host.store / "manifests") == sorted(digests[1:])


def test_a_store_gives_what_it_took(host: Host, tmp_path: Path) -> None:
    digest = sha(manifest_of(TREE))
    host.take(pack_of(TREE), digest)
    cargo = code.Cargo({"digest": digest, "base": None, "store": str(host.store)}, [])
    name, size = cargo.pack()
    pack = (Path(cargo.folder) / name).read_bytes()
    assert pack == pack_of(TREE)
    assert (name, size) == (sha(pack), len(pack))
    other = Host(tmp_path / "other")
    other.take(pack, digest)
    assert names_in(other.store / "objects") == names_in(host.store / "objects")


def test_a_store_gives_what_differs_from_an_older_snapshot(host: Host, tmp_path: Path) -> None:
    after: Tree = {**TREE, b"train.py": b"print('again')\n"}
    first, second = sha(manifest_of(TREE)), sha(manifest_of(after))
    host.take(pack_of(TREE), first)
    host.take(pack_of(after, TREE), second, first)
    cargo = code.Cargo({"digest": second, "base": first, "store": str(host.store)}, [])
    name, _ = cargo.pack()
    assert (Path(cargo.folder) / name).read_bytes() == pack_of(after, TREE)
    for base in ("f" * 64, second):
        (host.store / "manifests" / second).write_bytes(manifest_of(after) + b"x" * (base == second))
        lacking = code.Cargo({"digest": second, "base": base, "store": str(host.store)}, [])
        with pytest.raises(code.Refused, match="is not here") as error:
            lacking.pack()
        assert error.value.kind == "base"


def test_a_store_gives_nothing_that_it_does_not_have(host: Host) -> None:
    digest = sha(manifest_of(TREE))
    lacking = code.Cargo({"digest": digest, "base": None, "store": str(host.store)}, [])
    with pytest.raises(code.Refused, match="is not here") as error:
        lacking.pack()
    assert error.value.kind == "base"
    host.take(pack_of(TREE), digest)
    there = names_in(Path(lacking.folder))
    damaged = host.store / "objects" / sha(b"odd names\n")[:2] / sha(b"odd names\n")
    damaged.write_bytes(b"odd nameS\n")
    with pytest.raises(code.Refused, match="has wrong bytes") as error:
        lacking.pack()
    assert error.value.kind == "corrupt"
    # So that this host takes it again, too.
    assert not damaged.exists()
    # And no part of a pack fills its disk.
    assert names_in(Path(lacking.folder)) == there


def test_the_head_lists_who_has_what(host: Host) -> None:
    first, second = sha(manifest_of(TREE)), sha(manifest_of({b"a": b"b"}))
    host.take(pack_of(TREE), first).confirm(["gpu2", "gpu1"])
    host.take(pack_of({b"a": b"b"}), second)
    host.take(pack_of(TREE), first).confirm(["gpu3"])
    for age, digest in enumerate((first, second)):
        os.utime(host.store / "manifests" / digest, (age, age))
    host.runs.mkdir(parents=True)

    def snapshots() -> Any:
        return seeds.snapshots(stores=str(host.store), root=str(host.runs))

    assert snapshots() == {second: [], first: ["gpu1", "gpu2", "gpu3"]}
    assert list(snapshots()) == [second, first]
    # A node that lacked it makes all doubtful, until kit has asked the hosts again.
    seeds.doubt(root=str(host.runs))
    os.utime(host.store / "confirmed" / first, (1, 1))
    assert snapshots()[first] == []


def test_a_pack_may_come_in_any_stream(host: Host) -> None:
    """The last object may be here already, and its bytes are passed by."""
    digest = sha(manifest_of(TREE))
    cargo = host.take(pack_of(TREE), digest)
    (host.store / "manifests" / digest).unlink()
    cargo._unpack(io.BytesIO(pack_of(TREE)))
    assert tree_of(host.seed("r1", digest)) == TREE
