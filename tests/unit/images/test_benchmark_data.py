"""Real images of the benchmarks without a framework: flags, a rank's share, batches, and the report."""

from __future__ import annotations

import argparse
import io
import itertools
import json
import os
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image

from tests.fakes import launcher

# These first: the programs import them.
records = launcher.load("kit_records")
shards = launcher.load("kit_shards")
benchmark = launcher.load("_benchmark", launcher.BIN)
data = launcher.load("_data", launcher.BIN)
torch_data = launcher.load("_torch_data", launcher.BIN)


def program(name: str, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-B", str(launcher.BIN / name), *words]
    environ = {**os.environ, "PYTHONPATH": str(launcher.LIB)}
    return subprocess.run(argv, capture_output=True, text=True, env=environ, check=False)


def made_up(folder: Path, kind: str, *words: str) -> None:
    done = program("data_shards", "--kind", kind, "--files", "3", "--images", "8", "--size", "20", *words, str(folder))
    assert done.returncode == 0, done.stderr


def options(*words: str, batch_size: int = 4) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    data.add(parser, "what can be read", "0")
    return argparse.Namespace(**vars(parser.parse_args(words)), batch_size=batch_size)


@pytest.mark.parametrize("name", ["tf_benchmark", "mxnet_benchmark", "torch_benchmark"])
def test_epochs_need_real_images(name: str) -> None:
    done = program(name, "--epochs", "2")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"{name}: --epochs: synthetic images have no epochs; name the images with --data\n"


@pytest.mark.parametrize("kind", ["tfrecord", "recordio", "webdataset"])
@pytest.mark.parametrize("form", ["png", "jpeg"])
def test_made_up_shards_are_what_the_benchmarks_read(tmp_path: Path, kind: str, form: str) -> None:
    for name in ("one", "two"):
        made_up(tmp_path / name, kind, "--format", form, "--distinct", "5", "--classes", "3")
    found = shards.find([str(tmp_path / "one")], kind, {})
    assert [piece.size for piece in shards.deal(found, 0, 1)] == [8, 8, 8]
    contents = [{path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("one", "two")]
    assert contents[0] == contents[1]
    text = b"".join(contents[0][name] for name in sorted(contents[0]))
    begin = {"png": b"\x89PNG\r\n", "jpeg": b"\xff\xd8\xff"}[form]
    pictures = [text[start:] for start in range(len(text)) if text.startswith(begin, start)]
    assert len(pictures) == 24
    opened = [Image.open(io.BytesIO(picture)) for picture in pictures]
    assert {picture.size for picture in opened} == {(20, 20)}
    assert len({zlib.crc32(picture.convert("RGB").tobytes()) for picture in opened}) == 5


def test_made_up_shards_spare_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    done = program("data_shards", str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"data_shards: {tmp_path} has files already, such as mine; name an empty folder\n"
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def everybody(other: Sequence[Callable[[Any], Any]]) -> Callable[[Any], list[Any]]:
    """Return `gather` as rank 0 has it: its own value, and for each question that of the other rank."""
    answers = iter(other)
    return lambda value: [value, next(answers)(value)]


def test_a_share_has_the_ranks_images_and_the_steps_of_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_up(tmp_path, "recordio", "--distinct", "1")
    monkeypatch.setenv("KIT_DATA_MINE", str(tmp_path))
    args, first = options("--data", "mine"), data.Place(0, 2, 0, 2)
    # The other rank has the same files, no problem, and one image more.
    same = [lambda value: value] * 3
    share = data.share("p", args, "recordio", first, everybody([*same, lambda _: 13]))
    assert (share.part, share.parts, share.steps) == (0, 2, 4)
    assert sum(piece.size for piece in share.pieces) == 12
    assert share.text == "Images: 25 in RecordIO files (3), 12 to 13 a rank, 4 steps an epoch"

    monkeypatch.setenv("KIT_DATA_MINE_SPLIT", "hosts")
    host = data.Place(2, 4, 1, 2)
    share = data.share("p", args, "recordio", host, lambda value: [value])
    assert (share.part, share.parts) == (1, 2)


REFUSALS = [
    ("nothing", [lambda value: value], "--data nothing: this node has no data set and no file of that name; "),
    ("mine", [lambda _: ("gpu2", "it is empty")], "rank 1 on gpu2: it is empty"),
    ("mine", [lambda value: value, lambda _: (3, 5, False)], "the ranks do not see the same files (rank 0: 3 files, "),
    ("mine", [lambda value: value, lambda value: (*value[:2], True)], "only some nodes know that it is split over"),
    ("mine", [lambda value: value, lambda value: value, lambda _: ("gpu2", "no record")], "rank 1 on gpu2: no record"),
]


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal[2])
def test_what_one_rank_cannot_read_ends_all(
    refusal: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name, others, says = refusal
    made_up(tmp_path, "recordio")
    monkeypatch.setenv("KIT_DATA_MINE", str(tmp_path))
    with pytest.raises(SystemExit) as ended:
        data.share("p", options("--data", name), "recordio", data.Place(0, 2, 0, 2), everybody(others))
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("p: ")
    assert says in line


def test_flags_without_effect_are_reported() -> None:
    assert list(data.useless(options("--first-label", "1"))) == [
        "--first-label: without --data no image is read, so that does nothing"
    ]
    assert list(data.useless(options("--first-label", "1", "--data", "a"))) == []
    assert data.options(options("--data", "a", "--epochs", "2", "--classes", "1000", "--first-label", "0"), 0) == {
        "data": ["a"],
        "epochs": 2,
    }


def pieces(folder: Path) -> list[Any]:
    dealt: list[Any] = shards.deal(shards.find([str(folder)], "webdataset", {}), 0, 1)
    return dealt


SIZES = {"image_size": 16, "first_label": 0, "classes": 1000}


def test_batches_have_every_sample_once_a_pass_in_another_order(tmp_path: Path) -> None:
    made_up(tmp_path, "webdataset", "--distinct", "24")
    taken = torch_data.batches(pieces(tmp_path), batch_size=8, calls=2, seed=1, **SIZES)
    passes = [[batch for _ in range(3) for batch in next(taken)[1].tolist()] for _ in range(2)]
    images, _ = next(taken)
    taken.close()
    assert (images.shape, str(images.dtype)) == ((8, 16, 16, 3), "uint8")
    assert [Counter(labels) for labels in passes] == [Counter(range(24))] * 2
    assert passes[0] != passes[1]


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_the_order_is_endless_and_files_are_closed(tmp_path: Path) -> None:
    made_up(tmp_path, "webdataset")
    before = open_files()
    order = torch_data.in_order(pieces(tmp_path), torch_data.random.Random(0))
    keys = [sample.key for _, sample in itertools.islice(order, 24 * 20)]
    assert Counter(keys) == dict.fromkeys(keys, 20)
    assert open_files() <= before + 6


@pytest.mark.parametrize(
    ("image", "label", "says"),
    [
        (b"no picture", b"3", "its image cannot be decoded (cannot identify image file"),
        (None, b"cat", "its label (cls) is no number: 'cat'"),
        (None, b"-1", "label -1 is not within 0 to 999: --first-label says where labels begin"),
        (None, b"1000", "label 1000 is not within 0 to 999"),
    ],
)
def test_a_sample_that_cannot_be_used_is_named(tmp_path: Path, image: bytes | None, label: bytes, says: str) -> None:
    good = io.BytesIO()
    Image.new("L", (30, 20)).save(good, "PNG")
    path = tmp_path / "a.tar"
    sample = records.webdataset(image or good.getvalue(), 5, 7, "png")
    path.write_bytes(sample.replace(b"5" + bytes(511), label + bytes(512 - len(label))) + records.TAR_END)
    text = path.read_bytes()
    # The number of bytes of the label is in octal, and changes the checksum of the head.
    head = bytearray(text[:512])
    head[124:136] = b"%011o\0" % len(label)
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    path.write_bytes(bytes(head) + text[512:])
    (piece,) = pieces(tmp_path)
    assert torch_data.check(piece, **SIZES).startswith(f"--data: {path}: 00000007 at byte 0: {says}")
    with pytest.raises(torch_data.Undecoded):
        next(torch_data.batches([piece], batch_size=1, calls=1, seed=0, **SIZES))


@pytest.fixture
def report() -> Callable[[int], Any]:
    """Make a report of rank 0 of two, for a number of epochs."""
    values = {"batch_size": 4, "num_warmup": 2, "num_iters": 2, "num_batches_per_iter": 3, "json": True}
    return lambda epochs: benchmark.Report(argparse.Namespace(**values, epochs=epochs), 0, 2)


def test_epochs_are_measured_after_synthetic_images(
    report: Callable[[int], Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock is the test's: a synthetic step takes 1 s, one of the first epoch 4 s, of the others 2 and 3 s."""
    clock, steps = [0.0], []
    monkeypatch.setattr(benchmark, "time", SimpleNamespace(monotonic=lambda: clock[0]))

    def synthetic() -> None:
        clock[0] += 1
        steps.append("synthetic")

    def real() -> None:
        clock[0] += (4, 2, 3)[(len(steps) - 8) // 5]
        steps.append("real")

    report(3).measure_epochs(
        synthetic, real, lambda rates: [2 * rate for rate in rates], lambda: {"input_wait": 0.25}, steps=5
    )
    assert steps == ["synthetic"] * 8 + ["real"] * 15
    out, err = capsys.readouterr()
    result = json.loads(out)
    # 2 epochs of 40 images in 25 s.
    later = 80 / 25
    assert result["img_sec_total"] == pytest.approx(later)
    assert result["iters"] == pytest.approx([2.0, 4.0, 8 / 3])
    assert (result["synthetic_img_sec_total"], result["first_epoch_img_sec_total"]) == (8, 2)
    assert (result["epoch_images"], result["epoch_steps"]) == (40, 5)
    assert result["input_wait"] == [0.25] * 3
    assert "Epoch 1: 1.0 img/sec per rank, input_wait 0.25\n" in err
    assert "images/sec on 2 ranks: synthetic 8.0, first epoch 2.0, later epochs 3.2\n" in err
    assert "total images/sec on 2 ranks: 3.2 +-" in err


@pytest.mark.parametrize(("watched", "rate"), [(False, (8 + 2) / 2), (True, 48 / 15)])
def test_a_measurement_that_waits_for_real_images_counts_as_long_as_it_took(
    report: Callable[[int], Any],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    watched: bool,
    rate: float,
) -> None:
    """Two measurements of 24 images, in 3 and 12 s. On synthetic images, the result is Horovod's: the mean."""
    clock, steps = [0.0], iter([1] * 5 + [4] * 3)
    monkeypatch.setattr(benchmark, "time", SimpleNamespace(monotonic=lambda: clock[0]))

    def step() -> None:
        clock[0] += next(steps)

    watch = {"watch": lambda: {"input_wait": 0.25}} if watched else {}
    report(0).measure(step, lambda rates: [2 * rate for rate in rates], **watch)
    assert json.loads(capsys.readouterr().out)["img_sec_total"] == pytest.approx(rate)


def test_one_epoch_is_the_rate_that_counts(report: Callable[[int], Any], capsys: pytest.CaptureFixture[str]) -> None:
    report(1).measure_epochs(lambda: None, lambda: None, lambda rates: rates, lambda: {"input_wait": 0.0}, steps=1)
    result = json.loads(capsys.readouterr().out)
    assert result["img_sec_total"] == result["first_epoch_img_sec_total"] == result["iters"][0]
    assert result["img_sec_total_ci"] == 0
