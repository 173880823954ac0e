"""A manifest says the same thing in one way only, and what it does not say is refused."""

from __future__ import annotations

import hashlib
import time

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kit.remote.ship.porter import manifest
from kit.remote.ship.porter.delta import Delta, between, merge
from kit.remote.ship.porter.manifest import EMPTY, HEADER, BadManifest, Entry, parse, write
from tests.fakes import launcher

snapshot = launcher.load("kitrun.snapshot")

A, B, C = (hashlib.sha256(letter).hexdigest() for letter in (b"a", b"b", b"c"))


def file(path: bytes, digest: str = A, size: int = 1, mode: int = 0o644) -> Entry:
    return Entry("f", mode, digest, size, path, b"")


def link(path: bytes, target: bytes) -> Entry:
    return Entry("l", 0o777, "", 0, path, target)


def folder(path: bytes) -> Entry:
    return Entry("d", 0o755, "", 0, path, b"")


def lines(*text: bytes) -> bytes:
    return HEADER + b"".join(line.replace(b" ", b"\t") + b"\n" for line in text)


# Few letters, so that paths share folders, and the letters that are escaped.
parts = st.text("ab.\\\t\n\r é", min_size=1, max_size=4).map(lambda text: text.encode())
paths = st.lists(parts.filter(lambda part: part not in (b".", b"..")), min_size=1, max_size=4).map(b"/".join)
contents = st.sampled_from([(A, 1), (B, 0), (C, 7)])


@st.composite
def trees(draw: st.DrawFn) -> list[Entry]:
    """Return entries that can be in one folder."""
    entries: dict[bytes, Entry] = {}
    for path in draw(st.lists(paths, max_size=12)):
        inside = any(other.startswith(path + b"/") or path.startswith(other + b"/") for other in entries)
        if inside or path in entries:
            continue
        kind = draw(st.sampled_from("fffld"))
        if kind == "f":
            entries[path] = file(path, *draw(contents), draw(st.sampled_from([0o644, 0o755])))
        elif kind == "l":
            # A name beside the link never leads out, whatever other links there are.
            entries[path] = link(path, draw(parts.filter(lambda part: part != b"..")))
        else:
            entries[path] = folder(path)
    return list(entries.values())


@given(trees())
def test_entries_come_out_as_they_went_in_sorted_by_path(entries: list[Entry]) -> None:
    assert parse(write(entries)) == sorted(entries, key=lambda entry: entry.path)
    assert write(entries) == write(entries[::-1])


@given(trees(), trees())
def test_a_delta_turns_the_base_into_the_new_manifest(old: list[Entry], new: list[Entry]) -> None:
    base, wanted = write(old), write(new)
    difference = between(base, wanted)
    assert merge(base, difference.removed, difference.added) == wanted
    missing = {(entry.digest, entry.size) for entry in new if entry.digest} - {
        (entry.digest, entry.size) for entry in old if entry.digest
    }
    assert difference.objects == sorted(missing)


@given(trees(), trees())
def test_what_a_node_sees_as_different_are_the_lines_that_one_lacks(old: list[Entry], new: list[Entry]) -> None:
    texts = [write(old), write(new)]
    before, after = (Snapshotted(text) for text in texts)
    lines, others = (set(text.split(b"\n")) for text in texts)
    gone, added = before.difference(after)
    assert (sorted(gone), sorted(added)) == (sorted(lines - others), sorted(others - lines))
    assert (before.count, after.count) == (len(old), len(new))


class Snapshotted(snapshot.Snapshot):  # type: ignore[name-defined,misc]
    """A snapshot of a node with this manifest, without a store."""

    def __init__(self, text: bytes) -> None:
        self._text = text


@given(trees(), st.data())
def test_a_small_change_gives_a_small_delta(entries: list[Entry], data: st.DataObject) -> None:
    assume(entries)
    changed = data.draw(st.sampled_from(entries))
    after = [file(entry.path, "d" * 64, 9) if entry is changed else entry for entry in entries]
    path = manifest.escape(changed.path)
    line = manifest.file_line(0o644, "d" * 64, 9, changed.path)
    assert between(write(entries), write(after)) == Delta([path], [line], [("d" * 64, 9)])


