"""What the image lacks, or has in the wrong version."""

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


def _libraries(form: str, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(form % name for name in names)


IMAGE = (
    Rule(
        name="library-driver",
        text="the NVIDIA driver's library {library} is not in the container",
        hint="the VM needs driver and nvidia-container-toolkit, then deploy again; without GPUs image.flavour is cpu; "
        "what is there: kit exec {host} -- nvidia-smi -L",
        says=_libraries(_LOADER, _DRIVER),
        raised=_libraries(_IMPORT, _DRIVER),
    ),
    Rule(
        name="library-cuda",
        text="CUDA's library {library} is not in the image",
        hint="set image.flavour in kit.yaml to cuda-tensorflow, say, or take a package for the image's CUDA, "
        f"then {BUILD}",
        says=_libraries(_LOADER, _TOOLKIT),
        raised=_libraries(_IMPORT, _TOOLKIT),
    ),
    Rule(
        name="library",
        text="the shared library {library} is not in the image",
        hint=f"add the Debian package that has it to image.packages in kit.yaml, then {BUILD}",
        says=("loading shared libraries: {library}: cannot open",),
        raised=("Error: {library}: cannot open shared object file",),
    ),
    Rule(
        name="undefined-symbol",
        text="a compiled extension was built for another version of what it uses",
        hint=f"take packages that fit each other into image.pip in kit.yaml, with their versions, then {BUILD}",
        raised=(
            "ImportError: …: undefined symbol: ",
            "NotFoundError: …: undefined symbol: ",
            "OSError: …: undefined symbol: ",
        ),
    ),
    Rule(
        name="numpy-abi",
        text="a package was built for another version of NumPy than the image has",
        hint=f"pin numpy in image.pip in kit.yaml to what the package was built for ('numpy<2', mostly), then {BUILD}",
        says=("A module that was compiled using NumPy 1.x cannot be run in",),
        raised=(
            "numpy.dtype size changed, may indicate binary incompatibility",
            "module compiled against API version ",
            "numpy.core.multiarray failed to import",
            "AttributeError: _ARRAY_API not found",
        ),
    ),
    Rule(
        name="horovod-extension",
        text="Horovod in the image was built without {extension}",
        hint=f"image.frameworks (or image.flavour) in kit.yaml names what it is built for; correct it, then {BUILD}",
        says=("Extension {extension:horovod.} has not been built: ",),
        raised=("AttributeError: module '{extension:horovod.}' has no attribute 'init'",),
    ),
    Rule(
        name="python-module",
        text="the image has no Python module {module}",
        hint="add its package to image.pip in kit.yaml (for a module of your own, its folder to PYTHONPATH in env:), "
        f"then {BUILD}",
        says=("(ModuleNotFoundError: No module named '{module}')", "/python3: No module named {module}"),
        raised=("ModuleNotFoundError: No module named '{module}'",),
    ),
    Rule(
        name="python-import",
        text="the Python module {module} has no {name}: it is another version than the program wants, or another file",
        hint="is a file of yours called like the module? Else pin its version in image.pip in kit.yaml, "
        + f"then {BUILD}",
        raised=(
            "ImportError: cannot import name '{name}' from '{module}'",
            "ImportError: cannot import name '{name}' from partially initialized module '{module}'",
        ),
    ),
    Rule(
        name="script",
        text="there is no {file} in the container",
        hint="its folder must be on every host, and a line of volumes: in kit.yaml; then run: kit deploy",
        says=("can't open file '{file}': [Errno 2] No such file or directory",),
    ),
    Rule(
        name="mpirun-program",
        text="the image has no {command}, which every run needs",
        hint=f"take another image.base, or add it to image.packages in kit.yaml, then {BUILD}",
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
        name="command",
        text="there is no command {command} in the image",
        hint="add its package to image.packages or image.pip in kit.yaml (for a script of your own, see volumes:), "
        f"then {BUILD}",
        says=(
            "kit-rank: {command}: No such file or directory",
            ": {command}: command not found",
            ": {command}: not found",
        ),
        exit_code=127,
    ),
    Rule(
        name="not-a-program",
        text="{file} is no program for this machine: it has no #! line, or is for another architecture",
        hint="name the interpreter: kit run -- bash {file}",
        says=(": {file}: Exec format error", ": {file}: cannot execute binary file"),
        exit_code=126,
    ),
    Rule(
        name="not-executable",
        text="{file} may not be executed: its mode has no x",
        hint="chmod +x, or name the interpreter: kit run -- bash {file}",
        says=(": {file}: Permission denied",),
        exit_code=126,
    ),
)
