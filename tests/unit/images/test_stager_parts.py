"""The pure parts of the stager: what is missing where, who gets which part, room, the manifest, the folder, events."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import launcher

plan, manifest, disk, room, crew, events, wire, journal, placing = (
    launcher.load(f"kitdata.{name}")
    for name in ("plan", "manifest", "disk", "room", "crew", "events", "wire", "journal", "placing")
)
source: Any = launcher.load("kitdata.source")
Entry, Have = source.Entry, plan.Have
EXTENT = manifest.EXTENT
MB = 1 << 20


def entries(*sizes: int) -> list[Any]:
    return [Entry(f"f{number:04}", size, 10**18) for number, size in enumerate(sizes)]


def nothing() -> Any:
    return Have(frozenset(), {})


# What is missing where.


def test_small_files_share_a_piece_and_large_ones_have_several() -> None:
    step = plan.plan(entries(MB, MB, 9 * MB, 0, 3 * MB), [nothing()], [1] * 5)
    assert [piece.parts for piece in step.pieces] == [
        ((0, 0), (1, 0)), ((2, 0),), ((2, 1),), ((2, 2), (3, 0), (4, 0)),
    ]  # fmt: skip
    assert (step.new, step.read, step.need, step.have) == (5, 14 * MB, (14 * MB,), (0,))


def test_what_a_host_has_comes_from_it_and_not_from_the_source() -> None:
    haves = [Have(frozenset([0]), {1: frozenset([1])}), nothing()]
    step = plan.plan(entries(10, 9 * MB), haves, [3, 3])
    by_parts = {piece.parts: (piece.need, piece.have) for piece in step.pieces}
    assert by_parts == {((0, 0),): (2, 1), ((1, 0),): (3, 0), ((1, 1),): (2, 1), ((1, 2),): (3, 0)}
    assert step.read == 5 * MB
    assert step.need == (5 * MB, 9 * MB + 10)


@st.composite
def stagings(draw: Any) -> Any:
    sizes = draw(st.lists(st.sampled_from([0, 1, 1000, EXTENT - 1, EXTENT, EXTENT + 1, 3 * EXTENT]), max_size=12))
    count = draw(st.integers(1, 4))
    listed = entries(*sizes)
    haves = []
    for _ in range(count):
        whole = draw(st.sets(st.integers(0, len(sizes) - 1))) if sizes else set()
        parts = {
            number: frozenset(draw(st.sets(st.integers(0, manifest.extents(size) - 1), min_size=1)))
            for number, size in enumerate(sizes)
            if number not in whole and size > EXTENT and draw(st.booleans())
        }
        haves.append(Have(frozenset(whole), parts))
    owners = [draw(st.integers(0, (1 << count) - 1)) for _ in sizes]
    return listed, haves, owners


@given(stagings())
def test_pieces_bring_exactly_what_each_host_lacks(staging: Any) -> None:
    listed, haves, owners = staging
    step = plan.plan(listed, haves, owners)
    for host, have in enumerate(haves):
        lacks = {
            (number, part)
            for number, entry in enumerate(listed)
            for part in range(manifest.extents(entry.size))
            if owners[number] >> host & 1 and number not in have.whole and part not in have.parts.get(number, ())
        }
        brought = [pair for piece in step.pieces if piece.need >> host & 1 for pair in piece.parts]
        assert sorted(brought) == sorted(lacks)
        assert step.files[host] == len({number for number, _ in lacks})
        for piece in step.pieces:
            if piece.have >> host & 1:
                assert all(n in have.whole or part in have.parts.get(n, ()) for n, part in piece.parts)
    for piece in step.pieces:
        assert piece.size == sum(manifest.extent(listed[n].size, part)[1] for n, part in piece.parts) <= EXTENT
        assert not piece.need & piece.have


# Who gets which part.


@given(st.lists(st.integers(0, 1000), max_size=60), st.integers(1, 6), st.data())
def test_a_split_is_even_and_stays(sizes: list[int], hosts: int, data: Any) -> None:
    listed = entries(*sizes)
    holders = [data.draw(st.sampled_from([0, 0, *(1 << host for host in range(hosts))])) for _ in sizes]
    result = plan.split(listed, hosts, holders)
    load = [sum(size for size, owner in zip(sizes, result, strict=True) if owner == host) for host in range(hosts)]
    assert max(load) - min(load) <= max(sizes, default=0) + 0.02 * sum(sizes) / hosts
    # The second time nothing moves.
    assert plan.split(listed, hosts, [1 << owner for owner in result]) == result


def test_a_new_host_takes_files_from_the_others_and_no_more_than_it_must() -> None:
    listed = entries(*[100] * 12)
    before = plan.split(listed, 2, [0] * 12)
    after = plan.split(listed, 3, [1 << owner for owner in before])
    assert sum(one != other for one, other in zip(before, after, strict=True)) == 4


def test_equal_files_are_spread_by_number_also_where_they_are_empty() -> None:
    assert sorted(plan.split(entries(*[0] * 8), 4, [0] * 8)) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_summary_names_no_more_hosts_than_it_has_room_for() -> None:
    assert plan.among(["gpu2", "gpu1"]) == "gpu1 gpu2"
    assert plan.among("h" for _ in range(plan.MOST_NAMES)) == ""


# Room.


def step_of(*need: int, have: tuple[int, ...] = (0, 0), files: tuple[int, ...] = (1, 1)) -> Any:
    return plan.Plan((), sum(files), sum(need), need, have, files)


@pytest.mark.parametrize(
    ("step", "stage", "most", "kind"),
    [
        (step_of(90, 90), "disk", None, "room"),
        (step_of(0, 10**6, files=(0, 0)), "disk", None, ""),
        # size: allows it, and /dev/shm is full.
        (step_of(10, 90), "ram", 10**9, "shm"),
        (step_of(10, 10, have=(10, 10)), "ram", 19, "memory"),
        (step_of(0, 0, have=(10, 20)), "ram", 20, ""),
        (step_of(1, 1, files=(1, 200)), "disk", None, "room"),
        # Of many new files, this host lacks few.
        (step_of(1, 1, files=(10**6, 1)), "disk", None, ""),
    ],
)
def test_room_is_for_what_must_come(step: Any, stage: str, most: int | None, kind: str) -> None:
    rooms = {0: room.Room(10**10, 10**7, 0), 1: room.Room(80 if kind != "" else 10**7, 100, 0)}
    if not kind:
        room.check(step, rooms, ["a", "b"], stage, most)
        return
    with pytest.raises(crew.Failed) as raised:
        room.check(step, rooms, ["a", "b"], stage, most)
    assert raised.value.kind == kind


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (1500, "1.5 kB"), (10**12, "1.0 TB"), (10**16, "10000.0 TB")],
)
def test_amounts_for_people(count: int, text: str) -> None:
    assert room.amount(count) == text


# The folder of a host.


def staged(folder: Any, listed: list[Any], content: dict[str, bytes]) -> None:
    """Write all that is missing, and finish."""
    write(folder, listed, content)
    folder.finish(range(len(listed)), {"id": manifest.listing_id(listed), "source": "s", "split": "none"})


def write(folder: Any, listed: list[Any], content: dict[str, bytes], most: int = 10**6) -> None:
    """Write the first `most` extents that are missing."""
    for number, entry in enumerate(listed):
        for part in range(manifest.extents(entry.size)):
            if most and not folder.has([(number, part)]):
                offset, length = manifest.extent(entry.size, part)
                data = content[entry.path][offset : offset + length]
                folder.write([(number, part)], memoryview(data), [hashlib.sha256(data).digest()])
                most -= 1


def some_files() -> tuple[list[Any], dict[str, bytes]]:
    content = {"a": b"aa", "d/b": os.urandom(EXTENT + 5), "e": b""}
    return [Entry(path, len(data), 10**18 + 7) for path, data in sorted(content.items())], content


def seen(folder: Path) -> dict[str, bytes]:
    files = folder / "files"
    return {str(path.relative_to(files)): path.read_bytes() for path in files.rglob("*") if path.is_file()}


def test_files_appear_when_all_are_complete(tmp_path: Path) -> None:
    listed, content = some_files()
    folder = disk.Folder(str(tmp_path))
    assert folder.expect(listed) == nothing()
    write(folder, listed, content)
    assert seen(tmp_path) == {}
    folder.finish(range(3), {"id": "x", "source": "s", "split": "none"})
    assert seen(tmp_path) == content
    assert folder.is_staged("x", "s")
    assert not folder.is_staged("y", "s")
    assert manifest.read(str(tmp_path)).files["d/b"].sums[1] == hashlib.sha256(content["d/b"][EXTENT:]).digest()
    (tmp_path / "files" / "e").write_text("changed")
    assert not folder.is_staged("x", "s")


def test_a_mark_that_holds_spares_a_look_at_the_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed, content = some_files()
    folder = disk.Folder(str(tmp_path))
    folder.expect(listed)
    staged(folder, listed, content)
    id_ = manifest.listing_id(listed)
    with monkeypatch.context() as patch:
        patch.setattr(manifest, "rows", lambda _: None)
        assert folder.is_staged(id_, "s")
        # A change of the rights does not change the bytes, and so the list decides.
        (tmp_path / "files/a").chmod(0o600)
        assert not folder.is_staged(id_, "s")
    assert folder.is_staged(id_, "s")
    with monkeypatch.context() as patch:
        # And a new mark is there.
        patch.setattr(manifest, "rows", lambda _: None)
        folder.look()
        assert folder.is_staged(id_, "s")
    # No mark says that bytes are right which were read and were wrong.
    manifest.spoil(str(tmp_path), ["d/b"])
    assert not folder.is_staged(id_, "s")
    assert folder.expect(listed).whole == {0, 2}


def test_the_look_before_the_question_sees_what_changed(tmp_path: Path) -> None:
    listed, content = some_files()
    folder = disk.Folder(str(tmp_path))
    folder.expect(listed)
    staged(folder, listed, content)
    (tmp_path / "files/a").unlink()
    folder.look()
    assert not folder.is_staged(manifest.listing_id(listed), "s")
    # Neither a mark stays that is not true, nor one that was only begun.
    assert not list(tmp_path.glob("unchanged-since*"))


@pytest.mark.parametrize("split", ["none", "hosts"])
def test_a_file_that_changes_while_others_come_is_noticed(tmp_path: Path, split: str) -> None:
    listed, content = some_files()
    folder = disk.Folder(str(tmp_path))
    folder.expect(listed[1:])
    staged(folder, listed[1:], content)
    folder.expect(listed)
    write(folder, listed, content)
    (tmp_path / "files/e").write_text("of a node")
    summary = {"id": manifest.listing_id(listed), "source": "s", "split": split}
    folder.finish(range(3), summary)
    assert not folder.is_staged(summary["id"], "s")
    assert not list(tmp_path.glob("unchanged-since*"))
    assert folder.expect(listed).whole == {0, 1}


@pytest.mark.parametrize("most", [1, 2, 3, 4])
@pytest.mark.parametrize("cut", [False, True])
def test_an_unfinished_folder_goes_on_where_it_was(tmp_path: Path, most: int, cut: bool) -> None:
    listed, content = some_files()
    folder = disk.Folder(str(tmp_path))
    folder.expect(listed)
    write(folder, listed, content, most)
    folder._close_journal()
    done = tmp_path / "coming" / "done"
    if cut:
        done.write_bytes(done.read_bytes()[:-3])
    have = disk.Folder(str(tmp_path)).expect(listed)
    here = sum(manifest.extents(listed[number].size) for number in have.whole) + sum(map(len, have.parts.values()))
    assert here == most - cut
    again = disk.Folder(str(tmp_path))
    again.expect(listed)
    staged(again, listed, content)
    assert seen(tmp_path) == content


def test_after_a_restart_of_the_machine_only_right_bytes_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed, content = some_files()
    folder = disk.Folder(str(tmp_path))
    folder.expect(listed)
    write(folder, listed, content)
    folder._close_journal()
    part = tmp_path / "coming" / manifest.key(listed[1])
    with part.open("r+b") as file:
        file.write(b"lost")
    assert disk.Folder(str(tmp_path)).expect(listed).whole == {0, 1, 2}
    monkeypatch.setattr(journal, "boot", lambda: "another")
    have = disk.Folder(str(tmp_path)).expect(listed)
    assert (have.whole, have.parts) == ({0, 2}, {1: {1}})


@pytest.mark.parametrize("at", range(4))
def test_a_kill_while_files_get_their_names_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    listed, content = some_files()
    content |= {"f/c": b"c", "f/g/h": b"h", "i": b"i"}
    listed += [Entry(path, len(content[path]), 10**18 + 7) for path in ("f/c", "f/g/h", "i")]
    folder = disk.Folder(str(tmp_path))
    folder.expect(listed)
    write(folder, listed, content)
    rename, count = os.rename, [0]

    def killed(part: str, path: str) -> None:
        if count[0] == at:
            raise KeyboardInterrupt
        count[0] += 1
        rename(part, path)

    with monkeypatch.context() as patch:
        patch.setattr(placing.os, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            folder.finish(range(6), {"id": "x"})
    again = disk.Folder(str(tmp_path))
    assert again.expect(listed).whole == set(range(6))
    again.finish(range(6), {"id": "x"})
    assert seen(tmp_path) == content


def test_a_new_folder_gets_its_name_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = {f"class{at // 10}/{at}": b"%d" % at for at in range(50)}
    listed = [Entry(path, len(data), 10**18) for path, data in content.items()]
    folder = disk.Folder(str(tmp_path))
    rename, names = os.rename, []
    monkeypatch.setattr(placing.os, "rename", lambda part, path: (names.append(path), rename(part, path)))
    folder.expect(listed)
    staged(folder, listed, content)
    assert {Path(name).name for name in names if "/files/" in name} == {f"class{at}" for at in range(5)}
    # The next version has one more file in a folder that is there, and another in a new one.
    names.clear()
    content |= {"class0/more": b"1", "other/more": b"2"}
    listed += [Entry(path, 1, 10**18) for path in ("class0/more", "other/more")]
    folder.expect(listed)
    staged(folder, listed, content)
    assert {str(Path(name).relative_to(tmp_path / "files")) for name in names if "/files/" in name} == {
        "class0/more",
        "other",
    }
    assert seen(tmp_path) == content
    assert all(path.stat().st_mode & 0o777 == 0o755 for path in (tmp_path / "files").rglob("*") if path.is_dir())


def test_what_another_host_must_have_gets_no_name_here(tmp_path: Path) -> None:
    listed, content = some_files()
    folder = disk.Folder(str(tmp_path))
    folder.expect(listed)
    write(folder, listed, content)
    folder.finish([1], {"id": "x"})
    assert seen(tmp_path) == {"d/b": content["d/b"]}


def test_a_file_below_many_folders_has_a_key(tmp_path: Path) -> None:
    content = {"d/" * 1500 + "deep": b"1", "flat": b"2"}
    listed = [Entry(path, 1, 10**18) for path in content]
    folder = disk.Folder(str(tmp_path))
    folder.expect(listed)
    write(folder, listed, content)
    assert {path.name for path in (tmp_path / "coming").iterdir()} == {"done", "new", manifest.key(listed[0])}


def test_a_forgotten_small_file_comes_again(tmp_path: Path) -> None:
    listed, content = some_files()
    folder = disk.Folder(str(tmp_path))
    folder.expect(listed)
    write(folder, listed, {**content, "a": b"xx"})
    folder.forget([(0, 0)])
    assert not (tmp_path / "coming" / "new" / "a").exists()
    staged(folder, listed, content)
    assert seen(tmp_path) == content


def test_a_link_that_a_node_made_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "data" / "files").mkdir(parents=True)
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "data" / "files" / "d").symlink_to(outside)
    (tmp_path / "data" / "files" / "a").symlink_to(outside / "file")
    listed, content = some_files()
    folder = disk.Folder(str(tmp_path / "data"))
    folder.expect(listed)
    staged(folder, listed, content)
    assert list(outside.iterdir()) == []
    assert seen(tmp_path / "data") == content


def test_a_file_in_the_place_of_a_folder_and_the_other_way_round(tmp_path: Path) -> None:
    listed, content = some_files()
    folder = disk.Folder(str(tmp_path))
    folder.expect(listed)
    staged(folder, listed, content)
    content = {"a/x": b"1", "d": b"2"}
    listed = [Entry(path, 1, 10**18) for path in content]
    folder.expect(listed)
    assert folder.gone() == 3
    # What a node wrote there is in the way.
    (tmp_path / "files" / "d" / "of a node").touch()
    staged(folder, listed, content)
    assert seen(tmp_path) == content


def test_unfinished_files_of_another_version_are_removed(tmp_path: Path) -> None:
    listed, content = some_files()
    folder = disk.Folder(str(tmp_path))
    folder.expect(listed)
    write(folder, listed, content)
    folder.expect([listed[0], listed[1]._replace(mtime=5)])
    names = {str(path.relative_to(tmp_path / "coming")) for path in (tmp_path / "coming").rglob("*")}
    assert names == {"done", "new", "new/a"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"version": 1}',
        '{"version": 2, "files": []}',
        '{"version": 1, "files": [["../a", 1, 1, "", ["00"]]]}',
        '{"version": 1, "files": [["a", 1, 1, "", ["00"]]]}',
    ],
)
def test_a_manifest_that_is_none_counts_as_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    assert manifest.read(str(tmp_path)) is None


def test_a_source_that_knows_an_md5_at_times_has_the_same_file(tmp_path: Path) -> None:
    one = Entry("a", 1, 1)
    assert manifest.same(one, one._replace(md5="0" * 32))
    assert not manifest.same(one._replace(md5="1" * 32), one._replace(md5="0" * 32))
    assert not manifest.same(one, one._replace(mtime=2))


# Events.


def test_a_late_watcher_gets_the_request_the_plan_and_the_end() -> None:
    all_of_it = events.Events({"id": "x"})
    early = all_of_it.follow()
    assert next(early) == {"request": {"id": "x"}}
    for event in ({"listing": 1}, {"plan": 1}, {"progress": 1}, {"done": 1}, {"progress": 2}):
        all_of_it.add(event)
    assert list(all_of_it.follow()) == [{"request": {"id": "x"}}, {"plan": 1}, {"done": 1}]
    assert list(early) == [{"listing": 1}, {"plan": 1}, {"progress": 1}, {"done": 1}]


# Frames.


@given(st.sets(st.integers(0, 200)))
def test_sets_of_numbers_travel_as_digits(numbers: set[int]) -> None:
    assert wire.numbers(wire.digits(numbers, 201)) == numbers


class Bytes:
    """A connection that has these bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def recv_into(self, view: Any) -> int:
        part, self._data = self._data[: len(view)], self._data[len(view) :]
        view[: len(part)] = part
        return len(part)


