"""The file that `requirements:` names: what passes to pip, and which line is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.config.requirements import read_requirements
from kit.config.settings import load_spec
from kit.config.yaml import load_spec as load_text
from kit.errors import InputError, InputErrors
from kit.flows.image.content import content

GOOD = """\
# what train.py needs
pandas==2.1.4  # pinned
wandb[media]>=0.16 ; python_version > "3.8"
--extra-index-url https://example.com/simple
--find-links https://example.com/wheels
--pre
tqdm==4.66.1 \\
    --hash=sha256:00
timm @ https://example.com/timm.tar.gz
https://example.com/a-1.0-py3-none-any.whl
git+https://example.com/b.git@main#egg=b
private==${VERSION}

"""


def refused(path: Path, text: str) -> list[InputError]:
    path.write_text(text)
    with pytest.raises(InputErrors) as caught:
        read_requirements(path)
    return list(caught.value.problems)


def test_what_pip_reads_passes_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text(GOOD)
    assert read_requirements(path) == GOOD.encode()


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("pandas==", "is no requirement of pip"),
        ("pandas 2.1", "is no requirement of pip"),
        ("import pandas", "is no requirement of pip"),
        ("-r other.txt", "names another file"),
        ("-rother.txt", "names another file"),
        ("--constraint=other.txt", "names another file"),
        ("-e .", "names a folder or file of this machine"),
        ("./package", "names a folder or file of this machine"),
        ("../package", "names a folder or file of this machine"),
        (".", "names a folder or file of this machine"),
        ("/srv/a.whl", "names a folder or file of this machine"),
        ("a-1.0-py3-none-any.whl", "names a folder or file of this machine"),
        ("file:///srv/a.whl", "names a folder or file of this machine"),
        # As pip freeze prints what conda built.
        ("numpy @ file:///croot/numpy_1/work/dist/numpy-1.26.4-cp311-cp311-linux_x86_64.whl#sha256=00",
         "names a folder or file of this machine"),
        ("mine[extra]@file:../mine", "names a folder or file of this machine"),
        ("mine @ ./mine.whl", "names a folder or file of this machine"),
        ("--find-links ./wheels", "names a folder or file of this machine"),
        ("-fwheels", "names a folder or file of this machine"),
        ("-f file:///srv/wheels", "names a folder or file of this machine"),
        ("--find-links=/srv/wheels", "names a folder or file of this machine"),
    ],
)  # fmt: skip
def test_a_line_that_the_build_could_not_install_is_named(tmp_path: Path, line: str, why: str) -> None:
    path = tmp_path / "requirements.txt"
    (problem,) = refused(path, f"# first\npandas \\\n  ==2\n{line}\ntqdm\n")
    assert why in problem.message
    assert (problem.file, problem.line) == (str(path), 4)
    assert problem.hint


def test_all_lines_at_fault_are_named_at_once(tmp_path: Path) -> None:
    problems = refused(tmp_path / "requirements.txt", "a==\nb\n-r c\n")
    assert [problem.line for problem in problems] == [1, 3]


def test_a_file_that_is_missing_or_no_text(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no file") as missing:
        read_requirements(tmp_path / "none.txt")
    assert missing.value.hint is not None
    assert "requirements:" in missing.value.hint
    with pytest.raises(InputError, match="a folder"):
        read_requirements(tmp_path)
    (tmp_path / "binary").write_bytes(b"pandas\n\xff\xfe")
    with pytest.raises(InputError, match="UTF-8") as binary:
        read_requirements(tmp_path / "binary")
    assert binary.value.line == 2


def test_the_path_is_relative_to_kit_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "kit.yaml").write_text("requirements: needs.txt\n")
    (tmp_path / "project" / "needs.txt").write_text("tqdm\n")
    monkeypatch.chdir(tmp_path)
    spec = load_spec(tmp_path / "project", flags={}, environ={})
    assert spec.requirements == str(tmp_path / "project" / "needs.txt")
    made = content(spec)
    assert made.files["extra/requirements.txt"] == b"tqdm\n"
    # From a variable: relative to the current folder.
    (tmp_path / "other.txt").write_text("pandas\n")
    other = load_spec(tmp_path / "project", flags={}, environ={"KIT_REQUIREMENTS": "other.txt"})
    assert content(other).files["extra/requirements.txt"] == b"pandas\n"
    assert content(other).tag != made.tag


LOGINS = [
    "--extra-index-url https://ann:s3cret@pypi.corp/simple",
    "--index-url=https://ann:s3/cret@pypi.corp/simple",
    "mypkg @ git+https://ann:s3cret@git.corp/team/mypkg@v1",
    "mypkg @ git+https://s3cret@git.corp/team/mypkg",
    "mypkg @ https://s3cret:@git.corp/team/mypkg.tar.gz",
    "mypkg @ git+ssh://git:s3cret@git.corp/team/mypkg",
    "https://ann:s3cret@git.corp/mypkg.whl",
]


@pytest.mark.parametrize(
    "line", [*LOGINS, "# --index-url https://ann:s3cret@pypi.corp/simple", "tqdm  # at " + LOGINS[-1]]
)
def test_a_login_is_refused_and_not_printed(tmp_path: Path, line: str) -> None:
    path = tmp_path / "requirements.txt"
    (problem,) = refused(path, f"pandas\n{line}\n")
    assert "there is a login in it" in problem.message
    assert (problem.file, problem.line) == (str(path), 2)
    assert "image.wheels" in str(problem.hint)
    assert "s3" not in f"{problem}{problem.hint}"


@pytest.mark.parametrize("requirement", LOGINS[2:])
def test_a_login_in_image_pip_is_refused_too(requirement: str) -> None:
    with pytest.raises(InputErrors) as caught:
        load_text(f"image:\n  pip:\n    - tqdm\n    - {requirement}\n", source="kit.yaml")
    (problem,) = caught.value.problems
    assert problem.message.startswith("image.pip, item 2: there is a login in it")
    assert (problem.file, problem.line) == ("kit.yaml", 4)
    assert "image.wheels" in str(problem.hint)
    assert "s3" not in f"{problem}{problem.hint}"


NO_LOGINS = [
    "mypkg @ git+ssh://git@git.corp/team/mypkg@v1",
    "mypkg @ git+https://git.corp:8443/team/mypkg@v1",
    "mypkg @ git+https://[fd00::1]:8443/team/mypkg@v1",
    "mypkg @ git+https://${TOKEN}@git.corp/team/mypkg",
    "mypkg @ git+https://ann:${TOKEN}@git.corp/team/mypkg",
    "mypkg @ https://pypi.corp/a@b/mypkg.whl",
]


@pytest.mark.parametrize("requirement", NO_LOGINS)
def test_an_address_without_a_login_passes(tmp_path: Path, requirement: str) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text(f"{requirement}\n# ask ann@corp.example, mailto:ann@corp.example\n")
    assert read_requirements(path)
    assert load_text(f"image: {{pip: ['{requirement}']}}", source="kit.yaml").image.pip == (requirement,)


@given(st.text())
def test_any_text_is_passed_or_refused(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("any") / "requirements.txt"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        read_requirements(path)
    except (InputError, InputErrors):
        return
