"""kit_shards and kit_records: data sets by their names, and which rank gets which records of which shards."""

from __future__ import annotations

import io
import itertools
import os
import struct
import tarfile
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import launcher

records = launcher.load("kit_records")
shards = launcher.load("kit_shards")

KINDS = ["tfrecord", "recordio", "webdataset"]
SUFFIX = {"tfrecord": "-00000-of-00001", "recordio": ".rec", "webdataset": ".tar"}


def write(kind: str, path: Path, sizes: list[int]) -> None:
    """Write a shard whose images have these sizes: a JPEG's first bytes, a number, and nothing of interest."""
    with path.open("wb") as file:
        for number, size in enumerate(sizes):
            image = b"\xff\xd8" + struct.pack("<I", number) + b"x" * size
            if kind == "tfrecord":
                file.write(records.tfrecord(image, number))
            elif kind == "recordio":
                file.write(records.recordio(image, number, number))
            else:
                file.write(records.webdataset(image, number, number, "jpg"))
        if kind == "webdataset":
            file.write(records.TAR_END)


def found(folder: Path, kind: str) -> Any:
    return shards.find([str(folder)], kind, {})


def parts(dealt: Any, size: int) -> list[list[tuple[str, int]]]:
    """The records of each rank, as (file, number in it)."""
    every, seen = [], Counter[str]()
    for rank in range(size):
        pieces = shards.deal(dealt, rank, size)
        # A reader of RecordIO finds the place by itself: as many records later as the ranks before have.
        first = {piece.path: seen[piece.path] if dealt.kind == "recordio" else piece.skip for piece in pieces}
        every.append([(piece.path, first[piece.path] + place) for piece in pieces for place in range(piece.size)])
        seen.update({piece.path: piece.size for piece in pieces})
    return every


@given(
    st.sampled_from(KINDS),
    st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=12), min_size=1, max_size=5),
    st.integers(1, 9),
    st.integers(1, 5),
)
def test_every_record_goes_once_and_no_rank_waits(kind: str, sizes: list[list[int]], ranks: int, batch: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for number, images in enumerate(sizes):
            write(kind, Path(folder) / f"{number}{SUFFIX[kind]}", images)
        dealt = found(Path(folder), kind)
        try:
            every = parts(dealt, ranks)
        except shards.DataProblem as error:
            assert "too few records" in str(error)  # noqa: PT017
            # As good as equal records could not be dealt either.
            assert sum(map(len, sizes)) < 3 * ranks
            return
    whole = [(path, place) for path, images in zip(dealt.paths, sizes, strict=True) for place in range(len(images))]
    assert list(itertools.chain(*every)) == whole
    counts = [len(part) for part in every]
    steps = shards.steps(counts, batch)
    # All ranks take the same steps, all their records fit in them, and one step less would leave some out.
    assert all(count <= steps * batch for count in counts)
    assert max(counts) > (steps - 1) * batch


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=40), st.integers(1, 64))
def test_borders_are_in_order_and_parts_alike(sizes: list[int], count: int) -> None:
    for cuts in (shards.borders(sizes, count), shards.native_borders(sizes, count)):
        assert cuts == sorted(cuts)
        assert (len(cuts), cuts[0], cuts[-1]) == (count + 1, 0, sum(sizes))
    exact = shards.borders(sizes, count, snap=0)
    share = sum(sizes) / count
    assert all(abs(cut - share * part) <= 1 for part, cut in enumerate(exact))
    snapped = shards.borders(sizes, count)
    assert all(abs(cut - before) <= shards.SNAP * share for cut, before in zip(snapped, exact, strict=True))


def test_a_border_near_that_of_files_moves_there() -> None:
    """So that no rank reads all of a file for its last record."""
    assert shards.borders([1000, 1010, 990, 1000], 4) == [0, 1000, 2010, 3000, 4000]
    assert shards.borders([1000, 1010, 990, 1000], 4, snap=0) == [0, 1000, 2000, 3000, 4000]
    # Too far for that: ranks share the file.
    assert shards.borders([900, 300], 3) == [0, 400, 800, 1200]


def test_native_borders_are_those_of_dmlc() -> None:
    # 103 bytes for 4 parts: 26 each, and the next multiple of 4.
    assert shards.native_borders([100, 3], 4) == [0, 28, 56, 84, 103]


def test_fewer_files_than_ranks_and_fewer_images_than_ranks(tmp_path: Path) -> None:
    write("tfrecord", tmp_path / "one-00000-of-00001", [10] * 8)
    assert [len(part) for part in parts(found(tmp_path, "tfrecord"), 4)] == [2, 2, 2, 2]
    with pytest.raises(shards.DataProblem, match="the data has too few records for 9 ranks; use fewer ranks"):
        parts(found(tmp_path, "tfrecord"), 9)