@given(st.binary(max_size=60))
def test_bytes_of_a_stranger_are_refused_and_nothing_else(data: bytes) -> None:
    try:
        value = wire.receive(Bytes(data), wire.MOST_HELLO)
    except wire.Broken:
        return
    assert isinstance(value, dict)


def test_a_frame_that_unpacks_to_too_much_is_refused() -> None:
    frame = wire.packed({"x": "0" * (1 << 19)})
    assert len(frame) < wire.MOST_HELLO
    with pytest.raises(wire.Broken):
        wire.receive(Bytes(frame), wire.MOST_HELLO)
    assert wire.receive(Bytes(frame))["x"] == "0" * (1 << 19)


@pytest.mark.parametrize(
    "change",
    [
        {"size": EXTENT + 1},
        {"size": -1},
        {"sums": 10**9},
        {"route": [5]},
        {"route": [1, 1]},
        {"route": "x"},
        {"piece": True},
    ],
)
def test_a_header_of_a_piece_that_cannot_be_is_refused(change: dict[str, Any]) -> None:
    right = {"round": 1, "piece": 0, "size": 5, "sums": 1, "route": [1, 2]}
    wire.Header(right, 4)
    with pytest.raises(wire.Broken):
        wire.Header({**right, **change}, 4)


def test_names_survive_json() -> None:
    path = os.fsdecode(b"caf\xe9")
    row = json.loads(json.dumps([path, 1, 2]))
    assert manifest.entry_of(row).path == path


