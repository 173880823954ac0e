"""The porter, the look and the readers run on the VMs' own Python: 3.6 or newer, with nothing installed."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import kit
import kit.remote.ship.porter
from kit.remote import scripts
from kit.remote.code import gatherer
from kit.remote.doctor import probe as doctor_probe
from kit.remote.doctor import probes, read
from kit.remote.doctor import reader as doctor_reader
from kit.remote.results import far
from kit.remote.results import reader as results_reader
from kit.remote.ship import porters

FOLDER = Path(kit.remote.ship.porter.__file__).parent
FILES = sorted(FOLDER.glob("*.py"))
PROBE = Path(doctor_probe.__file__).parent
READER = Path(results_reader.__file__).parent
DOCTOR = Path(doctor_reader.__file__).parent
# What is sent as a package: the folder, and its modules in the order in which they are sent.
PACKAGES = [
    (FOLDER, porters._MODULES), (FOLDER, gatherer.MODULES), (PROBE, probes.MODULES), (READER, far.MODULES),
    (DOCTOR, read.MODULES),
]  # fmt: skip
IDS = ["porter", "gather", "probe", "reader", "doctor"]
ROOT = Path(kit.__file__).parent.parent
# They catch what a socket raises, and also run on old Pythons.
OTHERS = [
    *sorted((ROOT / "images").rglob("*.py")),
    *(ROOT / "kit/remote" / name for name in ("bench/probe/tcp.py", "tune/wire_probe.py")),
]
LOOK = [Path(scripts.__file__).with_name(f"{part}.py") for parts in scripts._PROGRAMS.values() for part in parts]
# Of the standard library, what came after 3.6 and reads as if it had always been there.
NEWER_NAMES = {
    "ThreadingHTTPServer", "breakpoint", "cache", "cached_property", "capture_output", "chdir", "create_server",
    "fromisoformat", "is_relative_to", "missing_ok", "monotonic_ns", "nullcontext", "perf_counter_ns", "randbytes",
    "removeprefix", "removesuffix", "time_ns", "to_thread", "unraisablehook", "excepthook", "file_digest", "batched",
    "dirs_exist_ok", "SimpleQueue", "TLSVersion", "minimum_version", "unparse", "aclosing",
}  # fmt: skip
# What catches the timeout of a socket. The first does so since Python 3.10.
CATCHING = {"TimeoutError", "socket.timeout", "OSError", "Exception"}
NEWER_TYPES = {"Final", "Literal", "Protocol", "TypedDict", "Self", "ParamSpec", "TypeAlias", "final", "Annotated"}
NEWER_KEYWORDS = {"capture_output", "text", "strict", "missing_ok", "dirs_exist_ok", "encoding_errors", "key_or_none"}
NEWER_MODULES = {"dataclasses", "contextvars", "graphlib", "zoneinfo", "tomllib"}


def nodes(path: Path) -> Iterator[ast.AST]:
    return ast.walk(ast.parse(path.read_text(), str(path)))


def imported(path: Path) -> Iterator[tuple[int, str, str]]:
    """(level, module, name) of each import."""
    for node in nodes(path):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield 0, alias.name, ""
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield node.level, node.module or "", alias.name


def newer(path: Path) -> list[str]:
    """Return the names that Python 3.6 does not have."""
    lines = []
    for node in nodes(path):
        if isinstance(node, ast.Attribute) and node.attr in NEWER_NAMES:
            lines.append(node.attr)
        elif isinstance(node, ast.Name) and node.id in NEWER_NAMES | NEWER_TYPES:
            lines.append(node.id)
        elif isinstance(node, ast.keyword) and node.arg in NEWER_KEYWORDS | NEWER_NAMES:
            lines.append(node.arg or "")
        elif isinstance(node, ast.NamedExpr):
            lines.append(":=")
    for level, module, name in imported(path):
        if module == "__future__" or name in NEWER_NAMES | NEWER_TYPES:
            lines.append(f"{module}.{name}")
        if not level and module.split(".")[0] in NEWER_MODULES:
            lines.append(module)
    return lines


@pytest.mark.parametrize(
    "path",
    [*FILES, *PROBE.glob("*.py"), *READER.glob("*.py"), *DOCTOR.glob("*.py"), *LOOK],
    ids=lambda path: path.name,
)
def test_each_module_is_python_3_6(path: Path) -> None:
    ast.parse(path.read_text(), str(path), feature_version=(3, 6))
    assert newer(path) == []


def timeouts(path: Path) -> list[int]:
    """Return the lines that catch a TimeoutError alone. Before Python 3.10, a socket raises another error."""
    return [
        node.lineno
        for node in nodes(path)
        if isinstance(node, ast.ExceptHandler)
        and node.type is not None
        and {"TimeoutError"} == {ast.unparse(one) for one in getattr(node.type, "elts", [node.type])} & CATCHING
    ]


@pytest.mark.parametrize(
    "path",
    [*FILES, *PROBE.glob("*.py"), *READER.glob("*.py"), *DOCTOR.glob("*.py"), *LOOK, *OTHERS],
    ids=lambda path: path.name,
)
def test_the_timeout_of_a_socket_is_caught_on_each_python(path: Path) -> None:
    assert timeouts(path) == []


@pytest.mark.parametrize(
    ("names", "lines"),
    [
        ("TimeoutError", [3]),
        ("(ValueError, TimeoutError)", [3]),
        ("(socket.timeout, TimeoutError)", []),
        ("OSError", []),
    ],
)
def test_a_timeout_that_only_a_new_python_catches_is_found(names: str, lines: list[int], tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(f"try:\n    pass\nexcept {names}:\n    pass\n")
    assert timeouts(tmp_path / "one.py") == lines


@pytest.mark.parametrize("parts", [scripts._PROGRAMS["read_runs"], ("folder", *scripts._PROGRAMS["observe"])])
def test_no_part_of_a_program_hides_a_name_of_another_one(parts: tuple[str, ...]) -> None:
    """The parts are one text, which the shell puts together."""
    names = []
    for part in parts:
        text = Path(scripts.__file__).with_name(f"{part}.py").read_text()
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                names.append(node.name)
            elif isinstance(node, ast.Assign):
                names += [one.id for target in node.targets for one in ast.walk(target) if isinstance(one, ast.Name)]
    assert {name for name in names if names.count(name) > 1} == {"MYPY"}


@pytest.mark.parametrize(
    "text",
    [
        "from __future__ import annotations",
        "import dataclasses",
        "from contextlib import nullcontext",
        "if (a := 1): pass",
        "'a'.removeprefix('b')",
        "subprocess.run(['a'], capture_output=True)",
        "http.server.ThreadingHTTPServer",
        "socket.create_server(('', 0))",
    ],
)
def test_something_newer_is_found(text: str, tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(text)
    assert newer(tmp_path / "one.py") != []


def imports_of(folder: Path, name: str) -> set[str]:
    """Return which modules of its own package a module imports."""
    return {module or word for level, module, word in imported(folder / f"{name}.py") if level}


@pytest.mark.parametrize(("folder", "modules"), PACKAGES, ids=IDS)
def test_each_module_imports_the_standard_library_and_its_own_package_alone(
    folder: Path, modules: tuple[str, ...]
) -> None:
    for name in modules:
        for level, module, _ in imported(folder / f"{name}.py"):
            assert level == 1 or (not level and module.split(".")[0] in sys.stdlib_module_names)


def test_every_module_is_sent() -> None:
    for folder in {folder for folder, _ in PACKAGES}:
        sent = {name for other, modules in PACKAGES if other == folder for name in modules}
        assert {path.stem for path in folder.glob("*.py")} - {"__init__"} == sent


@pytest.mark.parametrize(("folder", "modules"), PACKAGES, ids=IDS)
def test_all_modules_are_sent_each_after_those_that_it_imports(folder: Path, modules: tuple[str, ...]) -> None:
    for index, name in enumerate(modules):
        assert imports_of(folder, name) <= set(modules[:index])