@given(st.binary())
def test_a_path_is_escaped_on_one_line_and_comes_back(path: bytes) -> None:
    text = manifest.escape(path)
    assert not set(text) & set(b"\t\n\r")
    assert manifest.unescape(text) == path


@given(trees(), st.data())
def test_bytes_that_parse_are_what_their_entries_give(entries: list[Entry], data: st.DataObject) -> None:
    text = bytearray(write(entries))
    at = data.draw(st.integers(0, len(text) - 1))
    text[at] = data.draw(st.integers(0, 255))
    try:
        changed = parse(bytes(text))
    except BadManifest:
        return
    assert write(changed) == bytes(text)


def test_the_format() -> None:
    entries = [link(b"run", b"bin/run.sh"), file(b"bin/run.sh", B, 12, 0o755), folder(b"out\tput"), file(b"a", size=0)]
    assert write(entries) == (
        b"kit-code 1\n"
        b"f\t644\t%s\t0\ta\n" % A.encode() + b"f\t755\t%s\t12\tbin/run.sh\n" % B.encode() + b"d\t755\t-\t0\tout\\tput\n"
        b"l\t777\t-\t0\trun\tbin/run.sh\n"
    )
    assert manifest.digest(EMPTY) == hashlib.sha256(b"kit-code 1\n").hexdigest()
    assert parse(EMPTY) == []


def test_paths_are_sorted_by_what_they_mean() -> None:
    # TAB comes before a letter, and the backslash that it is written with comes after capitals.
    assert [entry.path for entry in parse(write([file(b"aX"), file(b"a\tb")]))] == [b"a\tb", b"aX"]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (b"", "first line"),
        (b"kit-code 2\n", "first line"),
        (b"kit-code 1", "first line"),
        (HEADER + b"d\t755\t-\t0\ta", "line 2 is cut"),
        (lines(b"d 755 - 0 a", b""), "line 3 is not an entry"),
        (lines(b"x 755 - 0 a"), "line 2 is not an entry: x"),
        (lines(b"d 700 - 0 a"), "not an entry"),
        (lines(b"d 755 - 1 a"), "not an entry"),
        (lines(b"d 755 - 0"), "not an entry"),
        (lines(b"f 777 %s 1 a" % A.encode()), "not an entry"),
        (lines(b"f 644 %s 1 a" % A[1:].encode()), "not an entry"),
        (lines(b"f 644 %s 1 a" % A.upper().encode()), "not an entry"),
        (lines(b"f 644 - 1 a"), "not an entry"),
        (lines(b"f 644 %s -1 a" % A.encode()), "not an entry"),
        (lines(b"f 644 %s 01 a" % A.encode()), "not an entry"),
        (lines(b"f 644 %s 1k a" % A.encode()), "not an entry"),
        (lines(b"f 644 %s %s a" % (A.encode(), b"9" * 19)), "not an entry"),
        (lines(b"f 644 %s 1 a b" % A.encode()), "not an entry"),
        (lines(b"l 777 - 0 a"), "not an entry"),
        (lines(b"d 755 - 0 a\\x"), "not an entry"),
        (lines(b"d 755 - 0 a\\"), "not an entry"),
        (lines(b"d 755 - 0 a\r"), "not an entry"),
        (lines(b"d 755 - 0 a\0"), "not an entry"),
        (lines(b"d 755 - 0 "), "not a path below the folder"),
        (lines(b"d 755 - 0 /etc"), "not a path below the folder: /etc"),
        (lines(b"d 755 - 0 a//b"), "not a path below the folder"),
        (lines(b"d 755 - 0 a/"), "not a path below the folder"),
        (lines(b"d 755 - 0 ./a"), "not a path below the folder"),
        (lines(b"d 755 - 0 .."), "not a path below the folder"),
        (lines(b"d 755 - 0 a/../../b"), "not a path below the folder: a/../../b"),
        (lines(b"d 755 - 0 b", b"d 755 - 0 a"), "a is out of order"),
        (lines(b"d 755 - 0 a", b"l 777 - 0 a b"), "a is there twice"),
        (lines(b"l 777 - 0 a b", b"d 755 - 0 a-", b"d 755 - 0 a/b/c"), "below a,"),
        (lines(b"d 755 - 0 a", b"d 755 - 0 a/b"), "below a,"),
        (lines(b"f 644 %s 1 a" % A.encode(), b"f 644 %s 2 b" % A.encode()), "b has another size"),
        (lines(b"l 777 - 0 a "), "has no target"),
        (lines(b"l 777 - 0 a /etc/passwd"), "a leads out of the folder: /etc/passwd"),
        (lines(b"l 777 - 0 a ../b"), "a leads out of the folder"),
        (lines(b"l 777 - 0 a/b c/../../../d"), "a/b leads out of the folder"),
    ],
)  # fmt: skip
def test_what_is_not_a_manifest_is_refused_with_its_line(text: bytes, wrong: str) -> None:
    with pytest.raises(BadManifest, match=wrong):
        parse(text)


