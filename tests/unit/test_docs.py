"""The documentation matches the tree: links, commands, named tests. It contains nothing from one machine."""

from __future__ import annotations

import ast
import functools
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.cli.parser import parse
from kit.config.yaml import load_spec
from kit.errors import InputError

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\[[^\]]*\]\(([^()\s]+)\)")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
TEST = re.compile(r"\btest_\w+")
# The top folders of a Linux machine, and folders that an example may use there.
COMMON = frozenset(
    [
        "bin",
        "boot",
        "data",
        "dev",
        "etc",
        "home",
        "lib",
        "mnt",
        "opt",
        "proc",
        "root",
        "run",
        "sbin",
        "srv",
        "sys",
        "tmp",
        "usr",
        "var",
    ]
)


def files() -> Iterator[Path]:
    """Yield every file of the tree, except in folders whose names begin with a dot, where tools keep what they need."""
    for folder, folders, names in os.walk(ROOT):
        skipped = {"__pycache__", "dist", "build"}
        folders[:] = sorted(
            name for name in folders if name == ".ci" or (not name.startswith(".") and name not in skipped)
        )
        yield from (Path(folder, name) for name in sorted(names))


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


PAGES = [path for path in files() if path.suffix == ".md"]
pages = pytest.mark.parametrize("page", PAGES, ids=name)


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text())


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, in GitHub's form."""
    titles = re.findall(r"^#+ +(.*?) *$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def commands(text: str, *, console: bool) -> Iterator[list[str]]:
    """Yield kit's arguments for each line that calls kit. In a console, only lines with a prompt count."""
    for line in text.replace("\\\n", " ").splitlines():
        if console and not line.startswith("$ "):
            continue
        lexer = shlex.shlex(line.removeprefix("$ "), posix=True, punctuation_chars="|&;<>")
        lexer.whitespace_split = True
        words = list(lexer)
        while words:
            end = next((i for i, word in enumerate(words) if set(word) <= set("|&;<>")), len(words))
            call, words = words[:end], words[end + 1 :]
            while call and re.fullmatch(r"[A-Z_]+=.*", call[0]):
                call = call[1:]
            if call and call[0] == "kit":
                yield call[1:]


def test_there_is_documentation() -> None:
    assert {"README.md", "CHANGELOG.md", "docs/how-it-works.md", "docs/cli.md"} <= {name(page) for page in PAGES}


@pages
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in LINK.findall(prose(page)):
        if re.match(r"https?://", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        assert file.is_relative_to(ROOT), target
        if anchor:
            assert anchor in anchors(file), target


@pages
def test_every_command_that_is_shown_parses(page: Path) -> None:
    for language, text in FENCE.findall(page.read_text()):
        if language not in ("console", "sh", "bash"):
            continue
        for words in commands(text, console=language == "console"):
            try:
                parse(words)
            except InputError as error:
                pytest.fail(f"kit {shlex.join(words)}: {error}")


@pages
def test_every_command_in_a_sentence_parses(page: Path) -> None:
    for code in CODE.findall(prose(page)):
        # With a placeholder or a missing piece, it is not a whole command.
        if not code.startswith("kit ") or re.search(r"[<…{]|\bDIR\b|\bFILE\b", code):
            continue
        for words in commands(code, console=False):
            try:
                parse(words)
            except InputError as error:
                # `kit lab`, `kit ssh`: named, not called.
                if not re.search(r"needs one of|(is|are) missing$", error.message):
                    pytest.fail(f"{code}: {error}")


@pages
def test_every_piece_of_kit_yaml_is_valid(page: Path) -> None:
    for language, text in FENCE.findall(page.read_text()):
        if language == "yaml":
            load_spec(text, source=name(page))


def messages() -> str:
    """Return all text of kit's source and of programs of the image and its build, with … for values."""
    programs = ("images/bin/start.sh", "images/layer/prepare", "images/cuda/get-nvcc", "images/rclone/get-rclone")
    texts = [re.sub(r"\$(\w+|\{[^}]*\})", "…", (ROOT / program).read_text()) for program in programs]
    for path in (ROOT / "kit").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
            elif isinstance(node, ast.JoinedStr):
                texts.append(
                    "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
                )
    return "\n".join(texts)


def test_the_faults_that_troubleshooting_explains_are_what_kit_says() -> None:
    text = prose(ROOT / "docs/troubleshooting.md")
    tables = re.findall(r"^\| (?:kit|start\.sh) says \|.*\n\|[-|]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    rows = [row for table in tables for row in table.splitlines()]
    assert len(rows) > 30
    known = messages()
    for row in rows:
        messages_of_row = re.sub(r" \(.*\)$", "", row.split("|")[1].strip())
        for message in messages_of_row.split(";"):
            for piece in message.split("…"):
                assert piece.strip(" '×:") in known, messages_of_row


def test_commands_are_found_in_consoles_and_scripts() -> None:
    shown = "$ kit run -- sh -c 'a | b' | sort\nkit is no command here\n$ A=1 kit ps && kit down  # both\n"
    assert list(commands(shown, console=True)) == [["run", "--", "sh", "-c", "a | b"], ["ps"], ["down"]]
    assert list(commands("kit deploy \\\n  --dry-run > plan", console=False)) == [["deploy", "--dry-run"]]


@pages
def test_every_path_of_the_tree_that_is_named_is_there(page: Path) -> None:
    # A run's folder is made by kit, and what .git holds differs between clones.
    tops = {path.name for path in ROOT.iterdir() if path.is_dir()} - {"run", ".git"}
    for code in CODE.findall(prose(page)):
        path = code.partition("::")[0]
        if re.fullmatch(r"[\w.-]+(/[\w.-]+)+/?", path) and path.split("/")[0] in tops:
            assert (ROOT / path).exists(), code


@functools.cache
def sources_of_tests() -> dict[Path, str]:
    """Return the text of each Python file of the tests."""
    return {path: path.read_text() for path in files() if path.suffix == ".py" and "tests" in path.parts}


@pages
def test_every_test_that_is_named_is_there(page: Path) -> None:
    sources = sources_of_tests()
    known = {test for text in sources.values() for test in re.findall(r"def (test_\w+)", text)}
    known |= {path.stem for path in sources}
    for code in CODE.findall(prose(page)):
        assert set(TEST.findall(code)) <= known, code
        file, colons, test = code.partition("::")
        if colons and file.endswith(".py"):
            assert f"def {test}(" in sources[ROOT / file], code
    for test, target in re.findall(r"\[`(test_\w+)`\]\(([^)]+)\)", prose(page)):
        file_there = (page.parent / target).resolve()
        assert test == file_there.stem or f"def {test}(" in sources[file_there], test


def test_nothing_names_one_machine() -> None:
    own = [str(path) for path in (ROOT, Path.home()) if len(path.parts) > 2]
    for path in files():
        text = path.read_bytes().decode(errors="replace")
        paths = [word for word in own if re.search(re.escape(word) + r"(?![\w.-])", text)]
        assert not paths, f"{name(path)} names {paths[0]}"


@pages
def test_paths_begin_where_every_machine_has_them(page: Path) -> None:
    text = re.sub(r"https?://\S+", "", page.read_text())
    for path, top in re.findall(r"(?<![\w.~>)\]}*/-])(/([a-z]\w*)/[\w./-]*)", text):
        assert top in COMMON, path
        assert not re.match(r"/(home|Users)/\w", path), f"{path} is one person's"
