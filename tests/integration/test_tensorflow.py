"""TensorFlow in the image: what kit_topk promises, learning with it, tf_benchmark's options, and images from TFRecords.

One launch of topk_digits.py measures all of the first part, one launch of tf_benchmark the second.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from kit.flows.image.build import ImageResult
from tests.integration.test_image import run

# As hvd-local.sh, but what the ranks say to each other goes through the loopback, where the kernel counts it.
TWO = [
    *("mpirun", "--allow-run-as-root", "-np", "2", "--host", "localhost:2", "--bind-to", "none"),
    *("--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "127.0.0.0/8"),
    *("--mca", "oob_tcp_if_include", "127.0.0.0/8", "--mca", "mpi_yield_when_idle", "1"),
]
SHORT = ["--model", "mobilenetv3small", "--image-size", "32", "--classes", "10", "--first-label", "0"]


@dataclass(frozen=True)
class Digits:
    folder: Path
    report: dict[str, Any]

    def run(self, client: Any, image: ImageResult, argv: list[str], **env: str) -> tuple[int, str, str]:
        volumes = {str(self.folder): {"bind": "/digits", "mode": "rw"}}
        return run(client, image.tag, argv, volumes=volumes, environment=env)


@pytest.fixture(scope="module")
def digits(client: Any, image: ImageResult, tmp_path_factory: pytest.TempPathFactory) -> Digits:
    folder = tmp_path_factory.mktemp("digits")
    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    images, labels = (data.images[order] / 16).astype("f4"), data.target[order].astype("i8")
    np.savez(folder / "digits.npz", images=images, labels=labels)
    program = Path(__file__).with_name("topk_digits.py")
    (folder / program.name).write_bytes(program.read_bytes())
    made = Digits(folder, {})
    code, stdout, stderr = made.run(client, image, [*TWO, "python3", "/digits/topk_digits.py", "/digits"])
    assert code == 0, stderr
    return Digits(folder, json.loads(stdout.splitlines()[-1]))


def test_nothing_that_is_not_sent_is_lost(digits: Digits) -> None:
    report = digits.report
    # All results and what is still held back are all gradients: up to the rounding of three additions.
    assert report["lost"] < 5e-6
    for sent, kept in zip(report["smallest_sent"], report["largest_kept"], strict=True):
        assert sent >= kept, "something larger than what was sent stayed behind"
    # Two ranks send 1 % each, mostly of different places.
    assert 0.015 < report["share"] <= 0.02


def test_a_nan_is_heard_by_all_and_leaves_no_trace(digits: Digits) -> None:
    assert digits.report["nan_heard"] == [True, True]
    assert digits.report["nan_left_no_trace"] == [True, True]


def test_with_momentum_an_inf_of_one_rank_leaves_no_trace_on_any(digits: Digits) -> None:
    assert digits.report["inf_left_no_trace"] == [True] * 4


def test_a_variable_without_a_gradient_keeps_what_it_has_not_sent(digits: Digits) -> None:
    assert (digits.report["absent_waits"], digits.report["absent_went_on"]) == (True, True)


def test_a_loss_scale_skips_the_same_step_on_all_ranks(digits: Digits) -> None:
    # Two steps of three were applied, the scale was halved once, and each step was exchanged once.
    assert list(digits.report["scaled"].values()) == [[[-2.0, 4.0, 3]] * 2] * 2


def test_a_dense_beginning_is_plain_momentum(digits: Digits) -> None:
    assert digits.report["momentum_error"] < 1e-6
    assert digits.report["momentum_residual"] == 0


def test_bytes_are_those_on_the_wire(digits: Digits) -> None:
    report = digits.report
    plan = report["plan"]
    assert report["bytes_sent"] == 3 * plan["bytes_per_step"]
    assert plan["bytes_per_step"] == 4 * 40 + 8 * 7200
    # Both ranks' bytes, with the headers of TCP and Horovod's own words: never less than planned, and not much more.
    for measured, planned in (("wire_dense", "dense_wire_bytes_per_step"), ("wire_topk", "wire_bytes_per_step")):
        assert 2 * report["wire_plan"][planned] <= report[measured] < 2.5 * report["wire_plan"][planned], measured
    assert report["wire_topk"] < 0.03 * report["wire_dense"]


def test_half_precision_sums_need_the_predivide_factor(digits: Digits) -> None:
    assert digits.report["predivide"] == {"1.0": float("inf"), "2.0": 60000.0}


def test_topk_learns_as_well_as_dense(digits: Digits) -> None:
    accuracy = digits.report["accuracy"]
    assert accuracy["dense"] > 0.95
    assert abs(accuracy["topk"] - accuracy["dense"]) <= 0.01
    # The task can tell: what forgets instead of keeping a residual is worse by more than that.
    assert accuracy["forgetful"] < accuracy["dense"] - 0.01
    # 1 % of the values with their places, and the small tensors dense.
    assert digits.report["learning_share"] < 0.03
    assert digits.report["alike"] == {"dense": True, "topk": True, "forgetful": True}


def test_model_fit_with_the_optimizer(digits: Digits) -> None:
    report = digits.report
    assert report["fit_type"] == "TopKSGD"
    assert report["fit_steps"] == 8
    assert report["fit_moved"] > 0
    assert report["fit_alike"]


def test_benchmark_learns_from_records_with_options(digits: Digits, client: Any, image: ImageResult) -> None:
    argv = [
        *(*TWO, "tf_benchmark", *SHORT, "--data", "/digits/records/train-*", "--num-parallel-calls", "2"),
        *("--compression", "topk", "--topk-ratio", "0.05", "--learning-rate", "0.02", "--batch-size", "32"),
        *("--cycle-ms", "2", "--fusion-mb", "8", "--hierarchical-allreduce", "--timeline", "/digits/timeline.json"),
        *("--num-warmup", "1", "--num-iters", "8", "--num-batches-per-iter", "8", "--json"),
    ]
    code, stdout, stderr = digits.run(client, image, argv, HOROVOD_CYCLE_TIME="7", HOROVOD_CACHE_CAPACITY="64")
    assert code == 0, stderr
    result = json.loads(stdout)
    assert (result["workload"], result["simulated"], result["ranks"]) == ("training", False, 2)
    assert result["options"] == {
        "data": ["/digits/records/train-*"], "num_parallel_calls": 2, "compression": "topk", "topk_ratio": 0.05,
        "learning_rate": 0.02, "classes": 10, "first_label": 0, "cycle_ms": 2.0, "fusion_mb": 8.0, "cache_capacity": 64,
        "hierarchical_allreduce": True, "timeline": "/digits/timeline.json",
    }  # fmt: skip
    assert result["img_sec_total"] == pytest.approx(2 * result["img_sec_per_rank"])
    assert "total images/sec on 2 ranks:" in stderr
    assert "--cycle-ms wins: HOROVOD_CYCLE_TIME is 2, and was 7" in stderr
    assert [note for note in result["notes"] if "--hierarchical-allreduce does nothing here" in note]
    # Ten kinds at random would be 2.3 and 10 %. Starts differ: 64 steps are long enough for all of them to be well past
    # that.
    assert result["loss"][-1] < result["loss"][0]
    assert max(result["accuracy"]) > 0.5
    assert result["topk"]["steps"] == 65
    assert result["topk"]["bytes_sent"] == 65 * result["bytes_per_step"]
    assert result["bytes_per_step"] < 0.2 * result["gradient_bytes"]
    assert "MPI_ALLGATHER" in (digits.folder / "timeline.json").read_text()


# Side by side in one container: their time is TensorFlow's import.
WRONG = """
tf_benchmark --image-size 32 --data '/digits/none-*' >/tmp/1 2>&1 & one=$!
tf_benchmark --image-size 32 --data /digits/digits.npz >/tmp/3 2>&1 & three=$!
"$@" --data /digits/records/odd /digits/records/odd >/tmp/2 2>&1; echo $?
wait $one; echo $?; wait $three; echo $?; cat /tmp/2; echo ==; cat /tmp/1; echo ==; cat /tmp/3
"""


def test_records_that_cannot_be_read_are_reported_once(digits: Digits, client: Any, image: ImageResult) -> None:
    argv = ["bash", "-c", WRONG, "wrong", *TWO, "tf_benchmark", *SHORT]
    code, stdout, stderr = digits.run(client, image, argv)
    assert code == 0, stderr
    *codes, output = stdout.split("\n", 3)
    assert codes == ["2", "2", "2"], stdout
    two, none, junk = output.split("==\n")
    assert "--data /digits/none-*: no file matches" in none
    assert "--data: /digits/digits.npz is broken at byte 0: no TFRecord begins there (compressed ones" in junk
    assert "function_node" not in output
    assert two.count("lack image/encoded (bytes); they have: image/class/label (int64_list), picture (bytes_list)") == 1
    assert "Traceback" not in output


# Two ranks read what data_shards made, as a data set of kit.yaml: two epochs of it. Then a byte of an image changes.
EPOCHS = """
data_shards --files 3 --images 16 --size 40 --distinct 1 --classes 10 --first-label 0 /tmp/made-up >&2 || exit
"$@" --data made-up --epochs 2 --json || exit
python3 -c '
path = "/tmp/made-up/train-00001-of-00003"
text = bytearray(open(path, "rb").read())
text[-100] ^= 255
open(path, "wb").write(text)'
"$@" --data made-up --epochs 1 >&2
echo $?
"""


def test_epochs_of_a_data_set_are_measured_beside_synthetic_images(client: Any, image: ImageResult) -> None:
    short = ["--batch-size", "8", "--num-warmup", "1", "--num-iters", "2", "--num-batches-per-iter", "1"]
    argv = ["bash", "-c", EPOCHS, "epochs", *TWO, "tf_benchmark", *SHORT, *short]
    code, stdout, stderr = run(client, image.tag, argv, environment={"KIT_DATA_MADE_UP": "/tmp/made-up"})
    assert code == 0, stderr
    line, second = stdout.splitlines()
    result = json.loads(line)
    assert (result["epoch_steps"], result["epoch_images"]) == (3, 48)
    assert len(result["iters"]) == len(result["input_wait"]) == len(result["loss"]) == 2
    assert result["first_epoch_img_sec_total"] == result["iters"][0]
    assert result["img_sec_total"] == result["iters"][1]
    assert result["synthetic_img_sec_total"] > 0
    assert "Images: 48 in TFRecord files (3), 24 a rank, 3 steps an epoch" in stderr
    assert "images/sec on 2 ranks: synthetic " in stderr
    # TensorFlow names the place alone.
    assert second == "2"
    assert re.search(r"--data: /tmp/made-up/train-00001-of-00003: corrupted record at \d{4,}\n", stderr), stderr
    assert "Traceback" not in stderr
