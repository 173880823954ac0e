"""What paced_benchmark does before Horovod is needed: words, the pace of a step; kit predict goes by the same pace."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import pytest

from kit.model.scaling import Training
from kit.plan.predict import gradients, scaling
from kit.remote.machine.assets import images_dir

PROGRAM = images_dir() / "bin" / "paced_benchmark"
TABLE = (images_dir() / "lib" / "models.json").read_text()


def paced(*words: str, rank: str = "0") -> subprocess.CompletedProcess[str]:
    environ = {"PYTHONPATH": str(images_dir() / "lib"), "OMPI_COMM_WORLD_RANK": rank, "PYTHONDONTWRITEBYTECODE": "1"}
    argv = [sys.executable, str(PROGRAM), *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, env=environ)


@pytest.fixture(scope="module")
def program() -> ModuleType:
    """Load the program as a module, with the modules beside it in bin/ and lib/, as in the image."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(images_dir() / "lib"))
        patch.syspath_prepend(str(PROGRAM.parent))
        loader = importlib.machinery.SourceFileLoader("paced_benchmark", str(PROGRAM))
        spec = importlib.util.spec_from_loader(loader.name, loader)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    return module


WRONG = [
    (["--model", "resnet51"], "no model 'resnet51' in the table of gradients; there are: alexnet"),
    (["--step-ms", "0"], "a step takes more than 0 ms"),
    (["--step-ms", "fast"], "could not convert"),
    (["--model", "vgg16,vgg19", "--step-ms", "1,2,3"], "--step-ms has 3 times, and there are 2 models"),
    (["--parameters", "many"], "'many' is not a number of parameters"),
    (["--gradients", "/nowhere.json"], "is not a file of gradients"),
]
BY_ARGPARSE = (["--forward-share", "1"], "from 0 to below 1")


@pytest.mark.parametrize(("words", "says"), [*WRONG, BY_ARGPARSE])
def test_what_is_wrong_is_said_by_the_first_rank(words: list[str], says: str) -> None:
    first = paced(*words)
    assert (first.returncode, first.stdout) == (2, "")
    assert says in first.stderr


def test_the_other_ranks_end_without_a_word() -> None:
    """Each some seconds later than the first may have spoken: all cases at once."""
    with ThreadPoolExecutor(len(WRONG)) as pool:
        others = list(pool.map(lambda case: paced(*case[0], rank="1"), WRONG))
    assert [(other.returncode, other.stdout, other.stderr) for other in others] == [(2, "", "")] * len(WRONG)


def test_each_model_has_its_step(program: ModuleType) -> None:
    class Args:
        model, gradients, parameters, step_ms = "vgg16,alexnet", None, None, "290"

    assert [(name, step) for name, _, step in program.chosen(Args)] == [("vgg16", 0.29), ("alexnet", 0.29)]
    Args.step_ms = "290,100"
    assert [(name, step) for name, _, step in program.chosen(Args)] == [("vgg16", 0.29), ("alexnet", 0.1)]


@pytest.mark.parametrize("model", ["resnet50", "bertlarge", "mobilenetv2"])
def test_gradients_are_handed_over_when_kit_predict_has_them_ready(program: ModuleType, model: str) -> None:
    model_gradients = gradients.named(model, TABLE)
    rows = [[layer.work, *layer.elements] for layer in model_gradients.layers]
    moments = program.pace(0.29, 0.3, rows)
    wanted = scaling.ready(model_gradients, Training(step=0.29, forward_share=0.3))
    handed = [moment for moment, row in zip(moments, rows, strict=True) for _ in row[1:]]
    assert handed == pytest.approx([tensor.ready for tensor in wanted])
    assert moments[-1] == pytest.approx(0.29)
    assert Path(PROGRAM).stat().st_mode & 0o111
