from __future__ import annotations

import re
from collections.abc import Mapping
from typing import get_args

import pytest

from kit.config.validate import spec_from
from kit.errors import InputErrors
from kit.model import values
from kit.model.image import Wheel
from kit.model.spec import Flavour, ImageSpec
from kit.plan.bases import LOCK
from kit.plan.image import CA_PATH, CPU_INDEX, CUDA, context_path, image_content, needed_bases
from kit.remote.machine.assets import read_images
from tests.fakes.golden import check_golden

SPECS = {
    "cpu": ImageSpec(),
    "cpu-mxnet-extras": ImageSpec(frameworks=("mxnet",), packages=("htop", "git=1:2.39"), pip=("pandas<2", "a[b]==1")),
    "cuda-tensorflow": ImageSpec(flavour="cuda-tensorflow"),
    "cuda-mxnet": ImageSpec(flavour="cuda-mxnet"),
    "pytorch": ImageSpec(flavour="pytorch"),
    "pytorch-wheels": ImageSpec(flavour="pytorch", pip=("mine",)),
    "cuda-pytorch": ImageSpec(flavour="cuda-pytorch"),
    "ssh-layer": ImageSpec(flavour="ssh-layer", base="nvcr.io/nvidia/tensorflow:23.03-tf2-py3", packages=("htop",)),
    "ssh-layer-extras": ImageSpec(flavour="ssh-layer", base="nvcr.io/nvidia/tensorflow:23.03-tf2-py3", pip=("pandas",)),
}
TORCH = Wheel(name="torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl", digest="a" * 64)
MINE = Wheel(name="mine-1.0-py3-none-any.whl", digest="b" * 64)
WHEELS = {"pytorch-wheels": (TORCH, MINE)}
REQUIREMENTS = {"cpu-mxnet-extras": b"wandb==0.16\n", "ssh-layer-extras": b"wandb==0.16\n"}


@pytest.fixture(scope="module")
def templates() -> dict[str, bytes]:
    """Files of images/ without the lock of the bases, so that a new digest changes no golden file."""
    return {path: data for path, data in read_images().items() if path != LOCK}


@pytest.mark.parametrize("name", SPECS)
def test_dockerfile_is_the_golden_one(name: str, templates: Mapping[str, bytes]) -> None:
    content = image_content(SPECS[name], templates, requirements=REQUIREMENTS.get(name), wheels=WHEELS.get(name, ()))
    dockerfile = content.files["Dockerfile"].decode()
    check_golden(f"image/{name}.Dockerfile", dockerfile)


def test_sshd_config_is_the_golden_one(templates: Mapping[str, bytes]) -> None:
    check_golden("image/sshd_config", image_content(ImageSpec(), templates).files["sshd_config"].decode())


@pytest.mark.parametrize("name", SPECS)
def test_every_copied_file_is_in_the_context(name: str, templates: Mapping[str, bytes]) -> None:
    content = image_content(SPECS[name], templates, requirements=REQUIREMENTS.get(name), wheels=WHEELS.get(name, ()))
    sources = re.findall(r"^COPY (?!--from)(\S+) ", content.files["Dockerfile"].decode(), re.MULTILINE)
    for source in sources:
        if source.startswith("wheels/"):
            assert any(context_path(wheel.name).startswith(source) for wheel in WHEELS[name])
        elif source.endswith("/"):
            assert any(path.startswith(source) for path in content.files)
        else:
            assert source in content.files or source == CA_PATH


def test_the_same_definition_has_the_same_tag(templates: Mapping[str, bytes]) -> None:
    again = {path: templates[path] for path in sorted(templates, reverse=True)}
    assert image_content(ImageSpec(), templates).tag == image_content(ImageSpec(), again).tag
    assert re.fullmatch(r"kit:cpu-[0-9a-f]{12}", image_content(ImageSpec(), templates).tag)


def test_what_goes_into_an_image_changes_its_tag(templates: Mapping[str, bytes]) -> None:
    tag = image_content(ImageSpec(), templates).tag
    assert image_content(ImageSpec(packages=("htop",)), templates).tag != tag
    assert image_content(ImageSpec(), templates, ssh_port_default=2222).tag != tag
    for path in ("bin/start.sh", "src/mpi_perf.c", "requirements/mxnet.txt", "sshd_config.j2", "ssh.j2"):
        assert image_content(ImageSpec(), {**templates, path: templates[path] + b"\n#\n"}).tag != tag, path


