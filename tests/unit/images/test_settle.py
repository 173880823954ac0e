"""Working folders on a node: seeded from the store or from the spare, and settled after the run."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kit.remote.ship.porter import manifest
from kit.remote.ship.porter.manifest import FILE, FOLDER, LINK, Entry
from tests.fakes import launcher
from tests.fakes.head import until

code, settle, spare = (launcher.load(f"kitrun.{name}") for name in ("code", "settle", "spare"))
snapshot, store, tree = (launcher.load(f"kitrun.{name}") for name in ("snapshot", "store", "tree"))

FILES = {
    "train.py": b"import model\n",
    "model.py": b"layers = 3\n",
    "pkg/__init__.py": b"",
    "pkg/deep/data.txt": b"1 2 3\n",
    "pkg/deep/more.txt": b"4 5 6\n",
    "other/caf\u00e9\t.txt": b"odd name\n",
}


class Node:
    """One node: its store, its runs and its spare."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stores, self.runs = folder / "store", folder / "var/runs"
        self.spare = folder / "var/spare/tree"
        self.runs.mkdir(parents=True)
        monkeypatch.setattr(spare, "MARKS", str(folder / "run/code"))
        self.copied = 0
        make = tree.make_entry

        def counted(*order: Any) -> Any:
            self.copied += 1
            return make(*order)

        monkeypatch.setattr(tree, "make_entry", counted)

    def put(self, files: Mapping[str, bytes]) -> str:
        """Store a snapshot of these files, an executable file, a link and an empty folder. Return its digest."""
        entries = [
            Entry(LINK, 0o777, "", 0, b"link", b"pkg/deep/data.txt"),
            Entry(FOLDER, 0o755, "", 0, b"empty", b""),
        ]
        for path, data in {**files, "run.sh": b"#!/bin/sh\n"}.items():
            sha = hashlib.sha256(data).hexdigest()
            file = self.stores / "objects" / sha[:2] / sha
            file.parent.mkdir(parents=True, exist_ok=True)
            if not file.exists():
                file.write_bytes(data)
            entries.append(Entry(FILE, 0o755 if path == "run.sh" else 0o644, sha, len(data), os.fsencode(path), b""))
        text = manifest.write(entries)
        (self.stores / "manifests").mkdir(exist_ok=True)
        (self.stores / "manifests" / manifest.digest(text)).write_bytes(text)
        return manifest.digest(text)

    def seed(self, run: str, digest: str, began: float = 1.0) -> Path:
        return Path(code.seed(run, digest, began, stores=str(self.stores), root=str(self.runs)))

    def settle(self, run: str, *, wait: bool = True) -> bool:
        return bool(settle.settle(store.Run(run, str(self.runs)), str(self.stores), wait=wait))

    def others(self, me: str, *living: str, began: float) -> None:
        settle.settle_others(str(self.runs), str(self.stores), me=me, living=living, began=began)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


def listing(folder: Path) -> dict[str, str]:
    """Return the files, links and empty folders below a folder, with what is in them."""
    shown = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            shown[name] = f"-> {path.readlink()}"
        elif path.is_file():
            shown[name] = path.read_text()
        elif not any(path.iterdir()):
            shown[name] = "/"
    return shown


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def wanted(files: Mapping[str, bytes]) -> dict[str, str]:
    texts = {name: data.decode() for name, data in files.items()}
    return {**texts, "run.sh": "#!/bin/sh\n", "link": "-> pkg/deep/data.txt", "empty": "/"}


def test_a_folder_is_the_snapshot(node: Node) -> None:
    work = node.seed("a", node.put(FILES))
    assert listing(work) == wanted(FILES)
    assert os.access(work / "run.sh", os.X_OK)
    assert not os.access(work / "train.py", os.X_OK)


def test_a_run_that_changed_nothing_leaves_nothing(node: Node) -> None:
    node.seed("a", node.put(FILES))
    assert node.settle("a")
    assert names(node.runs) == []
    assert listing(node.spare) == wanted(FILES)


def test_what_a_run_made_stays_and_the_rest_is_the_spare(node: Node) -> None:
    work = node.seed("a", node.put(FILES))
    (work / "model.py").write_text("layers = 4\n")
    (work / "pkg/deep/result.txt").write_text("made")
    (work / "pkg/deep/more.txt").unlink()
    (work / "link").unlink()
    (work / "link").symlink_to("/etc")
    (work / "made/empty").mkdir(parents=True)
    assert node.settle("a")
    made = {"model.py": "layers = 4\n", "pkg/deep/result.txt": "made", "link": "-> /etc", "made/empty": "/"}
    assert listing(work) == made
    assert listing(node.spare) == wanted(FILES)
    assert not (node.runs / "a/work.json").exists()