@given(
    st.lists(
        st.builds(
            Entry,
            st.text("ab/", min_size=1, max_size=6).map(lambda text: f"x/{text.replace('/', 'é')}"),
            st.integers(0, 1 << 50),
            st.integers(-(1 << 62), 1 << 62),
            st.sampled_from(["", "", "d" * 32]),
        ),
        max_size=8,
    )
)
def test_entries_travel_in_short(listed: list[Any]) -> None:
    assert manifest.entries_of(json.loads(json.dumps(manifest.columns(listed)))) == listed


def test_many_entries_are_short() -> None:
    listed = [Entry(f"class{at // 100:04}/{at:06}.jpg", 1024, 10**18 + 10**5 * at) for at in range(5000)]
    assert len(wire.packed({"columns": manifest.columns(listed)})) < len(wire.packed({"rows": listed})) / 2


@pytest.mark.parametrize(
    "columns",
    [
        [[0], ["a"], [1], [1]],
        [[0, 0], ["a"], [1], [1], []],
        [[0], ["a"], [-1], [1], []],
        [[0], ["a"], [1], [1 << 63], []],
        [[0], ["a"], [1], [1], ["no MD5"]],
    ],
)
def test_entries_in_short_that_cannot_be_are_refused(columns: list[Any]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        manifest.entries_of(columns)


def test_a_path_in_short_that_leads_out_is_refused() -> None:
    with pytest.raises(source.SourceError):
        manifest.entries_of([[0, 2], ["a/b", "../../c"], [1, 1], [0, 0], []])


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 2))))
def test_extents_travel_in_short(parts: list[tuple[int, int]]) -> None:
    assert plan.parts_of(json.loads(json.dumps(plan.runs(parts)))) == tuple(parts)


def test_extents_of_small_files_are_one_run() -> None:
    assert plan.runs([(at, 0) for at in range(7, 4000)]) == [[7, 0, 3993]]
    with pytest.raises(ValueError, match="too many"):
        plan.parts_of([[0, 0, 8000], [0, 0, 1 << 40]])