def test_the_requirements_are_part_of_the_tag(templates: Mapping[str, bytes]) -> None:
    tags = {image_content(ImageSpec(), templates, requirements=text).tag for text in (None, b"", b"wandb\n", b"tqdm\n")}
    assert len(tags) == 4


@pytest.mark.parametrize("name", [name for name in SPECS if name != "ssh-layer-extras"])
def test_extra_packages_change_no_earlier_step_of_the_image(name: str, templates: Mapping[str, bytes]) -> None:
    """A build takes the steps before a change from its cache, and hosts that have those layers receive the rest."""
    plain = values.replace(SPECS[name], pip=())
    extra = values.replace(plain, pip=("tqdm",))
    before = _stages(image_content(plain, templates).files["Dockerfile"])
    for after in (
        _stages(image_content(extra, templates).files["Dockerfile"]),
        _stages(image_content(plain, templates, requirements=b"tqdm\n").files["Dockerfile"]),
        _stages(image_content(extra, templates, requirements=b"tqdm\n").files["Dockerfile"]),
    ):
        for stage in before.keys() - {""}:
            assert after[stage] == before[stage]
        steps = after[""][: len(before[""])]
        assert steps == before[""]
        last = after[""][len(steps) :]
        assert last
        # Nothing but the packages, from a stage that has the certificates of this machine, or by pip itself.
        assert all(
            step.startswith(
                (
                    "COPY --from=extra ",
                    "COPY extra/requirements.txt ",
                    "RUN PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip ",
                )
            )
            for step in last
        )


def _stages(dockerfile: bytes) -> dict[str, list[str]]:
    """Return the instructions of each stage; the last one has no name."""
    text = re.sub(r"^#.*\n", "", dockerfile.decode(), flags=re.MULTILINE).replace("\\\n", "")
    stages: dict[str, list[str]] = {}
    for stage in re.split(r"^(?=FROM )", text, flags=re.MULTILINE)[1:]:
        head, *steps = [line for line in stage.splitlines() if line]
        stages[head.partition(" AS ")[2]] = [head, *steps]
    return stages


def test_what_does_not_go_into_an_image_leaves_its_tag(templates: Mapping[str, bytes]) -> None:
    tag = image_content(ImageSpec(), templates).tag
    for path in ("requirements/cuda-mxnet.txt", "Dockerfile.ssh-layer.j2", "lab/Dockerfile"):
        assert image_content(ImageSpec(), {**templates, path: b"other"}).tag == tag, path


def test_the_certificates_are_for_the_build_stage_only(templates: Mapping[str, bytes]) -> None:
    for name in ("cpu", "cuda-tensorflow", "cuda-mxnet"):
        build, final = (
            image_content(SPECS[name], templates).files["Dockerfile"].decode().removeprefix("# ").rsplit("\nFROM ", 1)
        )
        assert CA_PATH in build
        assert "ca/" not in final
        assert CA_PATH not in image_content(SPECS[name], templates).files


def test_scripts_are_executable_and_nothing_else(templates: Mapping[str, bytes]) -> None:
    content = image_content(ImageSpec(), templates)
    assert {"bin/start.sh", "bin/hvd-local.sh", "bin/hvd-distribute.sh", "bin/tf_benchmark"} <= content.executables
    assert all(path.startswith("bin/") for path in content.executables)


def test_frameworks_that_are_left_out_are_not_installed(templates: Mapping[str, bytes]) -> None:
    content = image_content(ImageSpec(frameworks=("mxnet",)), templates)
    assert "requirements/tensorflow.txt" not in content.files
    assert "HOROVOD_WITHOUT_TENSORFLOW=1" in content.files["Dockerfile"].decode()


def test_words_of_a_person_are_quoted(templates: Mapping[str, bytes]) -> None:
    spec = ImageSpec(pip=("pandas<2; python_version > '3'", "$(reboot)"))
    dockerfile = image_content(spec, templates).files["Dockerfile"].decode()
    assert "'$(reboot)'" in dockerfile
    assert """'pandas<2; python_version > '"'"'3'"'"''""" in dockerfile