def test_split_is_dealt_among_the_ranks_of_a_host(tmp_path: Path) -> None:
    write("recordio", tmp_path / "a.rec", [5] * 6)
    environ = {"KIT_DATA_IMAGE_NET": str(tmp_path), "KIT_DATA_IMAGE_NET_SPLIT": "hosts"}
    for word in ("image-net", str(tmp_path), str(tmp_path / "a.rec"), "image-net/*.rec"):
        assert shards.find([word], "recordio", environ).split, word
    dealt = shards.find(["image-net"], "recordio", environ)
    with pytest.raises(shards.DataProblem, match=r"this host's part .* for 7 ranks; use fewer ranks on each host"):
        shards.deal(dealt, 6, 7)
    del environ["KIT_DATA_IMAGE_NET_SPLIT"]
    assert not shards.find(["image-net"], "recordio", environ).split


def test_only_training_images_if_a_data_set_has_others_too(tmp_path: Path) -> None:
    for name in ("train-00000-of-00002", "train-00001-of-00002", "validation-00000-of-00001", "notes.txt"):
        write("tfrecord", tmp_path / name, [1])
    environ = {"KIT_DATA_A": str(tmp_path)}
    assert [Path(path).name for path in shards.find(["a"], "tfrecord", environ).paths] == [
        "train-00000-of-00002",
        "train-00001-of-00002",
    ]
    assert len(shards.find(["a/*-of-*"], "tfrecord", environ).paths) == 3
    for name in ("train", "val"):
        (tmp_path / "b" / name).mkdir(parents=True)
        write("webdataset", tmp_path / "b" / name / "0.tar", [1])
    assert shards.find([str(tmp_path / "b")], "webdataset", {}).paths == (str(tmp_path / "b/train/0.tar"),)
    assert shards.find(["a/b/val"], "webdataset", environ).paths == (str(tmp_path / "b/val/0.tar"),)


