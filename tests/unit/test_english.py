"""scripts/check-english finds the refused words where users read them, and nowhere else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "scripts" / "check-english"


def check(*words: str) -> tuple[int, list[str]]:
    """Return the exit code and the printed lines."""
    done = subprocess.run([sys.executable, str(PROGRAM), *words], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


def test_the_tree_is_clean() -> None:
    assert check() == (0, [])


def test_comments_and_docstrings_are_clean() -> None:
    folders = [str(ROOT / name) for name in ("kit", "scripts", "images", "tests")]
    assert check("--comments", *folders) == (0, [])


def test_a_page_is_named_with_the_line_and_what_to_write(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    text = "Fine.\n\nThe container is made\nanew here.\nkit takes no\nnotice of it.\n"  # check-english: quoted
    page.write_text(text)
    code, lines = check(str(page))
    assert code == 1
    assert lines == [
        f"{page}:4: 'anew': write again; recreate, rewrite",  # check-english: quoted
        f"{page}:5: 'takes no notice': write ignore",  # check-english: quoted
    ]


@pytest.mark.parametrize(
    "text",
    [
        "```console\n$ kit ps\nthe rank is told\n```\n",  # check-english: quoted
        "The key `told` of the record.\n",  # check-english: quoted
        "See [the page](what-kit-told.md).\n",  # check-english: quoted
        "`…` stands for what differs. A standard image; an understanding.\n",
        "Print each line as it is printed.\n",
        "kit loads the rest of its own code.\n",
    ],
)
def test_code_and_plain_english_pass(tmp_path: Path, text: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    assert check(str(page)) == (0, [])


def test_of_a_module_what_it_prints_counts(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        '"""What the user is told."""\n\n'  # check-english: quoted
        "told = 'told'  # a name and a key\n"  # check-english: quoted
        "print(\n    'the rank '\n    f'{told} stands here'\n)\n"  # check-english: quoted
        "print('so many')  # check-english: quoted\n"
    )
    assert check(str(module)) == (1, [f"{module}:6: 'stands': write is, exists, is written"])  # check-english: quoted


def test_comments_and_docstrings_count_when_they_are_included(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    text = '"""What is told."""\n\n# Whoever reads this\n# takes no\n# notice.\nx = 1\n'  # check-english: quoted
    module.write_text(text)
    code, lines = check("--comments", str(module))
    assert code == 1
    assert [line.split(": ")[0].rpartition(":")[2] for line in lines] == ["1", "3", "4"]


@pytest.mark.parametrize(
    "literal",
    [
        r"'kit takes\nno notice'",  # check-english: quoted
        "('kit takes no '\n    'notice')",  # check-english: quoted
        "('kit takes no no'\n    f'tice of {kit}')",
        "('see:\\t'\n    r'kit takes no notice')",  # check-english: quoted
        "'''\n    kit takes no\n    notice'''",  # check-english: quoted
    ],
)
def test_words_are_noticed_wherever_a_literal_is_parted(tmp_path: Path, literal: str) -> None:
    module = tmp_path / "module.py"
    module.write_text(f"print({literal})\n")
    code, lines = check(str(module))
    assert code == 1
    assert len(lines) == 1


def test_of_a_shell_script_comments_do_not_count(tmp_path: Path) -> None:
    script = tmp_path / "script.sh"
    script.write_text("#!/bin/sh\n# told anew\necho fine  # anew\n")  # check-english: quoted
    assert check(str(script)) == (0, [])
    assert check("--comments", str(script))[0] == 1
    script.write_text("#!/bin/sh\nsay 'the file is written anew'\n")  # check-english: quoted
    assert check(str(script))[0] == 1


def test_none_of_python_is_no_english(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text("# The path is None without a folder.\nprint('the folder is none')\n")  # check-english: quoted
    assert check("--comments", str(module))[1] == [
        f"{module}:2: 'is none': write is missing, does not exist, is not a …"  # check-english: quoted
    ]


def test_an_unknown_option_is_refused() -> None:
    assert subprocess.run([sys.executable, str(PROGRAM), "--al"], capture_output=True, check=False).returncode == 2