def test_a_message_is_one_printable_line() -> None:
    with pytest.raises(BadManifest) as refused:
        parse(lines(b"d 755 - 0 \x1b[31m\xff/.."))
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("target", [b"a", b"./a", b"../a", b"../b/c", b"..", b".", b"b", b"missing/../../x"])
def test_a_link_within_the_folder_stays(target: bytes) -> None:
    assert parse(write([link(b"b/c", target)])) == [link(b"b/c", target)]


def test_a_link_is_followed_through_other_links() -> None:
    # By its letters, `out` stays inside. By way of `d/up`, it does not.
    through = [link(b"d/up", b".."), link(b"out", b"d/up/../x")]
    with pytest.raises(BadManifest, match="out leads out of the folder"):
        parse(write(through))
    assert len(parse(write([link(b"d/up", b".."), link(b"in", b"d/up/x")]))) == 2
    assert len(parse(write([link(b"circle", b"circle/circle"), link(b"loop", b"circle")]))) == 2


BASE = write([file(b"a"), file(b"b", B), link(b"l", b"a")])


@pytest.mark.parametrize(
    ("base", "removed", "added", "wrong"),
    [
        (b"", [], [], "first line"),
        (HEADER + b"cut", [], [], "last line is cut"),
        (HEADER + b"what\n", [b"a"], [], "not an entry: what"),
        (BASE, [b"c"], [], "no entry to remove at c"),
        (BASE, [b"z"], [], "no entry to remove at z"),
        (BASE, [b"b", b"a"], [], "a is out of order"),
        (BASE, [b"b", b"b"], [], "b is out of order"),
        (BASE, [], [b"d\t755\t-\t0\ta"], "already has an entry at a"),
        (BASE, [b"b"], [b"d\t755\t-\t0\ta"], "already has an entry at a"),
        (BASE, [], [b"d\t755\t-\t0\tx", b"d\t755\t-\t0\tc"], "c is out of order"),
        (BASE, [], [b"d\t755\t-\t0\tx\nd\t755\t-\t0\ty"], "not an entry"),
    ],
)
def test_changes_that_do_not_fit_the_base_are_refused(
    base: bytes, removed: list[bytes], added: list[bytes], wrong: str
) -> None:
    with pytest.raises(BadManifest, match=wrong):
        merge(base, removed, added)


def test_nothing_changed_is_an_empty_delta() -> None:
    assert between(BASE, BASE) == Delta([], [], [])
    assert merge(BASE, [], []) == BASE


def test_a_renamed_file_needs_no_object() -> None:
    assert between(BASE, write([file(b"a"), file(b"c", B), link(b"l", b"a")])).objects == []


def test_fifty_thousand_entries_are_hashed_and_merged_quickly() -> None:
    entries = [file(b"src/%03d/%05d.py" % (number % 500, number), f"{number:064x}") for number in range(50_000)]
    base, new = write(entries), write([*entries[:-1], entries[-1]._replace(size=2)])
    difference = between(base, new)
    times = []
    for _ in range(3):
        start = time.process_time()
        manifest.digest(merge(base, difference.removed, difference.added))
        times.append(time.process_time() - start)
    # It takes about 20 ms. A merge that reads each line takes more than 100.
    assert min(times) < 0.1