@pytest.mark.parametrize("base", ["", "debian bookworm", "debian\nRUN reboot", "$(reboot)", 'a"b'])
def test_a_base_that_is_no_name_is_refused(base: str) -> None:
    with pytest.raises(InputErrors, match="is not the name of an image"):
        spec_from({"image": {"base": base}})


def test_bases_are_named_once(templates: Mapping[str, bytes]) -> None:
    for name in ("cpu", "cuda-tensorflow", "cuda-mxnet", "cuda-pytorch"):
        assert needed_bases(image_content(SPECS[name], templates)) == ("debian:bookworm-slim",)
    mirrored = ImageSpec(flavour="cuda-tensorflow", base="registry.example.com/debian:bookworm-slim")
    assert needed_bases(image_content(mirrored, templates)) == ("registry.example.com/debian:bookworm-slim",)


@pytest.mark.parametrize("lock", sorted(path for path in read_images() if path.endswith(".txt")))
def test_locks_pin_every_package_by_hash_and_name_no_index(lock: str, templates: Mapping[str, bytes]) -> None:
    text = templates[lock].decode()
    assert "://" not in text
    packages = re.split(r"^(?=[a-z])", text, flags=re.MULTILINE)[1:]
    assert packages
    for package in packages:
        assert re.match(r"[a-z0-9._-]+==\S+", package), package[:60]
        assert "--hash=sha256:" in package


def test_wheels_are_part_of_the_tag_by_content(templates: Mapping[str, bytes]) -> None:
    other = values.replace(MINE, digest="c" * 64)
    tags = {image_content(ImageSpec(), templates, wheels=wheels).tag for wheels in ((), (MINE,), (other,), (TORCH,))}
    assert len(tags) == 4
    # The folder is not: another machine may have it elsewhere.
    specs = (ImageSpec(wheels="/a"), ImageSpec(wheels="/b"))
    assert len({image_content(spec, templates, wheels=(MINE,)).tag for spec in specs}) == 1


def test_your_own_wheels_change_no_step_before_the_last_layer(templates: Mapping[str, bytes]) -> None:
    spec = ImageSpec(flavour="pytorch", pip=("mine",))
    plain = image_content(spec, templates, wheels=(TORCH,)).files["Dockerfile"].decode()
    more = image_content(spec, templates, wheels=(TORCH, MINE)).files["Dockerfile"].decode()
    assert plain.partition("AS extra")[0] == more.partition("AS extra")[0]
    # No stage of the image has them.
    assert "wheels" not in more.rpartition("\nFROM ")[2]


def test_pytorchs_index_is_asked_only_without_its_wheel(templates: Mapping[str, bytes]) -> None:
    spec = ImageSpec(flavour="pytorch")
    assert CPU_INDEX in image_content(spec, templates, wheels=(MINE,)).files["Dockerfile"].decode()
    assert CPU_INDEX not in image_content(spec, templates, wheels=(TORCH,)).files["Dockerfile"].decode()
    cuda = image_content(ImageSpec(flavour="cuda-pytorch"), templates)
    assert CPU_INDEX not in cuda.files["Dockerfile"].decode()
    assert b"+cpu" not in cuda.files["requirements/cuda-pytorch.txt"]


def test_each_cuda_flavour_names_its_cuda_and_the_oldest_driver() -> None:
    assert set(CUDA) == {name for name in get_args(Flavour) if name.startswith("cuda-")}
    for needs in CUDA.values():
        assert re.fullmatch(r"1[123]\.\d", needs.cuda)
        assert re.fullmatch(r"\d{3}(\.\d{2,3}){2}", needs.driver)


def test_the_cuda_of_pytorch_is_that_of_its_lock(templates: Mapping[str, bytes]) -> None:
    (version,) = re.findall(
        rb"^nvidia-cuda-runtime==([0-9]+\.[0-9]+)", templates["requirements/cuda-pytorch.txt"], re.M
    )
    assert version.decode() == CUDA["cuda-pytorch"].cuda
