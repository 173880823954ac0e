"""The definition of an image: from what kit.yaml says and the files of images/ to a build context with a tag."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from kit.model.image import ImageContent, Wheel
from kit.model.spec import Framework, ImageSpec
from kit.plan.bases import LOCK, pinned, read_lock
from kit.plan.flavour import with_flavour

REPOSITORY = "kit"

# Where the Dockerfiles expect the certificates that only a build stage gets. They are not part of the content.
CA_PATH = "ca/extra.pem"

# Where the build context has the file that `requirements:` in kit.yaml names.
REQUIREMENTS_PATH = "extra/requirements.txt"

# Where the build context has the wheels of `image.wheels`: those that a lock names, and those for your own packages.
# The list of both is part of the content, and so of the tag; the wheels themselves are only beside it.
LOCKED_WHEELS, EXTRA_WHEELS = "wheels/locked", "wheels/extra"
WHEELS_LIST = "wheels/list"

# PyPI has no CPU build of PyTorch.
CPU_INDEX = "https://download.pytorch.org/whl/cpu"

# A launch on several hundred nodes opens at most this number of connections to one node at once.
MAX_CONNECTIONS = 1000

# The bytes that a line of a Dockerfile cannot carry in a name.
_NOT_IN_A_NAME = set(" \t\r\n\"'\\$`#")


# The GPUs that Horovod's own kernels are compiled for: P100, V100, T4, A100, A10 and RTX 30, L4 and RTX 40, H100.
_CAPABILITIES = (60, 70, 75, 80, 86, 89, 90)
_OLDEST = f"{min(_CAPABILITIES) // 10}.{min(_CAPABILITIES) % 10}"


class _Nvcc(Struct, frozen=True, kw_only=True):
    """NVIDIA's compiler for Horovod: from the package nvidia-cuda-toolkit of a Debian suite.

    `compiler` is the newest C++ compiler that it accepts. `headers` is the lock of wheels that only it needs.
    """

    suite: str
    version: str
    compiler: str
    headers: str
    capabilities: tuple[int, ...] = _CAPABILITIES


class _Recipe(Struct, frozen=True, kw_only=True):
    """A flavour that starts from a plain base. pip installs `locks` in this order, and Horovod's last.

    A flavour with `cuda` has the libraries of NVIDIA's wheels. Horovod then needs `nvcc`. `index` is an index that pip
    asks besides PyPI, if no folder has the wheel.
    """

    locks: Mapping[Framework | Literal["pytorch"], str]
    base: str = "debian:bookworm-slim"
    python: str = "3.11"
    cuda: bool = False
    nvcc: _Nvcc | None = None
    horovod: bool = True
    index: str = ""


_RECIPES = {
    "cpu": _Recipe(locks={"tensorflow": "tensorflow", "mxnet": "mxnet"}),
    # TensorFlow 2.15 needs CUDA 12.2 and cuDNN 8.9. PyPI has no nvcc for CUDA 12, and bookworm's is 11.8.
    "cuda-tensorflow": _Recipe(
        cuda=True,
        nvcc=_Nvcc(suite="trixie", version="12.4", compiler="g++", headers="cuda-tensorflow-headers"),
        locks={"tensorflow": "cuda-tensorflow"},
    ),
    # MXNet's newest CUDA wheel is for 11.2, so that it cannot share an image with TensorFlow 2.15. It runs with the
    # libraries of 11.8, because all of CUDA 11 has the same interfaces.
    "cuda-mxnet": _Recipe(
        cuda=True,
        nvcc=_Nvcc(suite="bookworm", version="11.8", compiler="g++-11", headers="cuda-mxnet-headers"),
        locks={"mxnet": "cuda-mxnet"},
    ),
    # PyTorch exchanges gradients itself, without Horovod.
    "pytorch": _Recipe(locks={"pytorch": "pytorch"}, horovod=False, index=CPU_INDEX),
    "cuda-pytorch": _Recipe(cuda=True, locks={"pytorch": "cuda-pytorch"}, horovod=False),
}


class CudaNeeds(Struct, frozen=True, kw_only=True):
    """The CUDA version of an image's libraries, and the oldest NVIDIA driver of a host that can run them.

    `capability` is the lowest compute capability of a GPU for which the image has kernels.
    """

    cuda: str
    driver: str
    capability: str


# By flavor. A flavor without CUDA, and ssh-layer, whose base kit does not know, have no entry. NVIDIA's "CUDA
# Compatibility" guide gives the driver: by minor-version compatibility, every 12.x library runs on the oldest driver of
# 12.0, and every 11.x library on that of 11.0 as the guide states it. CUDA 13.x needs a driver of branch 580.
#
# The capability of cuda-pytorch is that of PyTorch's wheels for CUDA 13, "Turing(7.5), Ampere(8.0, 8.6), Hopper(9.0),
# Blackwell(10.0, 12.0+PTX)": "PyTorch CUDA Support Matrix" in PyTorch's RELEASE.md, the same for 2.12 to 2.14
# (pytorch/pytorch, pull requests 182849 and 197555). CUDA 13 does not support GPUs below 7.5 (issue 190385 there).
# Drivers of branch 580 still run P100 and V100, so the check of the driver lets them pass. The capability of the others
# is that of Horovod's kernels, which kit's build chooses. MXNet's and TensorFlow's own lists begin lower
# (apache/mxnet, config/distribution/linux_cu112.cmake; tensorflow.org/install/gpu).
CUDA = {
    "cuda-tensorflow": CudaNeeds(cuda="12.2", driver="525.60.13", capability=_OLDEST),
    "cuda-mxnet": CudaNeeds(cuda="11.8", driver="450.80.02", capability=_OLDEST),
    "cuda-pytorch": CudaNeeds(cuda="13.0", driver="580.65.06", capability="7.5"),
}


def image_content(
    spec: ImageSpec,
    templates: Mapping[str, bytes],
    *,
    requirements: bytes | None = None,
    wheels: Sequence[Wheel] = (),
    ssh_port_default: int = 33,
) -> ImageContent:
    """Return the build context of `spec`'s image. `templates` maps a path below images/ to its bytes.

    `requirements` is a file as pip install -r reads it. These packages and those of `spec.pip` go into the last layer.
    `wheels` are those of a folder: pip finds them, and the build context has them under `context_path`.
    A base in the lock of `templates` (bases.lock) gets its digest. A flavor that `spec` leaves open is that of hosts
    without GPUs.
    """
    spec = with_flavour(spec, gpus=False)
    values: dict[str, object] = {
        "flavour": spec.flavour,
        "packages": list(spec.packages),
        "pip": list(spec.pip),
        "requirements": REQUIREMENTS_PATH if requirements is not None else "",
        "locked_wheels": any(is_locked(wheel.name) for wheel in wheels),
        "extra_wheels": any(not is_locked(wheel.name) for wheel in wheels),
        "ssh_port": ssh_port_default,
        "max_connections": MAX_CONNECTIONS,
    }
    digests = read_lock(templates[LOCK].decode()) if LOCK in templates else {}
    recipe = _RECIPES.get(spec.flavour)
    locks: list[str] = []
    headers: list[str] = []
    if recipe is None:
        values["base"] = pinned(spec.base, digests) if spec.base is not None else None
    else:
        frameworks = [name for name in recipe.locks if name in spec.frameworks or recipe.cuda or not recipe.horovod]
        locks = [recipe.locks[name] for name in frameworks]
        if recipe.horovod:
            locks = ["build", *locks, "horovod"]
        headers = [recipe.nvcc.headers] if recipe.nvcc else []
        values |= {
            "base": pinned(spec.base or recipe.base, digests),
            "python": recipe.python,
            "cuda": recipe.cuda,
            "nvcc": recipe.nvcc,
            "frameworks": frameworks,
            "horovod": recipe.horovod,
            "index": "" if values["locked_wheels"] else recipe.index,
            "locks": locks,
        }
    dockerfile = "Dockerfile.ssh-layer.j2" if recipe is None else "Dockerfile.j2"
    scripts = {path: content for path, content in templates.items() if path.startswith("bin/")}
    library = {path: content for path, content in templates.items() if path.startswith(("lib/", "rclone/", "src/"))}
    files = {
        "Dockerfile": _render(templates, dockerfile, values),
        "sshd_config": _render(templates, "sshd_config.j2", values),
        **{f"requirements/{lock}.txt": templates[f"requirements/{lock}.txt"] for lock in (*locks, *headers, "rclone")},
        **{path: content for path, content in templates.items() if path.startswith("cuda/") and recipe and recipe.cuda},
        **{
            path: content
            for path, content in templates.items()
            if path.startswith("horovod/") and recipe and recipe.horovod
        },
        **{path: content for path, content in templates.items() if path.startswith("openmpi/" if recipe else "layer/")},
        **scripts,
        **library,
        **({} if requirements is None else {REQUIREMENTS_PATH: requirements}),
        **({WHEELS_LIST: "".join(f"{wheel.digest}  {wheel.name}\n" for wheel in wheels).encode()} if wheels else {}),
    }
    return ImageContent(repository=REPOSITORY, flavour=spec.flavour, files=files, executables=frozenset(scripts))


def is_locked(name: str) -> bool:
    """Return whether a wheel is one that a lock names. All others are for your own packages."""
    return name.lower().startswith("torch-")


def context_path(name: str) -> str:
    """Return where the build context has a wheel."""
    return f"{LOCKED_WHEELS if is_locked(name) else EXTRA_WHEELS}/{name}"


def listed_wheels(content: ImageContent) -> tuple[Wheel, ...]:
    """Return the wheels of the folder whose content is part of the image's tag."""
    lines = [line.partition("  ") for line in content.files.get(WHEELS_LIST, b"").decode().split("\n") if line]
    return tuple(Wheel(name=name, digest=digest) for digest, _, name in lines)


def recipe_bases() -> tuple[str, ...]:
    """Return the bases of all flavors, each once."""
    return tuple(sorted({recipe.base for recipe in _RECIPES.values()}))


def needed_bases(content: ImageContent) -> tuple[str, ...]:
    """Return the images that the Dockerfile starts from, each once, in its order."""
    lines = [line.split() for line in content.files["Dockerfile"].decode().splitlines() if line.startswith("FROM ")]
    stages = {words[3] for words in lines if len(words) > 3}
    return tuple(dict.fromkeys(words[1] for words in lines if words[1] not in stages))


def _render(templates: Mapping[str, bytes], name: str, values: Mapping[str, object]) -> bytes:
    import jinja2  # noqa: PLC0415  (not every start of kit renders)

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda path: templates[path].decode()),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # noqa: S701  (a Dockerfile is not HTML; the filter "shell" quotes what a person wrote)
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["shell"] = shlex.quote
    return environment.get_template(name).render(values).encode()
