"""The locks of Python packages: each entry has a version and hashes, none names an index, and none is out of date."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest
from packaging.markers import Marker, default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
RUN, DEV = ROOT / "requirements" / "run.txt", ROOT / "requirements" / "dev.txt"
LOCKS = (RUN, DEV, *sorted((ROOT / "images" / "requirements").glob("*.txt")))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")
PYTHONS = ("3.11", "3.12", "3.13")


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One entry of a lock: `name==version ; marker`, and its hashes."""

    requirement: Requirement
    hashes: int

    @property
    def name(self) -> str:
        return canonicalize_name(self.requirement.name)

    @property
    def version(self) -> str:
        return str(self.requirement.specifier).removeprefix("==")


def entries(lock: Path) -> list[Entry]:
    """Return the entries of a lock. Fail on anything else in it, such as an option or an address."""
    found = []
    for line in lock.read_text().replace("\\\n", " ").splitlines():
        text, *hashes = line.split("--hash=")
        assert all(HASH.fullmatch(f"--hash={value.strip()}") for value in hashes), line
        found.append(Entry(requirement=Requirement(text.strip()), hashes=len(hashes)))
    return found


def linux(python: str, machine: str = "x86_64") -> dict[str, str]:
    """Return the environment of the markers for a CPython on Linux."""
    here = {key: str(value) for key, value in default_environment().items()}
    return here | {
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "python_version": python,
        "python_full_version": f"{python}.1",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "os_name": "posix",
        "platform_machine": machine,
    }


def applies(marker: Marker | None, environment: dict[str, str]) -> bool:
    return marker is None or marker.evaluate(environment)


def wanted(extras: Iterable[str]) -> list[Requirement]:
    """Return what pyproject.toml asks for: to run kit, to build it, and for each of `extras`."""
    project = PROJECT["project"]
    lists = [PROJECT["build-system"]["requires"], project["dependencies"]]
    lists += [project["optional-dependencies"][extra] for extra in extras]
    return [Requirement(text) for texts in lists for text in texts]


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: str(lock.relative_to(ROOT)))
def test_each_entry_has_a_version_and_hashes_and_no_index(lock: Path) -> None:
    for entry in entries(lock):
        assert re.fullmatch(r"==[^*,]+", str(entry.requirement.specifier)), entry
        assert entry.requirement.url is None
        assert entry.hashes > 0, entry


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize(("lock", "extras"), [(RUN, ()), (DEV, ("dev",))], ids=["run", "dev"])
def test_a_lock_has_one_version_of_all_that_pyproject_asks_for(
    lock: Path, extras: tuple[str, ...], machine: str, python: str
) -> None:
    """If this fails after a change to pyproject.toml: scripts/lock kit."""
    environment = linux(python, machine)
    locked: dict[str, str] = {}
    for entry in entries(lock):
        if applies(entry.requirement.marker, environment):
            assert entry.name not in locked, f"two versions of {entry.name}"
            locked[entry.name] = entry.version
    for requirement in wanted(extras):
        version = locked.get(canonicalize_name(requirement.name))
        assert version is not None, f"{lock.name} lacks {requirement}: scripts/lock kit"
        assert requirement.specifier.contains(version, prereleases=True), f"{requirement} is locked as {version}"


def test_the_tests_run_with_the_versions_that_users_get() -> None:
    for python in PYTHONS:
        environment = linux(python)
        run, dev = (
            {entry.name: entry.version for entry in entries(lock) if applies(entry.requirement.marker, environment)}
            for lock in (RUN, DEV)
        )
        assert run.items() <= dev.items()


def test_what_builds_kit_is_locked() -> None:
    """scripts/venv builds kit without isolation. With isolation, pip would download hatchling without a hash."""
    names = {entry.name for entry in entries(RUN)}
    assert {"hatchling", "editables"} <= names
    script = (ROOT / "scripts" / "venv").read_text()
    assert "--require-hashes --no-deps" in script
    assert "--no-deps --no-build-isolation --editable ." in script


def test_the_tests_run_the_rclone_of_the_images() -> None:
    (image,) = entries(ROOT / "images/requirements/rclone.txt")
    (tests,) = [entry for entry in entries(DEV) if entry.name == image.name]
    assert (tests.version, tests.hashes) == (image.version, image.hashes)


@pytest.mark.parametrize(
    "line",
    [
        "--index-url https://pypi.example.com/simple",
        "jinja2 @ https://pypi.example.com/jinja2.whl --hash=sha256:" + "a" * 64,
        "jinja2>=3 --hash=sha256:" + "a" * 64,
        "jinja2==3.1.6 --hash=md5:" + "a" * 32,
        "jinja2==3.1.6",
    ],
)
def test_a_bad_lock_fails_these_tests(line: str, tmp_path: Path) -> None:
    lock = tmp_path / "bad.txt"
    lock.write_text(line + "\n")
    with pytest.raises((AssertionError, ValueError)):
        test_each_entry_has_a_version_and_hashes_and_no_index(lock)