def test_a_file_that_has_its_old_times_again_is_changed_all_the_same(node: Node) -> None:
    work = node.seed("a", node.put(FILES))
    before = (work / "model.py").stat()
    (work / "model.py").write_text("layers = 5\n")
    os.utime(work / "model.py", ns=(before.st_atime_ns, before.st_mtime_ns))
    # Another file in its place, with the same size and times.
    (work / "new").write_text("7 8 9\n")
    times = (work / "pkg/deep/data.txt").stat().st_mtime_ns
    os.utime(work / "new", ns=(times, times))
    (work / "new").rename(work / "pkg/deep/data.txt")
    assert node.settle("a")
    assert listing(work) == {"model.py": "layers = 5\n", "pkg/deep/data.txt": "7 8 9\n"}
    assert listing(node.spare) == wanted(FILES)


def test_folders_that_changed_places_are_noticed(node: Node) -> None:
    work = node.seed("a", node.put({"one/x": b"1", "two/x": b"2"}))
    (work / "one").rename(work / "three")
    (work / "two").rename(work / "one")
    (work / "three").rename(work / "two")
    assert node.settle("a")
    assert {"one/x": "2", "two/x": "1"}.items() <= listing(work).items()
    assert {"one/x": "1", "two/x": "2"}.items() <= listing(node.spare).items()


def test_nothing_behind_a_link_is_touched(node: Node, tmp_path: Path) -> None:
    work = node.seed("a", node.put(FILES))
    outside = tmp_path / "outside"
    (work / "pkg").rename(outside)
    (work / "pkg").symlink_to(outside)
    (outside / "__pycache__").mkdir()
    (outside / "__pycache__/__init__.cpython-311.pyc").write_bytes(b"")
    before = listing(outside)
    assert node.settle("a")
    assert listing(outside) == before
    assert listing(work) == {"pkg": f"-> {outside}"}
    assert listing(node.spare) == wanted(FILES)


def test_a_working_folder_that_became_a_link_is_left(node: Node, tmp_path: Path) -> None:
    work = node.seed("a", node.put(FILES))
    work.rename(tmp_path / "outside")
    work.symlink_to(tmp_path / "outside")
    assert node.settle("a")
    assert listing(tmp_path / "outside") == wanted(FILES)


def test_only_what_python_compiled_from_unchanged_code_goes(node: Node) -> None:
    work = node.seed("a", node.put(FILES))
    cache = work / "__pycache__"
    cache.mkdir()
    for name in ("train.cpython-311.pyc", "mine.cpython-311.pyc", "notes.txt"):
        (cache / name).write_text(name)
    assert node.settle("a")
    assert sorted(listing(work)) == ["__pycache__/mine.cpython-311.pyc", "__pycache__/notes.txt"]


def test_compiled_files_of_the_snapshot_go_where_its_other_files_go(node: Node) -> None:
    """A folder outside of git has what another Python compiled, also from a module that is gone."""
    compiled = ("train", "gone", "zoo")
    files = {**FILES, **{f"__pycache__/{name}.cpython-312.pyc": name.encode() for name in compiled}}
    digest = node.put(files)
    work = node.seed("a", digest)
    # The Python of the image compiles one of them again.
    (work / "__pycache__/train.cpython-311.pyc").write_text("new")
    assert node.settle("a")
    assert names(node.runs) == []
    assert listing(node.spare) == wanted(files)
    node.copied = 0
    work = node.seed("b", digest)
    assert node.copied == 0
    (work / "__pycache__/train.cpython-312.pyc").write_text("new")
    assert node.settle("b")
    assert names(node.runs) == []


def test_the_next_run_takes_the_spare_and_copies_only_what_differs(node: Node) -> None:
    digest = node.put(FILES)
    node.seed("a", digest)
    node.settle("a")
    node.copied = 0
    assert listing(node.seed("b", digest)) == wanted(FILES)
    assert node.copied == 0
    node.settle("b")
    node.copied = 0
    # A file changes, a folder becomes a file, a file becomes a folder, and a folder is new.
    files = {name: data for name, data in FILES.items() if not name.startswith("other") and name != "train.py"}
    files |= {"model.py": b"layers = 9\n", "other": b"a file\n", "train.py/new": b"in a folder\n"}
    assert listing(node.seed("c", node.put(files))) == wanted(files)
    assert node.copied == 3
    node.settle("c")
    assert names(node.runs) == []
    assert listing(node.spare) == wanted(files)