@pytest.mark.parametrize(
    ("word", "says"),
    [
        (
            "imgnet",
            "--data imgnet: this node has no data set and no file of that name; its data sets: empty, image-net.",
        ),
        ("empty", "--data empty: nothing of it is on this host; to bring it: kit data stage empty"),
        ("empty/*.tar", "--data empty/*.tar: nothing of it is on this host; to bring it: kit data stage empty"),
        ("/no/such/*", "--data /no/such/*: no file matches. Paths are the container's"),
        ("image-net", "has no WebDataset shards (NAME.tar); it has RecordIO files, which mxnet_benchmark reads"),
        ("image-net/*.tar", "--data image-net/*.tar: no file matches"),
    ],
)
def test_what_is_not_there_is_named_with_what_to_do(tmp_path: Path, word: str, says: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    write("recordio", tmp_path / "full" / "a.rec", [1])
    environ = {"KIT_DATA_IMAGE_NET": str(tmp_path / "full"), "KIT_DATA_EMPTY": str(tmp_path / "empty")}
    environ |= {"KIT_DATA_EMPTY_SPLIT": "hosts", "KIT_COMPRESSION": "none"}
    with pytest.raises(shards.DataProblem) as refused:
        shards.find([word], "webdataset", environ)
    assert says in str(refused.value)


def test_ranks_that_see_other_files_are_named() -> None:
    assert shards.disagreement([(3, 100), (3, 100)]) == ""
    assert shards.disagreement([(3, 100), (3, 100), (3, 90)]) == (
        "--data: the ranks do not see the same files (rank 0: 3 files, 100 bytes, rank 2: 3 files, 90 bytes)"
    )


def damaged(path: Path, offset: int, byte: bytes = b"\xff") -> None:
    text = bytearray(path.read_bytes())
    text[offset : offset + 1] = byte
    path.write_bytes(text)


@pytest.mark.parametrize("kind", KINDS)
def test_a_broken_record_is_named_with_its_file_and_place(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"a{SUFFIX[kind]}"
    write(kind, path, [700] * 3)
    starts = [record.offset if kind == "webdataset" else record for record in records.records(kind, str(path))]
    assert len(starts) == 3
    damaged(path, starts[1])
    with pytest.raises(records.Broken, match=f"a{SUFFIX[kind]} is broken at byte {starts[1]}: no "):
        list(records.records(kind, str(path)))
    with pytest.raises(shards.DataProblem, match=f"--data: .* is broken at byte {starts[1]}"):
        shards.deal(found(tmp_path, kind), 0, 1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kept", [0.4, 0.5, 0.75])
def test_a_file_that_ends_too_soon_is_named(tmp_path: Path, kind: str, kept: float) -> None:
    path = tmp_path / f"a{SUFFIX[kind]}"
    write(kind, path, [700] * 3)
    os.truncate(path, int(path.stat().st_size * kept))
    with pytest.raises(records.Broken, match=r"is broken at byte \d+: (the file ends within|no )"):
        list(records.records(kind, str(path)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_of_another_kind_is_no_shard(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"kit" * 1000)
    with pytest.raises(records.Broken, match="is broken at byte 0: no "):
        list(records.records(kind, str(path)))


def test_damaged_images_of_tfrecords_are_found_by_their_checksums(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}-00000-of-00001" for number in range(3)]
    for path in paths:
        write("tfrecord", path, [50, 60])
    second = list(records.records("tfrecord", str(paths[0])))[1]
    write("tfrecord", paths[2], [40, 60])
    damaged(paths[1], second + 30)
    # TensorFlow names where the record begins, or its body.
    for place in (second, second + 12):
        assert records.broken_at([str(path) for path in paths], place) == [str(paths[1])]
    assert records.broken_at([str(path) for path in paths], second + 3) == []


def test_samples_of_webdataset_are_image_and_label_whatever_is_beside_them(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    members = [
        *(("./n01/one.json", b"{}"), ("./n01/one.JPEG", b"1111"), ("./n01/one.cls", b"7")),
        *(("two.seg.png", b"mask"), ("two.cls", b"8")),
        *(("3.png", b"333"), ("3.cls", b"9"), ("README", b"no key")),
        (f"{'long' * 60}.jpg", b"4"),
        (f"{'long' * 60}.cls", b"10"),
    ]
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(_folder("n01"))
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    text = path.read_bytes()
    samples = list(records.samples(str(path)))
    # Two has a mask and no image.
    assert [sample.key for sample in samples] == ["./n01/one", "3", "long" * 60]
    contents = [[text[start : start + size] for start, size in (s.image, s.label)] for s in samples]
    assert contents == [[b"1111", b"7"], [b"333", b"9"], [b"4", b"10"]]


def _folder(name: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type = tarfile.DIRTYPE
    return member


def test_checksums_are_those_of_tensorflow() -> None:
    # From RFC 3720, B.4: 32 bytes of zeros have the CRC-32C 0x8A9136AA.
    crc = 0x8A9136AA
    assert records.masked_crc(bytes(32)) == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def test_a_record_of_recordio_in_parts_counts_once(tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    text = bytes(24) + b"\xff\xd8image!"
    heads = [(0, 32), (1, 32), (2, 8), (3, 4), (0, 29)]
    body = [struct.pack("<II", 0xCED7230A, kind << 29 | size) + (text * 2)[: -(-size // 4) * 4] for kind, size in heads]
    path.write_bytes(b"".join(body))
    assert list(records.records("recordio", str(path))) == [0, 40, 108]


def test_a_record_of_recordio_without_an_image_is_named(tmp_path: Path) -> None:
    """MXNet's reader divides by the width of such an image, 0, and dies by a signal."""
    path = tmp_path / "a.rec"
    write("recordio", path, [50, 50])
    second = list(records.records("recordio", str(path)))[1]
    damaged(path, second + 32)
    assert list(records.records("recordio", str(path))) == [0, second]
    damaged(path, second + 32, b"?")
    with pytest.raises(records.Broken, match=f"byte {second}: the record has no JPEG, PNG or other image"):
        list(records.records("recordio", str(path)))


def test_a_record_of_recordio_may_have_several_labels(tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    for labels in (3, 1000):
        body = struct.pack("<IfQQ", labels, 0, 0, 0) + bytes(4 * labels) + b"\x89PNG"
        path.write_bytes(struct.pack("<II", 0xCED7230A, len(body)) + body)
        assert list(records.records("recordio", str(path))) == [0]


def test_empty_files_have_no_record(tmp_path: Path) -> None:
    (tmp_path / "a.rec").touch()
    with pytest.raises(shards.DataProblem, match=r"the files are empty, such as .*/a\.rec"):
        shards.deal(found(tmp_path, "recordio"), 0, 1)


def test_a_record_of_recordio_is_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever part of the file is read at a time."""
    path = tmp_path / "a.rec"
    write("recordio", path, [0, 50, 3, 200])
    # The second part of a record, and the magic number where no record can begin.
    with path.open("ab") as file:
        file.write(struct.pack("<II", 0xCED7230A, 3 << 29 | 8) + b"??" + struct.pack("<I", 0xCED7230A) + b"??")
    whole = list(records.records("recordio", str(path)))
    size = path.stat().st_size
    for searched in (8, 12, 64, 1 << 16):
        monkeypatch.setattr(records, "SEARCHED", searched)
        for begin in range(1, size + 9):
            found = list(records.records("recordio", str(path), begin))
            assert found == [start for start in whole if start >= begin], (searched, begin)
