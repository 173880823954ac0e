"""The patterns of .kitignore leave out what git leaves out by the same ones."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from kit.remote.code import patterns
from kit.remote.code.listing import listing
from tests.fakes.repository import write

FILES = [
    "a.py", "b.txt", "B.py", "d/a.py", "d/e/a.py", "d/e/b.txt", "x/y/z/a.py", "x/y/b", "build/o", "src/build/o",
    "d/build", "foo/bar/a", "foo/.hid", "[x]", "a\\b", "é.py", "sp ", "x/[y]/q", "#h", "!n", "x-y", "]",
    "data/big", "data/small",
]  # fmt: skip
ALLOW_LISTS = [
    ["*", "!*/", "!*.py"],
    ["*", "!*/", "!*.py", "!.kitignore", "build/"],
    ["/*", "!/d", "/d/*", "!/d/e"],
    ["/*", "!/src/", "!/x"],
    ["**", "!**/", "!d/**/*.py"],
    ["*", "!d", "!d/**"],
    ["*", "!/d/", "!/d/e/", "!/d/e/*.txt"],
    ["*.*", "!*.py"],
]
SINGLE = [
    ["d/**"], ["d/**/"], ["!d/**", "*"], ["**/build"], ["build"], ["build/"], ["/build"], ["x/**/a.py"], ["**/e/*.py"],
    ["?.py"], ["??.py"], ["[!a-c].*"], ["[[:upper:]]*"], ["\\#h", "\\!n", "#h"], ["sp "], ["sp\\ "], ["[x]"],
    ["\\[x\\]"],
    ["a\\\\b"], ["[a-"], ["\\"], ["/"], ["***/a.py"], ["a**/b", "d**/a.py"], ["data/*", "!data/small"],
    ["data", "!data/small"],
    ["a.py\r", "b.txt\r"], ["\ufeffa.py"], ["a.py\u2028b", "b.txt"],
]  # fmt: skip
WORDS = [
    "*", "**", "***", "?", "a", "b", "d", "e", "x", "y", "build", "foo", "*.py", "a.*", "[a-e]", "[!a]", "[^b]", "[]x]",
    "[[:alpha:]]", "[[:bad:]]", "[a-", "\\a", "\\*", "é", "??.py", "z", "src", "*b*", "[d-a]", "[a\\]]", "sp\\ ", "#h",
    "a**",
    "**a", ".*", "[x-]", "[--y]", "\\", "[/]", "[!/]y", "[]-a]",
]  # fmt: skip


@pytest.fixture(scope="module")
def top(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("patterns") / "code"
    write(folder, dict.fromkeys(FILES, "1"))
    subprocess.run(["git", "init", "-q", "--bare", folder.parent / "git"], check=True)
    return folder


def both(top: Path, lines: list[str]) -> tuple[list[bytes], list[bytes]]:
    """Return what kit takes with these patterns, and what git lists."""
    file = top / ".kitignore"
    file.write_bytes("\n".join(lines).encode())
    words = ["git", "--git-dir", str(top.parent / "git"), "--work-tree", str(top), "ls-files", "-z", "--others"]
    environment = {**os.environ, "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
    done = subprocess.run(
        [*words, f"--exclude-from={file}"], cwd=top, env=environment, stdout=subprocess.PIPE, check=True
    )
    return sorted(listing(top, plain=True).paths), sorted(done.stdout.split(b"\0")[:-1])


@pytest.mark.parametrize("lines", [*ALLOW_LISTS, *SINGLE], ids=" ".join)
def test_git_decides_the_same(top: Path, lines: list[str]) -> None:
    ours, git = both(top, lines)
    assert ours == git


@pytest.mark.parametrize("seed", range(4))
def test_git_decides_the_same_about_lists_by_chance(top: Path, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311

    def pattern() -> str:
        path = "/".join(chance.choice(WORDS) for _ in range(chance.choice((1, 1, 2, 2, 3))))
        return chance.choice(("", "", "!")) + chance.choice(("", "", "/")) + path + chance.choice(("", "", "/"))

    for _ in range(50):
        lines = [pattern() for _ in range(chance.randint(1, 4))]
        ours, git = both(top, lines)
        assert ours == git, lines


def test_an_allow_list_takes_the_code_of_all_folders(top: Path) -> None:
    ours, _ = both(top, ["*", "!*/", "!*.py"])
    assert ours == sorted(os.fsencode(name) for name in FILES if name.endswith(".py"))


@pytest.mark.parametrize("line", [b"!", b"!/"])
def test_a_negation_of_nothing_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match="nothing after"):
        patterns.ignored(b"ok\n" + line)


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*a" * 30 + "*b", "a" * 200),
        ("**/a/" * 30 + "b", "a/" * 100 + "c"),
        ("**/*a*a*/" * 20 + "b", "aaa/" * 60 + "c"),
    ],
    ids=["stars", "folders", "both"],
)
def test_no_pattern_of_a_repository_takes_years(pattern: str, path: str) -> None:
    """In another process, because this one could not end a search that lasts."""
    program = "import sys; from kit.remote.code import patterns; t, p = map(str.encode, sys.argv[1:])\n"
    program += "sys.exit(patterns.ignored(t)(p) or not patterns.ignored(t)(p[:-1] + b'b'))"
    root = Path(patterns.__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", program, pattern, path], cwd=root, check=False, timeout=60)
    assert done.returncode == 0
