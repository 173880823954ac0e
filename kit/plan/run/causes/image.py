"""Rules for software that the image lacks or has in the wrong version."""

from __future__ import annotations

from kit.plan.run.causes.rule import BUILD, Rule

_LOADER = "loading shared libraries: {library:%s}: cannot open"
_IMPORT = "Error: {library:%s}: cannot open shared object file"
_DRIVER = ("libcuda.so", "libnvidia-")
_TOOLKIT = (
    "libcuda",
    "libcudnn",
    "libcublas",
    "libcufft",
    "libcurand",
    "libcusolver",
    "libcusparse",
    "libnccl",
    "libnv",
)
_PYTORCH = (
    "below image: in kit.yaml, write frameworks: [pytorch]; that image has no Horovod, and torch.distributed connects "
    f"its ranks (a base of your own must have PyTorch itself). Then {BUILD}"
)


def _libraries(form: str, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(form % name for name in names)


IMAGE = (
    Rule(
        name="library-driver",
        text="the container lacks {library}, a library of the NVIDIA driver",
        hint="install the driver and nvidia-container-toolkit on the VM and deploy again; without GPUs, "
        "set image.flavour to cpu; list the GPUs: kit exec {host} -- nvidia-smi -L",
        says=_libraries(_LOADER, _DRIVER),
        raised=_libraries(_IMPORT, _DRIVER),
    ),
    Rule(
        name="library-cuda",
        text="the image lacks the CUDA library {library}",
        hint="set image.flavour in kit.yaml, to cuda-tensorflow for example, or install a package that "
        f"matches the image's CUDA, then {BUILD}",
        says=_libraries(_LOADER, _TOOLKIT),
        raised=_libraries(_IMPORT, _TOOLKIT),
    ),
    Rule(
        name="library",
        text="the image lacks the shared library {library}",
        hint=f"add the Debian package that contains it to image.packages in kit.yaml, then {BUILD}",
        says=("loading shared libraries: {library}: cannot open",),
        raised=("Error: {library}: cannot open shared object file",),
    ),
    Rule(
        name="glibc",
        text="a program, or a package, was built for a newer system than the image's: it needs {version}",
        hint="pin an older version of the package in image.pip in kit.yaml, build your own program in the image, or "
        f"use a newer image.base, then {BUILD}",
        says=(
            "version `{version:GLIBC}' not found (required by ",
            "version `{version:CXXABI}' not found (required by ",
        ),
    ),
    Rule(
        name="undefined-symbol",
        text="a compiled extension was built for another version of a library that it uses",
        hint=f"pin versions that match each other in image.pip in kit.yaml, then {BUILD}",
        raised=(
            "ImportError: …: undefined symbol: ",
            "NotFoundError: …: undefined symbol: ",
            "OSError: …: undefined symbol: ",
        ),
    ),
    Rule(
        name="numpy-abi",
        text="a package was built for another version of NumPy than the image has",
        hint="pin numpy in image.pip in kit.yaml to the version that the package was built for (usually "
        f"'numpy<2'), then {BUILD}",
        says=("A module that was compiled using NumPy 1.x cannot be run in",),
        raised=(
            "numpy.dtype size changed, may indicate binary incompatibility",
            "module compiled against API version ",
            "numpy.core.multiarray failed to import",
            "AttributeError: _ARRAY_API not found",
        ),
    ),
    Rule(
        name="horovod-torch",
        text="Horovod in the image was built without horovod.torch",
        hint="none of kit's images has Horovod for PyTorch: use torch.distributed, and below image: in kit.yaml, write "
        f"frameworks: [pytorch] (a base of your own must have Horovod for PyTorch itself), then {BUILD}",
        says=("Extension horovod.torch has not been built: ",),
        raised=("AttributeError: module 'horovod.torch' has no attribute 'init'",),
    ),
    Rule(
        name="horovod-extension",
        text="Horovod in the image was built without {extension}",
        hint="correct image.frameworks (or image.flavour) in kit.yaml, which sets what Horovod is built "
        f"for, then {BUILD}",
        says=("Extension {extension:horovod.} has not been built: ",),
        raised=("AttributeError: module '{extension:horovod.}' has no attribute 'init'",),
    ),
    Rule(
        name="no-pytorch",
        text="the image has no PyTorch",
        hint=_PYTORCH,
        raised=("ModuleNotFoundError: No module named 'torch'",),
    ),
    Rule(
        name="no-torchrun",
        text="the image has no PyTorch, whose torchrun starts the ranks",
        hint=_PYTORCH,
        says=("kit-torchrun: torchrun: No such file or directory",),
    ),
    Rule(
        name="no-horovod",
        text="the image has no Horovod",
        hint="kit's image of PyTorch has none: use torch.distributed there; for TensorFlow or MXNet, remove pytorch "
        f"from image.frameworks in kit.yaml (a base of your own must have Horovod itself), then {BUILD}",
        raised=("ModuleNotFoundError: No module named 'horovod'",),
    ),
    Rule(
        name="python-module",
        text="the image has no Python module {module}",
        hint="add its package to image.pip in kit.yaml (your own module must be in the folder that code: names), "
        f"then {BUILD}",
        says=("(ModuleNotFoundError: No module named '{module}')", "/python3: No module named {module}"),
        raised=("ModuleNotFoundError: No module named '{module}'",),
    ),
    Rule(
        name="python-import",
        text="the Python module {module} has no {name}: it has the wrong version, or another file has the same name",
        hint="rename your file if it has the module's name; otherwise pin the module's version in "
        f"image.pip in kit.yaml, then {BUILD}",
        raised=(
            "ImportError: cannot import name '{name}' from '{module}'",
            "ImportError: cannot import name '{name}' from partially initialized module '{module}'",
        ),
    ),
    Rule(
        name="compiler",
        text="the program compiles code (torch.compile, Triton or an extension), but the image lacks a compiler, or "
        "Python's headers",
        hint=f"add g++ and python3-dev (for extensions, also ninja-build) to image.packages in kit.yaml, then {BUILD}",
        raised=(
            "Failed to find C compiler. Please specify via CC",
            "No working C++ compiler found in ",
            "Ninja is required to load C++ extensions",
        ),
        says=("fatal error: Python.h: No such file or directory",),
    ),
    Rule(
        name="script",
        text="the container has no {file}",
        hint="put it into the folder that code: in kit.yaml names, where .gitignore or .kitignore does not exclude it; "
        "write its path from the top of that folder",
        says=("can't open file '{file}': [Errno 2] No such file or directory",),
    ),
    Rule(
        name="mpirun-program",
        text="the image lacks {command}, which every run needs",
        hint=f"use another image.base, or add its package to image.packages in kit.yaml, then {BUILD}",
        says=(
            "Executable: {command}",
            "kit-launch: [Errno 2] No such file or directory: '{command}'",
            ": {command:orted}: command not found",
            ": {command:orted}: No such file or directory",
            ": …/{command:orted}: No such file or directory",
        ),
        kind="mpirun",
    ),
    Rule(
        name="python-script",
        text="{script}.py is a Python script, and the image has no command of that name",
        hint="if it is in the folder that code: names, start it with Python: kit run -- python {script}.py",
        says=(
            "kit-rank: {script}.py: No such file or directory",
            ": {script}.py: command not found",
            ": {script}.py: not found",
        ),
        exit_code=127,
    ),
    Rule(
        name="python-script-mode",
        text="{script}.py is a Python script that cannot start itself: its mode lacks x, or it has no #! line",
        hint="start it with Python: kit run -- python {script}.py",
        says=(
            ": {script}.py: Permission denied",
            ": {script}.py: Exec format error",
            ": {script}.py: cannot execute binary file",
        ),
        exit_code=126,
    ),
    Rule(
        name="command",
        text="the image has no command {command}",
        hint="add its package to image.packages or image.pip in kit.yaml (your own script must be in the folder that "
        f"code: names; write ./SCRIPT), then {BUILD}",
        says=(
            "kit-rank: {command}: No such file or directory",
            ": {command}: command not found",
            ": {command}: not found",
        ),
        exit_code=127,
    ),
    Rule(
        name="not-a-program",
        text="{file} cannot be executed here: it has no #! line, or is built for another architecture",
        hint="name the interpreter: kit run -- bash {file}",
        says=(": {file}: Exec format error", ": {file}: cannot execute binary file"),
        exit_code=126,
    ),
    Rule(
        name="not-executable",
        text="{file} is not executable: its mode lacks x",
        hint="use chmod +x, or name the interpreter: kit run -- bash {file}",
        says=(": {file}: Permission denied",),
        exit_code=126,
    ),
)
