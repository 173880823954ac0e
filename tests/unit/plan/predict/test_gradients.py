"""Gradients of models: the table that is shipped, names as people write them, files and numbers; the image's programs
read them alike."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

from kit.errors import InputError
from kit.model.scaling import Gradients
from kit.plan.predict import gradients
from kit.remote.machine.assets import images_dir

TABLE = (images_dir() / "lib" / "models.json").read_text()

# From the papers and the frameworks' own documentation: trainable numbers of each.
PUBLISHED = {
    "resnet50": 25_583_592,
    "resnet101": 44_601_832,
    "resnet152": 60_268_520,
    "vgg16": 138_357_544,
    "vgg19": 143_667_240,
    "inceptionv3": 23_817_352,
    "mobilenetv2": 3_504_872,
    "densenet121": 7_978_856,
    "efficientnetb0": 5_288_548,
    "alexnet": 61_100_840,
    "googlenet": 6_998_552,
    "bertbase": 109_482_240,
    "bertlarge": 335_141_888,
    "gpt2": 124_439_808,
}


@pytest.fixture(scope="module")
def kit_gradients() -> ModuleType:
    """The module as the image has it."""
    spec = importlib.util.spec_from_file_location("kit_gradients", images_dir() / "lib" / "kit_gradients.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("name", "elements"), PUBLISHED.items())
def test_the_table_has_as_many_numbers_as_the_model(name: str, elements: int) -> None:
    assert gradients.named(name, TABLE).elements == elements


@pytest.mark.parametrize("written", ["resnet50", "ResNet-50", "RESNET_50", "resnet 50"])
def test_names_are_taken_as_people_write_them(written: str) -> None:
    assert gradients.named(written, TABLE).model == "resnet50"


def test_the_work_of_resnet50_is_the_published_one() -> None:
    # He et al. 2015, table 1: 3.8 x 10^9.
    assert sum(layer.work for layer in gradients.named("resnet50", TABLE).layers) == pytest.approx(3.86e9, rel=0.01)


def test_the_classifier_comes_first_and_the_stem_last() -> None:
    layers = [layer for layer in gradients.named("resnet50", TABLE).layers if layer.elements]
    assert layers[0].elements == (1000, 2048 * 1000)
    assert layers[-1].elements == (64, 7 * 7 * 3 * 64)


def test_an_unknown_model_is_reported_with_all_there_are() -> None:
    with pytest.raises(InputError, match="--model: 'resnet51' is not in the table") as caught:
        gradients.named("resnet51", TABLE)
    assert caught.value.hint
    assert all(name in caught.value.hint for name in json.loads(TABLE))


@pytest.mark.parametrize(("text", "count"), [("25.6m", 25_600_000), ("1.5B", 1_500_000_000), ("1234567", 1_234_567)])
def test_a_number_of_parameters(text: str, count: int) -> None:
    gradients_of_text = gradients.counted(text)
    assert (gradients_of_text.elements, gradients_of_text.tensors) == (count, 50)


@pytest.mark.parametrize("text", ["many", "0", "-5m", "5e6", "49", "", "1.m", "99999b"])
def test_no_number_of_parameters(text: str, kit_gradients: ModuleType) -> None:
    with pytest.raises(InputError):
        gradients.counted(text)
    if text:
        with pytest.raises(ValueError, match="is not a number of parameters"):
            kit_gradients.chosen(None, None, text)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"layers": []}', '{"layers": [[1]]}', '{"layers": [[1, -2]]}', '{"layers": [[1, 1.5]]}',
     '{"layers": [[-1, 2]]}', '{"layers": [["x", 2]]}', '{"layers": [[]]}', '{"layers": 3}', '{"layers": [[1, true]]}'],
)  # fmt: skip
def test_a_file_that_is_none(text: str, tmp_path: Path, kit_gradients: ModuleType) -> None:
    with pytest.raises(InputError, match="not a file of gradients"):
        gradients.from_file(text, file="g.json")
    path = tmp_path / "g.json"
    path.write_text(text)
    with pytest.raises(ValueError, match="is not a file of gradients"):
        kit_gradients.chosen(None, str(path), None)


@pytest.mark.parametrize(
    "text", ['{"layers": [[1e400, 5]]}', '{"layers": [[1, 5], [NaN, 5]]}', '{"layers": [[1, 1e400]]}']
)
def test_what_never_ends_is_no_layer(text: str) -> None:
    with pytest.raises(InputError, match=r"layer \d: multiplications must be a number"):
        gradients.from_file(text, file="g.json")


def test_kit_and_the_image_read_alike(tmp_path: Path, kit_gradients: ModuleType) -> None:
    def rows(table: Gradients) -> list[list[float]]:
        return [[layer.work, *layer.elements] for layer in table.layers]

    assert kit_gradients.chosen("VGG-16,bert_large", None, None) == [
        ("vgg16", rows(gradients.named("vgg16", TABLE))),
        ("bertlarge", rows(gradients.named("bertlarge", TABLE))),
    ]
    assert kit_gradients.chosen(None, None, "25.61m") == [("25.61m", rows(gradients.counted("25.61m")))]
    path = tmp_path / "mine.json"
    path.write_text('{"layers": [[2, 10, 3], [0, 7], [1.5]]}')
    own = gradients.from_file(path.read_text(), file="mine.json")
    assert kit_gradients.chosen(None, str(path), None) == [("mine", rows(own))]
    with pytest.raises(ValueError, match="there are: alexnet"):
        kit_gradients.chosen("resnet51", None, None)