def test_a_spare_that_somebody_changed_is_not_used(node: Node) -> None:
    digest = node.put(FILES)
    for number, change in enumerate(("data", "added", "chmod", "removed", "top", "link")):
        node.seed(f"a{number}", digest)
        node.settle(f"a{number}")
        path = node.spare / "pkg/deep/data.txt"
        if change == "data":
            before = path.stat()
            path.write_bytes(b"3 2 1\n")
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        elif change == "added":
            (path.parent / "evil.py").write_text("")
        elif change == "chmod":
            path.chmod(0o777)
        elif change == "removed":
            path.unlink()
        elif change == "top":
            (node.spare / "sitecustomize.py").write_text("")
        else:
            (node.spare / "pkg/deep").rename(node.spare.parent / "deep")
            (node.spare / "pkg/deep").symlink_to(node.spare.parent / "deep")
        node.copied = 0
        assert listing(node.seed(f"b{number}", digest)) == wanted(FILES), change
        assert node.copied == len(FILES) + 2, change
        node.settle(f"b{number}")


def test_a_new_container_does_not_use_the_old_spare(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = node.put(FILES)
    node.seed("a", digest)
    node.settle("a")
    monkeypatch.setattr(spare, "MARKS", spare.MARKS + "-new")
    node.copied = 0
    work = node.seed("b", digest)
    assert node.copied == len(FILES) + 2
    # Without marks, only bytes count.
    monkeypatch.setattr(spare, "MARKS", spare.MARKS + "-newer")
    (work / "model.py").write_text("layers = 8\n")
    os.utime(work / "model.py", ns=(0, 0))
    assert node.settle("b")
    assert listing(work) == {"model.py": "layers = 8\n"}


def test_two_runs_on_one_host_have_their_own_folders(node: Node) -> None:
    digest = node.put(FILES)
    node.seed("a", digest)
    node.settle("a")
    first, second = node.seed("b", digest), node.seed("c", digest)
    (first / "model.py").write_text("changed\n")
    assert listing(second) == wanted(FILES)
    assert node.settle("b")
    assert node.settle("c")
    assert names(node.runs) == ["b"]
    assert listing(node.spare) == wanted(FILES)


def test_a_run_that_lives_here_is_not_settled(node: Node) -> None:
    digest = node.put(FILES)
    work = node.seed("a", digest)
    held = settle.hold(store.Run("a", str(node.runs)))
    try:
        assert not node.settle("a", wait=False)
    finally:
        os.close(held)
    script = "import sys; print('up', flush=True); sys.stdin.read()"
    for environ, folder in (({"KIT_RUN": "a"}, None), ({}, work / "pkg")):
        process = subprocess.Popen(
            [sys.executable, "-IS", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **environ},
            cwd=folder,
        )
        assert process.stdout
        assert process.stdout.readline() == b"up\n"
        assert not node.settle("a", wait=False)
        process.communicate(b"")
    assert listing(work) == wanted(FILES)
    assert node.settle("a", wait=False)


def test_the_next_run_settles_what_an_earlier_one_left_and_no_run_that_lives(node: Node) -> None:
    digest = node.put(FILES)
    node.seed("ended", digest, began=1.0)
    node.seed("between-attempts", digest, began=2.0)
    node.seed("later", digest, began=9.0)
    (node.runs / "unfinished/work.part").mkdir(parents=True)
    settle.begin(store.Run("unfinished", str(node.runs)), digest, 1.0)
    node.seed("me", digest, began=5.0)
    node.others("me", "between-attempts", began=5.0)
    assert names(node.runs) == ["between-attempts", "later", "me"]
    for name in ("between-attempts", "later", "me"):
        assert listing(node.runs / name / "work") == wanted(FILES)


def test_a_folder_stays_as_the_last_attempt_left_it(node: Node) -> None:
    digest = node.put(FILES)
    work = node.seed("a", digest)
    (work / "model.py").unlink()
    assert node.seed("a", digest) == work
    assert not (work / "model.py").exists()


def test_code_that_is_not_in_the_store_any_more_is_not_removed(node: Node) -> None:
    digest = node.put(FILES)
    work = node.seed("a", digest)
    (node.stores / "manifests" / digest).unlink()
    assert node.settle("a")
    assert listing(work) == wanted(FILES)


def test_without_room_for_the_spare_unchanged_files_go_all_the_same(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = node.seed("a", node.put(FILES))
    (work / "model.py").write_text("layers = 7\n")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(spare, "put", full)
    assert node.settle("a")
    assert listing(work) == {"model.py": "layers = 7\n"}
    assert not node.spare.exists()
    monkeypatch.setattr(spare, "locked", full)
    work = node.seed("b", node.put(FILES))
    (work / "made").write_text("1")
    assert node.settle("b")
    assert listing(work) == {"made": "1"}


def test_a_run_that_somebody_removed_leaves_no_marks(node: Node) -> None:
    work = node.seed("a", node.put(FILES))
    assert names(Path(spare.MARKS)) == ["a~"]
    shutil.rmtree(work.parent)
    assert node.settle("a")
    assert names(Path(spare.MARKS)) == []


def test_a_failed_copy_leaves_nothing(node: Node) -> None:
    digest = node.put(FILES)
    sha = hashlib.sha256(FILES["train.py"]).hexdigest()
    (node.stores / "objects" / sha[:2] / sha).unlink()
    with pytest.raises(snapshot.NoCode, match=r"train\.py"):
        node.seed("a", digest)
    assert names(node.runs) == []


def test_the_daemon_holds_the_folder_and_another_process_settles_it(node: Node, tmp_path: Path) -> None:
    """kit-code as mpirun starts it, with a shell in the place of the daemon."""
    digest = node.put(FILES)
    order = code.Order(began=5.0, last=True, living=("x",))
    program = (
        f"import sys; sys.path.insert(0, {str(launcher.LIB)!r}); sys.dont_write_bytecode = True\n"
        "from kitrun import code, spare, store\n"
        f"store.ROOT, code.STORE, spare.MARKS = {str(node.runs)!r}, {str(node.stores)!r}, {spare.MARKS!r}\n"
        "code.main(sys.argv[1:])"
    )
    daemon = "echo $KIT_RUN; read -r word"
    argv = [sys.executable, "-IS", "-c", program, "a", digest, order.word(), "sh", "-c", daemon]
    node.seed("x", digest)
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdin
        assert process.stdout.readline() == b"a\n"
        with (node.runs / "a/work.json").open() as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        (node.runs / "a/work/out.txt").write_text("made")
        # The stream ends with the daemon: nobody waits for the process that settles.
        out, err = process.communicate(b"\n", timeout=60)
    assert (out, err, process.returncode) == (b"", b"", 0)
    until(lambda: not (node.runs / "a/work.json").exists())
    assert listing(node.runs / "a/work") == {"out.txt": "made"}
    assert listing(node.runs / "x/work") == wanted(FILES)


def test_the_order_reaches_the_launch_agent() -> None:
    order = code.Order(began=7.25, last=True, living=("a-1", "b"))
    agent = "python3 -IS /opt/kit/bin/kit-code run digest orted"
    argv = code.with_order(
        ["mpirun", "--mca", "orte_launch_agent", agent, "train run digest x"], "run", "digest", order
    )
    word = argv[3].split()[5]
    assert code.Order.read(word) == order
    assert argv[3].split()[-1] == "orted"
    assert argv[4] == "train run digest x"


def test_a_whole_folder_becomes_the_spare_without_a_look_at_its_parts(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = node.put(FILES)
    node.seed("a", digest)
    monkeypatch.setattr(settle, "_empty", lambda *_: pytest.fail("it is whole"))
    assert node.settle("a")
    assert listing(node.spare) == wanted(FILES)
    node.copied = 0
    work = node.seed("b", digest)
    other = node.seed("c", digest)
    assert node.copied == len(FILES) + 2
    assert node.settle("b")
    assert node.settle("c")
    assert not work.exists()
    assert not other.exists()
    assert names(node.spare.parent) == ["lock", "tree"]
    assert names(Path(spare.MARKS)) == ["spare"]
    node.copied = 0
    node.seed("d", digest)
    assert node.copied == 0


@pytest.mark.parametrize("whole", [True, False])
def test_no_run_waits_while_an_old_spare_is_removed(node: Node, whole: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """To remove 50,000 files takes seconds. A run that takes the spare, and one that puts another, go on meanwhile."""
    node.seed("a", node.put(FILES))
    node.settle("a")
    # What a killed process was removing.
    (node.spare.parent / "old.killed/deep").mkdir(parents=True)
    others = {"other.py": b"another project\n"}
    digest = node.put(others)
    work = node.seed("b", digest)
    if not whole:
        (work / "made").write_text("by a rank")
    remove, seeded = tree.remove_path, list[dict[str, str]]()

    def removed(path: str) -> None:
        if Path(path).name.startswith("old.") and not seeded:
            seeded.append(listing(node.seed("c", digest)))
            assert node.settle("c")
        remove(path)

    monkeypatch.setattr(tree, "remove_path", removed)
    node.copied = 0
    assert node.settle("b")
    assert (seeded, node.copied) == ([wanted(others)], 0)
    assert names(node.spare.parent) == ["lock", "tree"]
    assert listing(node.spare) == wanted(others)


@pytest.mark.parametrize("change", ["data", "chmod of the top", "a name at the top", "a name in a folder"])
def test_a_changed_folder_does_not_become_the_spare_as_a_whole(
    node: Node, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = node.seed("a", node.put(FILES))
    if change == "data":
        (work / "pkg/deep/data.txt").write_bytes(b"3 2 1\n")
    elif change == "chmod of the top":
        work.chmod(0o700)
    else:
        (work / ("new" if change == "a name at the top" else "pkg/deep/new")).write_text("")
    looks = []
    empty = settle._empty
    monkeypatch.setattr(settle, "_empty", lambda *order: (looks.append(1), empty(*order)))
    assert node.settle("a")
    assert looks
    assert listing(node.spare) == wanted(FILES)
    assert node.spare.stat().st_mode & 0o777 == 0o755


def test_a_damaged_note_of_the_marks_only_costs_time(node: Node) -> None:
    digest = node.put(FILES)
    for number, damage in enumerate((b"", digest.encode(), digest.encode() + b"\xff" * 200, b"\xff" * 300)):
        node.seed(f"a{number}", digest)
        assert node.settle(f"a{number}")
        assert names(Path(spare.MARKS)) == ["spare"]
        Path(spare.MARKS, "spare").write_bytes(damage)
        node.copied = 0
        assert listing(node.seed(f"b{number}", digest)) == wanted(FILES)
        assert node.copied == len(FILES) + 2
        Path(spare.MARKS, f"b{number}~").write_bytes(damage)
        assert node.settle(f"b{number}")
        assert names(node.runs) == []


def test_several_processes_find_what_one_finds(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "SHARE", 1)
    digest = node.put({**FILES, "z/last.txt": b"the last share\n"})
    for number, path in enumerate(("train.py", "pkg/deep/data.txt", "z/last.txt", "z")):
        node.seed(f"a{number}", digest)
        node.settle(f"a{number}")
        marks = spare.Marks.read(f"{spare.MARKS}/spare")
        with tree.opened_top(str(node.spare)) as top:
            assert tree.is_whole(top, marks, 4)
            (node.spare / path).chmod(0o700)
            assert not tree.is_whole(top, marks, 4)
            assert not tree.is_whole(top, marks, 1)


def test_folders_are_dealt_out_in_shares() -> None:
    sizes = {b"": 30_000, b"a": 20_000, b"b": 0, b"c": 25_000, b"d": 25_000}
    assert tree.shares(sizes, 1) == [[b"", b"a", b"b", b"c", b"d"]]
    assert tree.shares(sizes, 4) == [[b""], [b"a", b"b", b"c"], [b"d"]]
    assert tree.shares({b"": 3, b"a": 4}, 4) == [[b"", b"a"]]
    assert tree.shares({b"": 0}, 4) == [[b""]]


def test_marks_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = str(tmp_path / "marks")
    trees: list[dict[bytes, list[tuple[bytes, tuple[int, int]]]]] = [
        {b"": []},
        {b"": [(b"a", (1, 2)), (b"b\n", (3, 2**63))], b"empty": [], b"x/y": [(b"\xff", (5, 6))]},
    ]
    for folders in trees:
        marks = spare.Marks("0" * 64)
        for folder, entries in folders.items():
            marks.put(folder, entries, (7, 8))
        marks.write(path)
        spare.Marks.write_top(path, (9, 10))
        again = spare.Marks.read(path)
        assert (again.digest, again.top) == ("0" * 64, (9, 10))
        assert (again.names, again.entries, again.folders) == (marks.names, marks.entries, marks.folders)
        assert spare.digest_in(path) == "0" * 64
